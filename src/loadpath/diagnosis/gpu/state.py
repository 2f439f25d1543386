"""What GPUs are doing, by one nvidia-smi output: busy, loaded and waiting, held by nobody visible, free, cut into slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.gpu import DriverVersions, GpuState, MigInstance
from loadpath.core.report import Check, Finding
from loadpath.core.units import MIB
from loadpath.diagnosis.gpu.words import (
    SMALL,
    Seen,
    gpus_now,
    is_server,
    labels,
    mebibytes,
    memory_words,
    owners,
    percent,
    power_words,
    spread,
)
from loadpath.diagnosis.rule import Rule, finding

BUSY = 0.2
IDLE = 0.05
_NOT_FILLED = 0.4


def kind_of(seen: Seen) -> str:
    """`failed`, `mig`, `unreported`, `stale`, `busy`, `not-filled`, `held`, `unseen`, `desktop`, `free`."""
    gpu = seen.state
    if {"name", "MIG", "ecc"} & set(gpu.failed_cells):
        return "failed"
    if gpu.mig == "Enabled":
        return "mig"
    if gpu.memory != "own" or gpu.used_bytes is None:
        return "unreported"
    small = gpu.used_bytes <= SMALL + (gpu.reserved_bytes or 0) and not seen.compute
    utilisation = gpu.utilisation
    if utilisation is not None and utilisation >= BUSY:
        if small and not seen.processes and seen.listed in ("none-found", "empty") and not seen.foreign:
            return "stale"
        return "not-filled" if _is_not_filled(gpu) else "busy"
    if small and not seen.processes:
        return "free"
    if seen.processes and not seen.compute:
        return "desktop"
    if utilisation is None:
        return "unreported"
    if not seen.processes and seen.listed in ("none-found", "empty") and not seen.foreign:
        return "unseen"
    return "held"


def _is_not_filled(gpu: GpuState) -> bool:
    """High utilisation at less than 40 % of the power limit: kernels run all the time and use little of the chip."""
    return (
        gpu.utilisation is not None and gpu.utilisation >= 0.9
        and gpu.power_w is not None and bool(gpu.power_cap_w) and gpu.power_w < _NOT_FILLED * (gpu.power_cap_w or 0)
        and (gpu.temperature_c or 0) < 80  # a hot GPU draws little because it is slowed down
    )  # fmt: skip


def judge(case: Case) -> Iterator[Finding]:
    groups: dict[str, list[Seen]] = {}
    for seen in gpus_now(case):
        groups.setdefault(kind_of(seen), []).append(seen)
    makers = {
        "busy": _busy, "not-filled": _not_filled, "held": _held, "unseen": _unseen, "free": _free, "desktop": _desktop,
        "stale": _stale, "mig": _mig, "unreported": _unreported,
    }  # fmt: skip
    made = [makers[kind](case, own) for kind, own in groups.items() if kind in makers]
    if made:
        # Said once, and where the reader begins.
        made[0] = msgspec.structs.replace(made[0], cause=f"{made[0].cause.strip()}{_ceiling(case)}")
    yield from made


def _states(own: Sequence[Seen]) -> list[GpuState]:
    return [seen.state for seen in own]


def _ceiling(case: Case) -> str:
    """What `CUDA Version` in the header means, where one was printed."""
    cuda = next(
        (v.cuda for v in reversed(case.all(DriverVersions)) if v.cuda and v.view in ("table", "query", "xml")), None
    )
    return (
        f" CUDA Version {cuda} is the newest CUDA that this driver accepts, not an installed toolkit." if cuda else ""
    )


def _figures(own: Sequence[Seen]) -> dict[str, object]:
    return {
        "gpus": [
            {
                "index": s.state.index, "used_bytes": s.state.used_bytes, "total_bytes": s.state.total_bytes,
                "utilisation": s.state.utilisation, "power_w": s.state.power_w, "temperature_c": s.state.temperature_c,
            }
            for s in own
        ]
    }  # fmt: skip


def _on(own: Sequence[Seen]) -> str:
    return labels(_states(own))


def _verb(own: Sequence[Seen], one: str, many: str) -> str:
    return one if len(own) == 1 else many


def _busy(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    at_cap = [g for g in gpus if g.power_w and g.power_cap_w and g.power_w >= 0.95 * g.power_cap_w]
    drawn = power_words(gpus)
    power = f" and {drawn}" if drawn else ""
    cause = f"A kernel was running during {percent([g.utilisation for g in gpus])} of the sample period"
    cause += f"; power {drawn}. " if drawn else ". "
    if processes := [p for s in own for p in s.compute]:
        cause += f"{owners(processes)}. "
    if at_cap:
        cause += f"{labels(at_cap)} {_verb(at_cap, 'is', 'are')} at the power limit, which is normal under full load. "  # type: ignore[arg-type]
    cause += "GPU-Util counts time with any kernel, not how much of the chip the kernels use."
    title = f"{_on(own)} {_verb(own, 'is', 'are')} at work: {percent([g.utilisation for g in gpus])} GPU-Util{power}, {memory_words(gpus)}"
    return finding("gpu-busy", gpus, case=case, title=title, cause=cause, figures=_figures(own))


def _not_filled(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    values = {"util": percent([g.utilisation for g in gpus]), "power": power_words(gpus)}
    title = f"{_on(own)} {_verb(own, 'shows', 'show')} {values['util']} GPU-Util at {values['power']}: the kernels do not fill the chip"
    return finding("gpu-not-filled-once", gpus, case=case, title=title, values=values, figures=_figures(own))


def _held(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    processes = [p for s in own for p in s.compute]
    serving = any(is_server(p) for p in processes)
    most = max((g.used_bytes or 0) / (g.total_bytes or 1) for g in gpus)
    waiting = serving or most >= 0.4
    if waiting:
        meaning = "a loaded server that waits" if len(own) == 1 else "loaded and waiting"
    else:
        light = any((g.utilisation or 0) > IDLE for g in gpus)
        meaning = "lightly used" if light else "memory held, nothing running at this moment"
    power = power_words(gpus)
    title = (
        f"{_on(own)} {_verb(own, 'holds', 'hold')} {memory_words(gpus)} at {percent([g.utilisation for g in gpus])}"
        f"{f' and {power}' if power else ''}: {meaning}"
    )
    cause = f"{owners(processes)}. " if processes else f"{_no_owner(own)} "
    if any("not found" in (p.name or "").lower() for p in processes):
        cause += "[Not Found] as a name: the pid belongs to another PID namespace, or the process has just ended. "
    if waiting:
        cause += (
            "An inference server takes its share of the memory once, at the start (weights, then the KV pool, graphs), and keeps it "
            "while no request comes: that is its normal idle state, not a leak. "
        )
    else:
        cause += "A program keeps what it allocated until it ends, whether or not a kernel runs. "
    states = {g.performance_state for g in gpus if g.performance_state}
    if states:
        cause += (
            f"{'/'.join(sorted(states))} at {power or 'idle power'} is what an idle GPU with a live context shows. "
        )
    cause += "The figure is of the whole GPU, for every process and container on it."
    return finding("gpu-memory-held-idle", gpus, case=case, title=title, cause=cause, figures=_figures(own))


def _no_owner(own: Sequence[Seen]) -> str:
    if any(s.foreign for s in own):
        return "The processes belong to the Windows side, which does not show their memory here."
    return "The process list was not pasted, so the owner is not known."


def _unseen(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    used = sum(g.used_bytes or 0 for g in gpus)
    title = (
        f"{_on(own)} {_verb(own, 'holds', 'hold')} {memory_words(gpus)} at {percent([g.utilisation for g in gpus])}"
        ", and no process is shown"
    )
    index = gpus[0].index or 0
    cause = (
        f"{mebibytes(used)} MiB are taken while the process list is empty. nvidia-smi cannot show processes of another PID namespace: "
        "seen from inside a container (or for another container's server) this is the normal sight of a loaded, waiting engine. "
        "It is a leftover only if the host finds no process with the device open; memory of a process that is really gone is "
        "freed by the driver."
    )
    if odd := _more_than_peers(gpus):
        cause += f" {odd}"
    return finding(
        "gpu-memory-held-unseen",
        gpus,
        case=case,
        title=title,
        cause=cause,
        values={"index": index},
        figures=_figures(own),
    )


def _more_than_peers(gpus: Sequence[GpuState]) -> str:
    """GPU 0 of a group often carries contexts of the other ranks: say how much."""
    if len(gpus) < 3:
        return ""
    ordered = sorted(gpus, key=lambda g: g.used_bytes or 0)
    top, middle = ordered[-1], ordered[len(ordered) // 2]
    extra = (top.used_bytes or 0) - (middle.used_bytes or 0)
    if extra < 1024 * MIB or extra > 0.1 * (top.total_bytes or 1):
        return ""
    return f"GPU {top.index} holds {mebibytes(extra)} MiB more than its peers: contexts of the other ranks, usually."


def _free(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    sure = all(s.listed in ("none-found", "empty", "rows") for s in own)
    values = {
        "gpus": _on(own), "memory": memory_words(gpus),
    }  # fmt: skip
    title = f"{_on(own)} {_verb(own, 'is', 'are')} free: {memory_words(gpus)}{', no process' if sure else ' in use'}"
    return finding("gpu-free", gpus, case=case, title=title, values=values, figures=_figures(own))


def _desktop(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    title = f"{_on(own)} {_verb(own, 'serves', 'serve')} the desktop only: {memory_words(gpus)} in graphics processes"
    cause = f"All {sum(len(s.processes) for s in own)} processes are of type G or C+G (graphics), none computes. "
    if any(p.used_bytes is None for s in own for p in s.processes):
        cause += "Under WDDM the memory of a process is not shown: its sum is unknown, not zero. "
    cause += "What the desktop holds is missing to a model, so plan with the free figure."
    return finding("gpu-desktop-only", gpus, case=case, title=title, cause=cause, figures=_figures(own))


def _stale(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    values = {"util": percent([g.utilisation for g in gpus]), "memory": memory_words(gpus)}
    title = f"{_on(own)} {_verb(own, 'shows', 'show')} {values['util']} with {values['memory']} and no process: a stale sample, not work"
    cause = None
    if any(g.persistence for g in gpus):
        cause = (
            f"{values['util']} GPU-Util beside {values['memory']} and an empty process list is either the last sample of a job that has "
            "just ended, or work in another PID namespace. A second reading tells."
        )
    return finding(
        "gpu-stale-utilisation", gpus, case=case, title=title, values=values, cause=cause, figures=_figures(own)
    )


def _mig(case: Case, own: list[Seen]) -> Finding:
    instances = [m for s in own for m in s.instances]
    if not instances:
        return _mig_without_instances(case, own)
    by_instance: dict[tuple[int | None, int | None], MigInstance] = {}
    for m in instances:
        by_instance.setdefault((m.index, m.gpu_instance), m)
    used = [m for m in by_instance.values() if (m.used_bytes or 0) > SMALL]
    largest = max(by_instance.values(), key=lambda m: (m.total_bytes or 0) - (m.used_bytes or 0))
    free = (largest.total_bytes or 0) - (largest.used_bytes or 0)
    title = (
        f"MIG is on: {len(by_instance)} GPU instance{'s' if len(by_instance) > 1 else ''} on {_on(own)}, {len(used)} in use; "
        f"a new job gets at most {mebibytes(free)} MiB"
    )
    sizes = spread([m.total_bytes / MIB for m in by_instance.values() if m.total_bytes])
    cause = (
        f"Each instance is a GPU of its own ({sizes} MiB): memory is free per instance, never as one piece, and a process sees one "
        "instance only, so tensor parallel over slices is no way out. GPU-Util is N/A by design with MIG on; power and clocks "
        "still show work. "
    )
    if used:
        cause += "In use: " + ", ".join(
            f"GI {m.gpu_instance} {mebibytes(m.used_bytes)} of {mebibytes(m.total_bytes)} MiB" for m in used[:4]
        ) + ". "  # fmt: skip
    if any(s.state.memory == "hidden" or s.state.used_bytes is None for s in own):
        cause += (
            "The whole GPU's memory reads N/A because this user has no right to it: plan with the instance's figure."
        )
    return finding(
        "gpu-mig-slices", [*_states(own), *used[:4]], case=case, title=title, cause=cause, figures=_figures(own)
    )


def _mig_without_instances(case: Case, own: list[Seen]) -> Finding:
    index = own[0].state.index or 0
    title = f"MIG is on and {_on(own)} {_verb(own, 'has', 'have')} no instance: CUDA sees no device there"
    alone = all(s.state.mig == "Enabled" for s in gpus_now(case))
    return finding(
        "gpu-mig-without-instances", _states(own), case=case, title=title, values={"index": index},
        severity="error" if alone else "warning",
    )  # fmt: skip


def _unreported(case: Case, own: list[Seen]) -> Finding:
    gpus = _states(own)
    if any(g.memory == "unified" for g in gpus):
        title = f"{_on(own)} ({gpus[0].name}) has no memory of its own to report: it shares the host's"
        return finding("gpu-memory-unified", gpus, case=case, title=title, figures=_figures(own))
    missing = [
        word for word, values in (
            ("memory", [g.used_bytes for g in gpus]), ("GPU-Util", [g.utilisation for g in gpus]), ("power", [g.power_w for g in gpus]),
        ) if all(value is None for value in values)
    ]  # fmt: skip
    title = f"{_on(own)} {_verb(own, 'does', 'do')} not report {' and '.join(missing) or 'all figures'}; what is shown is no fault"
    return finding(
        "gpu-limited-report", gpus, case=case, title=title, figures=_figures(own), next_checks=_second_look(gpus)
    )


def _second_look(gpus: Sequence[GpuState]) -> list[Check]:
    index = gpus[0].index or 0
    return [Check("Which figures does this board offer at all?", f"nvidia-smi -q -i {index}")]


RULES = (
    Rule(
        judge,
        (GpuState,),
        (
            "gpu-busy", "gpu-not-filled-once", "gpu-memory-held-idle", "gpu-memory-held-unseen", "gpu-free", "gpu-desktop-only",
            "gpu-stale-utilisation", "gpu-mig-slices", "gpu-mig-without-instances", "gpu-memory-unified", "gpu-limited-report",
        ),
        uses=(DriverVersions, MigInstance),
    ),
)  # fmt: skip
