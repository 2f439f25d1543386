"""Recorded timelines: how long a GPU had no work, and what it waited for: launches, the host's own work, waits, allocations."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.profile import SMALL_GAP, ApiTime, GpuTimeline, LaunchCost, LongGap, TimelineRead
from loadpath.core.report import Finding
from loadpath.core.units import show_time
from loadpath.diagnosis.profile.words import (
    beside,
    graph_remedies,
    kernels_of,
    look_inside,
    of_span,
    percent,
    uses_graphs,
)
from loadpath.diagnosis.rule import Rule, finding

IDLE, BUSY = 0.2, 0.1
"""Shares of the recorded time without work: from the first on it is a fault, up to the second the GPU counts as busy."""
PART = 0.1
"""A cause of gaps is told from this share of the recorded time on."""
FEW = 30
"""Pieces of work: fewer have no pace that could be judged."""
SKEWED = 0.02
"""Share of kernels that begin before their call, from which on the clocks are not believed."""
PAUSE = 0.5
"""Seconds: so long a gap is a pause of the whole program (start, no requests), not the pace of its steps."""


def judge(case: Case) -> Iterator[Finding]:
    for timeline in sorted(case.all(GpuTimeline), key=lambda t: -t.idle_share):
        if timeline.span_seconds <= 0:
            continue
        if (work := timeline.kernels + timeline.graph_launches) < FEW:
            yield finding("profile-short", [timeline], case=case, values=_values(timeline) | {"work": f"{work:,}"})
            continue
        yield from _paused(case, timeline)
        if timeline.idle_share <= BUSY:
            yield _busy(case, timeline)
        elif timeline.idle_share >= IDLE and not _is_pause(timeline):
            yield _idle(case, timeline)
        if not _is_pause(timeline):
            yield from _causes(case, timeline)


def empty(case: Case) -> Iterator[Finding]:
    """A timeline in which no GPU did anything."""
    for read in case.all(TimelineRead):
        if not read.gpus:
            tool = {"nsys": "Nsight Systems", "torch": "The torch profiler"}[read.tool]
            values = {"tool": tool, "events": f"{read.cpu_events:,}" if read.cpu_events else None}
            yield finding("profile-no-gpu-work", [read], case=case, values=values)


def _is_pause(timeline: GpuTimeline) -> bool:
    """Whether one long pause makes up most of the idle time: shares of the whole then say little."""
    return timeline.longest_gap_seconds > PAUSE and 2 * timeline.longest_gap_seconds > timeline.idle_seconds


def _longest(case: Case, timeline: GpuTimeline) -> list[LongGap]:
    own = [gap for gap in case.all(LongGap) if gap.gpu == timeline.gpu and beside(timeline, gap)]
    return sorted(own, key=lambda gap: -gap.seconds)


def _values(timeline: GpuTimeline) -> dict[str, object]:
    return {
        "gpu": f"GPU {timeline.gpu}",
        "span": show_time(timeline.span_seconds),
        "idle": percent(timeline.idle_share),
        "busy": percent(1 - timeline.idle_share),
        "gaps": f"{timeline.gaps:,}",
    }


def _figures(timeline: GpuTimeline) -> dict[str, object]:
    return {
        "gpu": timeline.gpu, "span_seconds": timeline.span_seconds, "busy_seconds": timeline.busy_seconds,
        "idle_share": round(timeline.idle_share, 4), "gap_seconds": timeline.gap_seconds,
    }  # fmt: skip


def _paused(case: Case, timeline: GpuTimeline) -> Iterator[Finding]:
    if not _is_pause(timeline):
        return
    gap = next(iter(_longest(case, timeline)), None)
    if gap is None:
        return
    after = gap.at_seconds + gap.seconds
    values = _values(timeline) | {
        "pause": show_time(gap.seconds), "at": f"{gap.at_seconds:.3f}", "after": f"{after:.3f}",
        "rest": percent((timeline.idle_seconds - gap.seconds) / max(timeline.span_seconds - gap.seconds, 1e-9)),
    }  # fmt: skip
    yield finding("profile-pause", [timeline, gap], case=case, values=values, figures=_figures(timeline))


def _busy(case: Case, timeline: GpuTimeline) -> Finding:
    top = next(iter(kernels_of(timeline, case)), None)
    whole = timeline.graph_launches and top is not None and top.name.startswith("(CUDA graph")
    checks = [look_inside(top.name)] if top is not None and not whole else None
    shown: list[Fact] = [timeline, *([top] if top else [])]
    return finding(
        "profile-gpu-busy", shown, case=case, values=_values(timeline), next_checks=checks, figures=_figures(timeline)
    )


_SAID = {
    "host": "{} the host launched the next work late",
    "sync": "{} the host waited for the GPU and launched only then",
    "allocation": "{} the host allocated or freed memory",
    "queued": "{} the next work was queued and waited on the GPU's side",
    "unknown": "{} the launch was not recorded",
}


WAITS = "Queued work waits for events of other streams, for copies, or for other ranks."


def _idle(case: Case, timeline: GpuTimeline) -> Finding:
    parts = sorted(timeline.gap_seconds.items(), key=lambda item: -item[1])
    told = [_SAID[cause].format(percent(spent / timeline.span_seconds)) for cause, spent in parts if spent > 0]
    values = _values(timeline) | {
        "parts": "; ".join(told), "longest": show_time(timeline.longest_gap_seconds), "apart": _apart(case, timeline),
        "waits": WAITS if of_span(timeline, "queued") >= PART else None,
    }  # fmt: skip
    facts = [timeline, *_longest(case, timeline)[:3]]
    return finding("profile-gpu-idle", facts, case=case, values=values, figures=_figures(timeline))


def _causes(case: Case, timeline: GpuTimeline) -> Iterator[Finding]:
    """What the gaps waited for; only likely where the clocks of host and GPU disagree."""
    for made in _told_causes(case, timeline):
        if apart := _apart(case, timeline):
            yield msgspec.structs.replace(made, certainty="likely", cause=f"{made.cause} {apart}")
        else:
            yield made


def _apart(case: Case, timeline: GpuTimeline) -> str:
    """A sentence on clocks that are apart; "" where they agree."""
    cost = _cost(case, timeline)
    if cost is None or cost.early < SKEWED * cost.launches:
        return ""
    early = f"{cost.early:,} of {cost.launches:,} kernels begin before their launch call does"
    return f"{early}: the recorded clocks of host and GPU are apart."


def _cost(case: Case, timeline: GpuTimeline) -> LaunchCost | None:
    return next((c for c in case.all(LaunchCost) if c.gpu == timeline.gpu and beside(timeline, c)), None)


def _told_causes(case: Case, timeline: GpuTimeline) -> Iterator[Finding]:
    small = timeline.small_gap_seconds / timeline.span_seconds
    cost = _cost(case, timeline)
    launch_bound = small >= PART and cost is not None and not uses_graphs(timeline)
    if launch_bound and cost is not None:
        yield _launch_bound(case, timeline, cost, small)
    if of_span(timeline, "sync") >= PART:
        yield _synced(case, timeline)
    if of_span(timeline, "allocation") >= PART / 2:
        yield _allocated(case, timeline)
    rest = of_span(timeline, "host") - (small if launch_bound else 0.0)
    if rest >= PART:
        yield _host_bound(case, timeline, rest)


def _launch_bound(case: Case, timeline: GpuTimeline, cost: LaunchCost, small: float) -> Finding:
    values = _values(timeline) | {
        "small": percent(small), "count": f"{timeline.small_gaps:,}", "most": show_time(SMALL_GAP),
        "kernel": show_time(cost.kernel_seconds), "call": show_time(cost.call_seconds), "launches": f"{cost.launches:,}",
        "outrun": percent(cost.outrun / cost.launches),
    }  # fmt: skip
    effect = f"at most {percent(small)} of the recorded time; less without the profiler, which slows every launch"
    return finding(
        "profile-launch-bound", [timeline, cost], case=case, values=values, remedies=graph_remedies(case, effect),
        figures=_figures(timeline) | {"small_gap_seconds": timeline.small_gap_seconds},
    )  # fmt: skip


def _calls(case: Case, timeline: GpuTimeline, role: str) -> list[ApiTime]:
    own = (c for c in case.all(ApiTime) if c.role == role and beside(timeline, c))
    return sorted(own, key=lambda c: -c.seconds)


def _synced(case: Case, timeline: GpuTimeline) -> Finding:
    calls = _calls(case, timeline, "sync")[:2]
    values = _values(timeline) | {
        "share": percent(of_span(timeline, "sync")), "spent": show_time(timeline.gap_seconds["sync"]),
        "calls": " and ".join(f"{c.count:,} calls of {c.name}" for c in calls) or None,
    }  # fmt: skip
    gaps = [gap for gap in _longest(case, timeline) if gap.cause == "sync"][:2]
    return finding(
        "profile-sync-drain", [timeline, *calls, *gaps], case=case, values=values, figures=_figures(timeline)
    )


def _allocated(case: Case, timeline: GpuTimeline) -> Finding:
    calls = _calls(case, timeline, "allocation")[:3]
    values = _values(timeline) | {
        "share": percent(of_span(timeline, "allocation")),
        "calls": ", ".join(f"{c.count:,} x {c.name} ({show_time(c.seconds)})" for c in calls) or None,
    }
    return finding(
        "profile-allocation-stalls", [timeline, *calls], case=case, values=values, figures=_figures(timeline)
    )


def _host_bound(case: Case, timeline: GpuTimeline, share: float) -> Finding:
    gaps = [gap for gap in _longest(case, timeline) if gap.cause == "host"][:3]
    around = f"before {gaps[0].after}" if gaps else None
    values = _values(timeline) | {"share": percent(share), "around": around}
    return finding("profile-host-bound", [timeline, *gaps], case=case, values=values, figures=_figures(timeline))


RULES = (
    Rule(judge, needs=(GpuTimeline,), makes=(
        "profile-pause", "profile-gpu-busy", "profile-gpu-idle", "profile-launch-bound", "profile-sync-drain",
        "profile-allocation-stalls", "profile-host-bound", "profile-short",
    ), uses=(LongGap, ApiTime, LaunchCost)),
    Rule(empty, needs=(TimelineRead,), makes=("profile-no-gpu-work",)),
)  # fmt: skip
