"""The step ladder: which steps of the start were seen, how long each took, and where a fact stands on it."""

from __future__ import annotations

from typing import Literal

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    CompileTook,
    Concurrency,
    GraphsCaptured,
    InitTook,
    KvPool,
    MemoryBreakdown,
    Progress,
    ServerListening,
    Silence,
    StepMark,
    Waiting,
    WeightsLoaded,
)
from loadpath.core.report import Figures, Finding, StepReport
from loadpath.core.units import show_seconds
from loadpath.core.vocabulary import STEPS, FindingStep, Step, StepState

# Where a run is when a step has ended; graph capture and warm-up may be left out by settings.
_NEXT: dict[Step, Step] = {"http-server": "serving", "serving": "shutdown", "shutdown": "shutdown"}
# So many notices of waiting in a row, a minute each, and the step no longer keeps its normal pace.
WAITS_OF_A_STALL = 10
# Seconds without a line that each step may well take (from complete logs of public starts, slow ones included).
PATIENCE: dict[Step, float] = {
    "process-start": 90.0, "device-enumeration": 120.0, "context-creation": 60.0, "weight-load": 180.0,
    "memory-profiling": 300.0, "kv-pool": 60.0, "graph-capture": 120.0, "http-server": 60.0, "warm-up": 600.0,
    "serving": float("inf"), "shutdown": 120.0,
}  # fmt: skip
ITEMS_OF_PATIENCE = 5
NOTEWORTHY_START = 60.0  # seconds; what is shorter needs no account of its time


def step_at(case: Case, fact: Fact) -> FindingStep:
    """The step in which the run was when `fact` was printed: the last mark before its line, in the same source."""
    line, source = fact.span.first_line, fact.span.source
    before = [
        mark for mark in case.all(StepMark)
        if mark.span.first_line <= line and mark.span.source == source and mark.event != "skipped"
    ]  # fmt: skip
    if not before:
        return "unseen"
    last = max(before, key=lambda mark: (mark.span.first_line, STEPS.index(mark.step)))
    if last.event == "ended":
        return _NEXT.get(last.step) or STEPS[STEPS.index(last.step) + 1]
    return last.step


def ladder(case: Case, root: Finding | None = None) -> tuple[StepReport, ...]:
    """One StepReport for each step, in order. `root`: an error finding marks the step that it stopped."""
    marks = case.all(StepMark)
    return tuple(_rung(case, step, marks, root) for step in STEPS)


def time_spent(steps: tuple[StepReport, ...]) -> str:
    """Where the time of a start went, in a sentence; "" for short starts and where too little is known."""
    took = {s.step: s.seconds for s in steps if s.seconds and STEPS.index(s.step) <= STEPS.index("http-server")}
    total = sum(took.values())
    if len(took) < 3 or total < NOTEWORTHY_START:
        return ""
    longest = sorted(took.items(), key=lambda item: -item[1])[:3]
    shares = ", ".join(f"{step} {show_seconds(seconds)} ({seconds / total:.0%})" for step, seconds in longest)
    return f"The steps of the start took {show_seconds(total)} together: {shares}."


def _rung(case: Case, step: Step, marks: list[StepMark], root: Finding | None) -> StepReport:
    own = [mark for mark in marks if mark.step == step]
    failed = root is not None and root.severity == "error" and root.step == step
    if not own:
        return StepReport(step, "failed" if failed else "unseen")
    state = "failed" if failed else _state(case, step, own, marks)
    return StepReport(step, state, _seconds(case, step, own, marks), _figures(case, step), _by_rank(step, own))


def _state(case: Case, step: Step, own: list[StepMark], marks: list[StepMark]) -> StepState:
    events: set[Literal["began", "progress", "ended", "failed", "skipped"]] = {mark.event for mark in own}
    if "failed" in events:
        return "failed"
    if "skipped" in events and not events & {"ended"}:
        return "skipped"
    # A later step that was entered proves that this one came to its end, whether or not it said so; a stop does not.
    later = any(
        STEPS.index(m.step) > STEPS.index(step) and m.event != "skipped" and (m.step != "shutdown" or step == "serving")
        for m in marks
    )
    if "ended" in events or later:
        return "done"
    silence = case.last(Silence)
    silent = silence is not None and silence.seconds > patience(case, step)
    return "stalled" if silent or _waits_since(case, own[-1]) >= WAITS_OF_A_STALL else "running"


