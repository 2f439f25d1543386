"""What dmon, pmon and query loops show over time: busy, idle, idle between bursts, busy without filling the chip, slowed down."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.gpu import GpuSeries, ProcessSeries
from loadpath.core.report import Finding
from loadpath.diagnosis.gpu.words import mean, power_cap, ranges, say, spread
from loadpath.diagnosis.rule import Rule, finding

_IDLE, _WORK, _HIGH = 5.0, 50.0, 80.0
_LOW_POWER, _LOW_MEMORY = 0.45, 30.0
_HOT = 83.0


class Load(msgspec.Struct, frozen=True):
    """A series in figures: means over the samples that have any. `share`: mean power against the limit, 0..1."""

    series: GpuSeries
    sm: tuple[float, ...]
    memory: tuple[float, ...]
    power: tuple[float, ...]
    cap: tuple[float, bool] | None

    @property
    def share(self) -> float | None:
        return mean(self.power) / self.cap[0] if self.power and self.cap else None

    @property
    def words(self) -> str:
        """`sm 97-99 %, mem 71 %, 412-428 of 600 W`."""
        parts = [f"sm {spread(self.sm)} %"] if self.sm else []
        if self.memory:
            parts.append(f"mem {spread(self.memory)} %")
        if self.power:
            nominal = "" if self.cap is None else f" of {self.cap[0]:.0f}" + ("" if self.cap[1] else " (nominal)")
            parts.append(f"{spread(self.power)}{nominal} W")
        return ", ".join(parts)


def column(series: GpuSeries | ProcessSeries, *names: str) -> tuple[float, ...]:
    for name in names:
        if found := tuple(v for v in series.columns.get(name, ()) if v is not None):
            return found
    return ()


def load_of(case: Case, series: GpuSeries) -> Load:
    return Load(
        series, column(series, "sm"), column(series, "mem"), column(series, "pwr"), power_cap(case, series.index)
    )


def kind_of(load: Load) -> str:
    """`busy`, `not-filled`, `idle`, `bursts`, `partly`, `hidden` (no utilisation: MIG)."""
    if not load.sm:
        return "hidden" if load.power else ""
    average = mean(load.sm)
    if max(load.sm) <= _IDLE:
        return "idle"
    pauses = sum(v <= _IDLE for v in load.sm) / len(load.sm)
    if len(load.sm) >= 4 and pauses >= 0.2 and max(load.sm) >= _WORK:
        return "bursts"
    if average < _HIGH:
        return "partly"
    low_memory = not load.memory or mean(load.memory) < _LOW_MEMORY
    if load.share is not None and load.share < _LOW_POWER and low_memory:
        return "not-filled"
    measured = column(load.series, "smutil")
    if measured and mean(measured) < 50:
        return "not-filled"
    return "busy"


def judge(case: Case) -> Iterator[Finding]:
    groups: dict[str, list[Load]] = {}
    for series in case.all(GpuSeries):
        load = load_of(case, series)
        groups.setdefault(kind_of(load), []).append(load)
    makers = {
        "busy": _busy, "not-filled": _not_filled, "idle": _idle, "bursts": _bursts, "partly": _partly, "hidden": _hidden,
    }  # fmt: skip
    for kind, own in groups.items():
        if kind in makers:
            yield makers[kind](case, own)


def _on(own: list[Load]) -> str:
    numbers = sorted({load.series.index for load in own})
    return f"GPU {numbers[0]}" if len(numbers) == 1 else f"GPUs {ranges(numbers)}"


def _verb(own: list[Load], one: str, many: str) -> str:
    return one if len({load.series.index for load in own}) == 1 else many


def _each(own: list[Load]) -> str:
    return "; ".join(f"{_on([load])}: {load.words}" for load in own[:4]) if len(own) > 1 else own[0].words


def _made(case: Case, row_id: str, own: list[Load], title: str, values: dict[str, object]) -> Finding:
    common = {
        "gpus": _on(own),
        "figures": _each(own),
        "samples": len(own[0].sm or own[0].power),
        "index": own[0].series.index,
    }
    figures = {
        "gpus": [
            {
                "index": load.series.index, "sm_percent": mean(load.sm) if load.sm else None,
                "memory_percent": mean(load.memory) if load.memory else None, "power_w": mean(load.power) if load.power else None,
            }
            for load in own
        ]
    }  # fmt: skip
    return finding(
        row_id, [load.series for load in own], case=case, title=title, values=common | values, figures=figures
    )


def _busy(case: Case, own: list[Load]) -> Finding:
    memory = mean(own[0].memory) if own[0].memory else None
    bound = None
    if memory is not None and memory >= 50:
        bound = (
            "The memory was being read or written most of the time, as decoding does: it is bound by memory bandwidth, "
            "and power below the limit is normal then."
        )
    elif memory is not None and own[0].share is not None and own[0].share >= 0.6:
        bound = (
            "High power with little memory activity is the sign of compute-bound work (prefill, large matrix products)."
        )
    elif own[0].share is None:
        bound = "The power limit is not in this input, so whether the kernels fill the chip cannot be told from these columns."
    title = f"{_on(own)} {_verb(own, 'is', 'are')} busy: {own[0].words}"
    cap_unknown = str(own[0].series.index) if own[0].share is None else None
    return _made(case, "dmon-busy", own, title, {"bound": bound, "cap_unknown": cap_unknown})


def _not_filled(case: Case, own: list[Load]) -> Finding:
    load = own[0]
    measured = column(load.series, "smutil")
    share = f"{load.share:.0%}" if load.share is not None else None
    settled = (
        f"GPM measured {spread(measured)} % SM activity in the same samples, which settles it." if measured else None
    )
    title = f"{_on(own)} {_verb(own, 'is', 'are')} busy all the time and far from filled: {load.words}"
    values: dict[str, object] = {"share": share, "settled": settled, "unsettled": None if measured else "open"}
    made = _made(case, "dmon-not-filled", own, title, values)
    return msgspec.structs.replace(made, certainty="established") if measured else made


def _idle(case: Case, own: list[Load]) -> Finding:
    held = column(own[0].series, "fb")
    title = f"{_on(own)} did nothing in these samples: {own[0].words}"
    return _made(case, "dmon-idle", own, title, {"held": f"{spread(held)}" if held and max(held) > 128 else None})


def _bursts(case: Case, own: list[Load]) -> Finding:
    load = own[0]
    pauses = sum(v <= _IDLE for v in load.sm)
    title = f"{_on(own)} {_verb(own, 'works', 'work')} in bursts: idle in {pauses} of {len(load.sm)} samples"
    return _made(case, "dmon-idle-phases", own, title, {"pauses": pauses, "peak": f"{max(load.sm):.0f}"})


def _partly(case: Case, own: list[Load]) -> Finding:
    title = f"{_on(own)} {_verb(own, 'is', 'are')} partly used: {own[0].words}"
    return _made(case, "dmon-partly", own, title, {})


def _hidden(case: Case, own: list[Load]) -> Finding:
    title = f"dmon shows no utilisation for {_on(own)} (MIG mode or not supported); {spread(own[0].power)} W tells of the work"
    return _made(case, "dmon-utilisation-hidden", own, title, {"power": spread(own[0].power)})


def judge_clocks(case: Case) -> Iterator[Finding]:
    """The SM clock falls while the GPU works: by its power limit (normal), by heat, or for another reason."""
    for series in case.all(GpuSeries):
        clocks, work = series.columns.get("pclk", ()), series.columns.get("sm", ())
        busy = [i for i, c in enumerate(clocks) if c is not None and i < len(work) and (work[i] or 0) >= _HIGH]
        if len(busy) < 4:
            continue
        high, low = (max(clocks[i] or 0 for i in busy), min(clocks[i] or 0 for i in busy))
        if low > 0.85 * high:
            continue
        slow = [i for i in busy if (clocks[i] or 0) <= 0.9 * high]
        heat = [v for i in slow if (v := _at(series, "gtemp", i)) is not None]
        power = [v for i in slow if (v := _at(series, "pwr", i)) is not None]
        cap = power_cap(case, series.index)
        why, row_id = _why(series, slow, heat, power, cap)
        values = {
            "index": series.index, "low": f"{low:.0f}", "high": f"{high:.0f}", "why": why,
            "heat": f"{spread(heat)} °C" if heat else None, "power": f"{spread(power)} W" if power else None,
        }  # fmt: skip
        yield finding(row_id, [series], case=case, values=values)


def _at(series: GpuSeries, name: str, i: int) -> float | None:
    values = series.columns.get(name, ())
    return values[i] if i < len(values) else None


def _why(
    series: GpuSeries, slow: list[int], heat: list[float], power: list[float], cap: tuple[float, bool] | None
) -> tuple[str, str]:
    if any(_at(series, "tviol", i) for i in slow) or (heat and mean(heat) >= _HOT):
        return "it is hot: the driver or the hardware lowers the clock to hold the temperature", "dmon-clock-falls"
    if any((_at(series, "pviol", i) or 0) > 0 for i in slow) or (power and cap and mean(power) >= 0.93 * cap[0]):
        return "it is at its power limit, which is normal under full load", "dmon-power-capped"
    return "neither heat nor the power limit explains it in these columns", "dmon-clock-falls"


def judge_processes(case: Case) -> Iterator[Finding]:
    """pmon: which process does the work, which only holds memory."""
    series = case.all(ProcessSeries)
    working = sorted((s for s in series if _mean(s) >= 1), key=lambda s: -_mean(s))
    waiting = [s for s in series if s not in working and s.kind not in ("G", "C+G")]
    if not series:
        return
    said = [f"{s.command} (pid {s.pid}, GPU {s.index}) {_mean(s):.0f} % sm" for s in working[:4]]
    title = f"pmon: {said[0]}" if said else f"pmon: none of {len(series)} processes worked in these samples"
    values = {
        "working": say(said) if said else None, "waiting": say([f"{s.command} (pid {s.pid})" for s in waiting[:4]]) if waiting else None,
    }  # fmt: skip
    yield finding("pmon-activity", [*working, *waiting], case=case, title=title[:139], values=values)


def _mean(series: ProcessSeries) -> float:
    values = series.columns.get("sm", ())
    return sum(v or 0 for v in values) / len(values) if values else 0.0


RULES = (
    Rule(
        judge,
        (GpuSeries,),
        ("dmon-busy", "dmon-not-filled", "dmon-idle", "dmon-idle-phases", "dmon-partly", "dmon-utilisation-hidden"),
    ),
    Rule(judge_clocks, (GpuSeries,), ("dmon-clock-falls", "dmon-power-capped")),
    Rule(judge_processes, (ProcessSeries,), ("pmon-activity",)),
)
