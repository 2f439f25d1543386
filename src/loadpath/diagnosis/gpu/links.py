"""How GPUs are connected: the PCIe link of each, NVLink, and the paths between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from loadpath.core.case import Case
from loadpath.core.facts.gpu import GpuState, LinkState, NvlinkStatus, Topology
from loadpath.core.report import Finding
from loadpath.diagnosis.gpu.words import board, label, labels, same_bus, say
from loadpath.diagnosis.rule import Rule, finding

_MEANS = {
    "PIX": "one PCIe switch", "PXB": "several PCIe switches", "PHB": "the CPU's PCIe host bridge",
    "NODE": "host bridges inside one NUMA node", "SYS": "the link between CPU sockets", "SOC": "the link between CPU sockets",
}  # fmt: skip
_FAR = ("PHB", "NODE", "SYS", "SOC")
_NO_P2P = {
    "CNS": "chipset not supported", "GNS": "GPU not supported", "TNS": "topology not supported", "NS": "not supported",
    "DR": "disabled by a registry key", "U": "unknown",
}  # fmt: skip


def judge_pcie(case: Case) -> Iterator[Finding]:
    """Link speed and width: low speed at idle is power saving; lost lanes are real at any time."""
    links = case.all(LinkState)
    slow = [link for link in links if _is_slow(link)]
    loaded = [link for link in slow if link.busy or _works(case, link)]
    resting = [link for link in slow if link not in loaded and (link.speed_gts is not None or _asked_for(case, link))]
    narrow = [
        link for link in links if link.width_lowered or (link.width and link.max_width and link.width < link.max_width)
    ]
    if loaded:
        together = all(link.busy for link in loaded)
        yield finding(
            "pcie-slow-under-load",
            loaded,
            case=case,
            values=_values(loaded),
            certainty="likely" if together else "possible",
        )
    if resting:
        yield finding("pcie-link-idle", resting, case=case, values=_values(resting))
    if narrow:
        seen = any(link.speed_gts is not None for link in narrow)
        yield finding(
            "pcie-link-narrow",
            narrow,
            case=case,
            values=_values(narrow),
            severity="warning" if seen and not _is_virtual(case) else "info",
        )


def _works(case: Case, link: LinkState) -> bool:
    """Does nvidia-smi in the same input show this card at work? (At another moment, so it proves little.)"""
    return any(same_bus(s.bus_id, link.bus_id) and (s.utilisation or 0) >= 0.5 for s in case.all(GpuState))


def _is_slow(link: LinkState) -> bool:
    if link.speed_lowered or (link.speed_gts and link.max_speed_gts is None and link.speed_gts <= 5):
        return True  # no NVIDIA board that serves models is limited to 5 GT/s by itself
    best = min(g for g in (link.device_generation, link.host_generation, link.max_generation, 9) if g)
    if link.generation is not None and best != 9:
        return link.generation < best
    return bool(link.speed_gts and link.max_speed_gts and link.speed_gts < link.max_speed_gts)


def _asked_for(case: Case, link: LinkState) -> bool:
    """A short CSV query that names the link was made to look at it; -q prints it always."""
    capture = case.capture_of(link)
    return capture is not None and capture.kind == "nvidia-smi-csv" and len(capture.lines[0].text.split(",")) <= 12


def _is_virtual(case: Case) -> bool:
    return any(s.virtualisation not in (None, "None") for s in case.all(GpuState))


def _values(links: list[LinkState]) -> dict[str, object]:
    first = links[0]
    now = f"{first.speed_gts:g} GT/s" if first.speed_gts else f"generation {first.generation}"
    most = f"{first.max_speed_gts:g} GT/s" if first.max_speed_gts else None
    if most is None and first.max_generation:
        most = f"generation {first.max_generation}"
    full = first.width and (first.width == first.max_width or first.width_lowered is False)
    return {
        "gpus": labels(links) if first.index is not None else "The card" if not first.bus_id else f"The card at {first.bus_id}",
        "now": now, "most": most, "width": first.width, "most_width": first.max_width,
        "full": f"x{first.width}" if full else None,
        "index": first.index or 0, "slot": first.bus_id or "",
        "part": f"{first.width / first.max_width:.0%}" if first.width and first.max_width else None,
    }  # fmt: skip


def judge_nvlink(case: Case) -> Iterator[Finding]:
    statuses = case.all(NvlinkStatus)
    down = [s for s in statuses if any(speed is None for speed in s.links.values())]
    if down:
        lost = {label(s): [n for n, speed in s.links.items() if speed is None] for s in down}
        said = "; ".join(f"{gpu}: link {', '.join(map(str, numbers))}" for gpu, numbers in list(lost.items())[:4])
        yield finding(
            "nvlink-links-inactive",
            down,
            case=case,
            values={"gpus": labels(down), "links": said, "index": down[0].index or 0},
        )
    silent = [s for s in statuses if s.why_none == "inactive"]
    meant = [
        s
        for s in silent
        if (b := board(s)) is not None and b.kind == "datacenter" and b.nvlink_gbs and "PCIe" not in (s.name or "")
    ]
    if meant:
        yield finding(
            "nvlink-all-inactive", meant, case=case, values={"gpus": labels(meant), "index": meant[0].index or 0}
        )
    elif silent:
        yield finding(
            "nvlink-no-bridge",
            silent,
            case=case,
            values={"gpus": labels(silent), "verb": "has" if len(silent) == 1 else "have"},
        )
    errors = [s for s in statuses if sum(s.errors.values())]
    if errors:
        said = "; ".join(
            f"{label(s)}: " + ", ".join(f"{n} {what}" for what, n in s.errors.items() if n) for s in errors[:4]
        )
        yield finding(
            "nvlink-errors",
            errors,
            case=case,
            values={"gpus": labels(errors), "errors": said, "index": errors[0].index or 0},
        )
    good = [s for s in statuses if s.links and s not in down]
    speeds = [speed for speed in good[0].links.values() if speed] if good else []
    if speeds and not down and not errors:
        first = good[0]
        values = {
            "gpus": labels(good), "count": len(first.links), "speed": f"{speeds[0]:g}",
            "total": f"{2 * sum(speeds):.0f}", "verb": "has" if len(good) == 1 else "have",
        }  # fmt: skip
        yield finding("nvlink-up", good, case=case, values=values)


def judge_topology(case: Case) -> Iterator[Finding]:
    for topology in case.all(Topology):
        if len(topology.gpus) < 2:
            continue
        yield _p2p(case, topology) if topology.what == "p2p" else _paths(case, topology)


def _pairs(topology: Topology) -> dict[tuple[str, str], str]:
    return {
        (a, b): path
        for a, b in combinations(topology.gpus, 2)
        if (path := topology.between(a, b) or topology.between(b, a)) is not None
    }


def _p2p(case: Case, topology: Topology) -> Finding:
    states = Counter(_pairs(topology).values())
    bad = {state: n for state, n in states.items() if state != "OK"}
    if not bad:
        return finding("p2p-supported", [topology], case=case, values={"pairs": sum(states.values())})
    state = max(bad, key=lambda s: bad[s])
    values = {
        "pairs": sum(bad.values()),
        "all": sum(states.values()),
        "state": state,
        "meaning": _NO_P2P.get(state, state),
    }
    return finding("p2p-not-supported", [topology], case=case, values=values)


def _paths(case: Case, topology: Topology) -> Finding:
    pairs = _pairs(topology)
    paths = Counter(pairs.values())
    nvlink = {path: n for path, n in paths.items() if path.startswith("NV")}
    far = {path: n for path, n in paths.items() if path in _FAR}
    said = say(
        [f"{n} × {path} ({_MEANS[path]})" if path in _MEANS else f"{n} × {path}" for path, n in paths.most_common()]
    )
    values: dict[str, object] = {
        "pairs": _pairs_words(len(pairs)), "paths": said, "kind": next(iter(nvlink), None), "groups": _groups(topology, pairs),
        "flat": "what a virtual machine shows" if set(paths) == {"PHB"} else None, "nics": _nics(topology),
    }  # fmt: skip
    if nvlink and not far and len(nvlink) == len(paths):
        return finding("topology-nvlink", [topology], case=case, values=values)
    if nvlink:
        return finding("topology-mixed", [topology], case=case, values=values)
    return finding("topology-pcie" if far else "topology-pcie-switch", [topology], case=case, values=values)


def _pairs_words(count: int) -> str:
    return "The GPU pair is" if count == 1 else f"All {count} GPU pairs are"


def _groups(topology: Topology, pairs: dict[tuple[str, str], str]) -> str | None:
    """Sets of GPUs that are joined by NVLink or share a NUMA node, where there is more than one set."""
    near = {pair for pair, path in pairs.items() if path.startswith("NV")}
    near = near or {pair for pair, path in pairs.items() if path not in ("SYS", "SOC")}
    sets: list[set[str]] = []
    for gpu in topology.gpus:
        home = next((s for s in sets if any((other, gpu) in near or (gpu, other) in near for other in s)), None)
        if home is None:
            sets.append({gpu})
        else:
            home.add(gpu)
    if len(sets) < 2 or all(len(s) == 1 for s in sets):
        return None
    return say(["+".join(sorted(s, key=lambda g: int(g[3:]))) for s in sets])


def _nics(topology: Topology) -> str | None:
    """GPUs whose every NIC is behind another socket."""
    if not topology.nics:
        return None
    away = [g for g in topology.gpus if all(topology.between(g, nic) in ("SYS", "SOC") for nic in topology.nics)]
    return say(away) if away else None


RULES = (
    Rule(judge_pcie, (LinkState,), ("pcie-slow-under-load", "pcie-link-idle", "pcie-link-narrow")),
    Rule(
        judge_nvlink,
        (NvlinkStatus,),
        ("nvlink-links-inactive", "nvlink-all-inactive", "nvlink-no-bridge", "nvlink-errors", "nvlink-up"),
    ),
    Rule(
        judge_topology,
        (Topology,),
        (
            "p2p-supported",
            "p2p-not-supported",
            "topology-nvlink",
            "topology-mixed",
            "topology-pcie",
            "topology-pcie-switch",
        ),
    ),
)