def patience(case: Case, step: Step) -> float:
    """Seconds of silence that are normal in a step: a few items of its bar, else what such a step takes at most."""
    each = _bar(case, step).get("seconds_each") or 0.0
    return max(PATIENCE.get(step, 60.0), ITEMS_OF_PATIENCE * each)


def _waits_since(case: Case, mark: StepMark) -> int:
    """Notices of waiting after the last sign of this step."""
    return sum(
        wait.span.first_line > mark.span.first_line for wait in case.all(Waiting) if wait.what == "broadcast block"
    )


def _seconds(case: Case, step: Step, own: list[StepMark], marks: list[StepMark]) -> float | None:
    """The printed duration of the slowest rank; else the time from the first mark of the step to the next step's."""
    # A mark without a word of its own is about the whole step.
    printed = [m.seconds for m in own if m.seconds is not None and (m.event == "ended" or not m.what)]
    if printed:
        return max(printed)
    if step in ("serving", "shutdown"):
        return None
    start = min((m.origin.time for m in own if m.origin.time is not None), default=None)
    ends = [m.origin.time for m in own if m.event == "ended" and m.origin.time is not None]
    if not ends:
        later = [m for m in marks if STEPS.index(m.step) > STEPS.index(step) and m.event in ("began", "ended")]
        ends = [m.origin.time for m in later[:1] if m.origin.time is not None]
    if start is None or not ends or max(ends) < start:
        return None
    return max(ends) - start


def _by_rank(step: Step, own: list[StepMark]) -> dict[str, float]:
    ended = [m for m in own if m.event == "ended" and m.seconds is not None and m.origin.rank is not None]
    ranks = {str(m.origin.rank): m.seconds for m in ended if m.seconds is not None}
    return ranks if len(ranks) > 1 else {}


def _figures(case: Case, step: Step) -> Figures:
    """What a step's lines told, with units in the names; of several ranks the largest load, the smallest pool."""
    if step == "weight-load":
        return _named(
            weights_bytes=max((w.bytes for w in case.all(WeightsLoaded) if w.bytes), default=None),
            read_seconds=max((w.read_seconds for w in case.all(WeightsLoaded) if w.read_seconds), default=None),
            **_bar(case, step),
        )
    if step == "memory-profiling":
        kv = [m.kv_bytes for m in case.all(MemoryBreakdown) if m.kv_bytes is not None]
        compiled = [c.seconds for c in case.all(CompileTook) if c.what == "torch.compile"]
        return _named(kv_bytes=min(kv, default=None), compile_seconds=max(compiled, default=None))
    if step == "kv-pool":
        pools = [p for p in case.all(KvPool) if p.tokens is not None]
        room = min(case.all(Concurrency), key=lambda c: c.ratio, default=None)
        return _named(
            tokens=min((p.tokens for p in pools if p.tokens is not None), default=None),
            blocks=min((p.blocks for p in case.all(KvPool) if p.blocks), default=None),
            concurrency=room.ratio if room else None,
            context_tokens=room.context_tokens if room else None,
        )
    if step == "graph-capture":
        graphs = next((g for g in reversed(case.all(GraphsCaptured)) if not g.skipped), None)
        init = case.last(InitTook)
        return _named(
            graphs=graphs.count if graphs else None,
            graph_bytes=graphs.bytes if graphs else None,
            init_seconds=init.seconds if init else None,
            **({} if graphs and graphs.seconds is not None else _bar(case, step)),
        )
    if step == "http-server":
        where = case.last(ServerListening)
        return _named(address=where.address if where else None)
    return {}


def _bar(case: Case, step: Step) -> Figures:
    """How far a step's last progress bar is, its pace, and the seconds that it still expects."""
    bars = [p for p in case.all(Progress) if p.step == step and not p.what.startswith("download of ")]
    if not bars or bars[-1].done >= bars[-1].total:
        return {}
    last = bars[-1]
    pace = last.elapsed_seconds / last.done if last.elapsed_seconds and last.done else None
    left = last.left_seconds if last.left_seconds is not None else pace and pace * (last.total - last.done)
    return {"done": last.done, "total": last.total, "seconds_each": pace, "left_seconds": left}


def _named(**figures: float | str | None) -> Figures:
    return {name: value for name, value in figures.items() if value is not None}
