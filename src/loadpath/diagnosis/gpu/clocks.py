"""Clocks, power and heat: throttle reasons that hold a GPU back, a cap that was lowered, one GPU hotter than its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loadpath.core.case import Case
from loadpath.core.facts.gpu import GpuClocks, GpuState
from loadpath.core.report import Finding
from loadpath.diagnosis.gpu.words import gpus_now, label, labels, median, power_words, spread
from loadpath.diagnosis.rule import Rule, finding


def judge_reasons(case: Case) -> Iterator[Finding]:
    """The grave reasons, one finding a kind over all GPUs: power brake, heat, hardware slowdown."""
    kinds: dict[str, Callable[[tuple[str, ...]], bool]] = {
        "gpu-power-brake": lambda r: "power-brake" in r,
        "gpu-thermal-slowdown": lambda r: "hw-thermal" in r or "sw-thermal" in r,
        "gpu-hardware-slowdown": lambda r: "hw-slowdown" in r and not {"hw-thermal", "power-brake"} & set(r),
    }
    for row_id, test in kinds.items():
        own = [c for c in case.all(GpuClocks) if c.reasons and test(c.reasons)]
        if own:
            yield _slowed(case, row_id, own)


def judge_at_limit(case: Case) -> Iterator[Finding]:
    """Only the power cap holds the clocks: what a busy GPU at its limit shows, and no fault."""
    grave = {"power-brake", "hw-thermal", "sw-thermal", "hw-slowdown"}
    own = [c for c in case.all(GpuClocks) if c.reasons and "sw-power-cap" in c.reasons and not grave & set(c.reasons)]
    if own:
        states = {(s.index, s.bus_id): s for s in case.all(GpuState)}
        gpus = [s for c in own if (s := states.get((c.index, c.bus_id))) is not None]
        heat = f"{spread([g.temperature_c for g in gpus])} °C" if any(g.temperature_c is not None for g in gpus) else ""
        values = {
            "gpus": labels(own),
            "power": power_words(gpus) if gpus else "",
            "heat": heat,
            "index": own[0].index or 0,
        }
        yield finding("gpu-at-power-limit", own, case=case, values=values)


def _slowed(case: Case, row_id: str, own: list[GpuClocks]) -> Finding:
    states = {(s.index, s.bus_id): s for s in case.all(GpuState)}
    gpus = [s for c in own if (s := states.get((c.index, c.bus_id))) is not None]
    clocks = ""
    if any(c.sm_mhz is not None for c in own):
        clocks = f"{spread([c.sm_mhz for c in own])} of {spread([c.max_sm_mhz for c in own])} MHz"
    values = {
        "gpus": labels(own),
        "verb": "is" if len(own) == 1 else "are",
        "clocks": clocks,
        "power": power_words(gpus) if gpus else "",
        "heat": f"{spread([g.temperature_c for g in gpus])} °C"
        if any(g.temperature_c is not None for g in gpus)
        else "",
        "index": own[0].index or 0,
    }
    hardware = any("hw-thermal" in (c.reasons or ()) for c in own)
    values["who"] = "the hardware itself (HW Thermal Slowdown)" if hardware else "the driver (SW Thermal Slowdown)"
    return finding(row_id, own, case=case, values=values)


def judge_power_cap(case: Case) -> Iterator[Finding]:
    """A power limit that somebody set below the board's default."""
    lowered = [
        s for s in case.all(GpuState)
        if s.power_cap_w and s.power_default_w and s.power_cap_w < 0.95 * s.power_default_w
    ]  # fmt: skip
    if lowered:
        first = lowered[0]
        values = {
            "gpus": labels(lowered), "cap": f"{first.power_cap_w:.0f}", "default": f"{first.power_default_w:.0f}",
            "index": first.index or 0,
        }  # fmt: skip
        yield finding("gpu-power-limit-lowered", lowered, case=case, values=values)


def judge_outlier(case: Case) -> Iterator[Finding]:
    """One of several equally busy GPUs that is far hotter and draws less: it cannot get rid of its heat."""
    busy = [s.state for s in gpus_now(case) if (s.state.utilisation or 0) >= 0.9]
    if len(busy) < 3:
        return
    heat, power = median(g.temperature_c for g in busy), median(g.power_w for g in busy)
    if heat is None or power is None:
        return
    for gpu in busy:
        hot = (gpu.temperature_c or 0) - heat
        if hot >= 20 and gpu.power_w is not None and gpu.power_w <= 0.85 * power:
            peers = [g for g in busy if g is not gpu]
            values = {
                "gpu": label(gpu), "index": gpu.index or 0, "heat": f"{gpu.temperature_c:.0f}", "power": f"{gpu.power_w:.0f}",
                "peer_heat": spread([g.temperature_c for g in peers]), "peer_power": spread([g.power_w for g in peers]),
                "count": len(peers),
            }  # fmt: skip
            yield finding("gpu-hotter-than-peers", [gpu, *peers[:2]], case=case, values=values)
            return


RULES = (
    Rule(
        judge_reasons,
        (GpuClocks,),
        ("gpu-power-brake", "gpu-thermal-slowdown", "gpu-hardware-slowdown"),
        uses=(GpuState,),
    ),
    Rule(judge_at_limit, (GpuClocks,), ("gpu-at-power-limit",), uses=(GpuState,)),
    Rule(judge_power_cap, (GpuState,), ("gpu-power-limit-lowered",)),
    Rule(judge_outlier, (GpuState,), ("gpu-hotter-than-peers",)),
)
