"""Slow stretches of a benchmark's timeline, each with the phase that took the time, by the server's and the client's figures."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from loadpath.core.facts.traffic import BenchTimeline, Stretch

Phase = Literal["client", "queue", "kv-cache", "prefill", "decode", "power", "network or HTTP", "not known"]
SLOW_FIRST, SLOW_GAP, STALL = 2.0, 1.5, 8.0
"""A stretch is slow where its TTFT or ITL is so many times the run's median, or one gap so many times the ITL."""
MOST_OF = 0.5
"""A phase explains a delay where it takes at least so much of it."""
SLOWED_BY = {
    0x4: "software power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
    0x80: "power brake",
}  # fmt: skip
"""Bits of NVML's clock event reasons that lower clocks under load."""


class Slow(msgspec.Struct, frozen=True):
    """A slow stretch: what was slow, in which phase, and by which figures."""

    stretch: Stretch
    figure: Literal["TTFT", "ITL"]
    times: float
    phase: Phase
    why: str


def slow_stretches(timeline: BenchTimeline) -> tuple[Slow, ...]:
    """In order of time; those of each level are held against their own level's median."""
    found: list[Slow] = []
    for level in sorted({stretch.level for stretch in timeline.stretches}):
        own = [stretch for stretch in timeline.stretches if stretch.level == level]
        first, gap = _usual([s.ttft for s in own]), _usual([s.itl for s in own])
        prompts = _usual([s.prompt_rate or None for s in own]) or 0.0
        for stretch in own:
            if gap and (times := _gap_times(stretch, gap)):
                phase, why = _of_gap(stretch, prompts, gap)
                found.append(Slow(stretch, "ITL", times, phase, why))
            elif first and stretch.ttft and stretch.ttft > SLOW_FIRST * first:
                phase, why = _of_first(stretch)
                found.append(Slow(stretch, "TTFT", stretch.ttft / first, phase, why))
    return tuple(sorted(found, key=lambda slow: slow.stretch.begin))


def _usual(values: Sequence[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return median(told) if len(told) >= 3 else None


def _gap_times(stretch: Stretch, gap: float) -> float:
    """How many times the usual gap this stretch's is; 0 where it is not slow."""
    if stretch.itl and stretch.itl > SLOW_GAP * gap:
        return stretch.itl / gap
    if stretch.itl_max and stretch.itl_max > STALL * gap and stretch.itl_max > 0.1:
        return stretch.itl_max / gap
    return 0.0


def _of_gap(stretch: Stretch, prompts: float, gap: float) -> tuple[Phase, str]:
    worst = stretch.itl_max or stretch.itl or 0.0
    if stretch.lag_max and stretch.lag_max > MOST_OF * (worst - gap):
        return "client", f"the client's own loop was {stretch.lag_max * 1e3:.3g} ms late"
    if stretch.preemptions:
        return "kv-cache", f"{stretch.preemptions:.0f} preemptions"
    if reason := slowed(stretch):
        return "power", reason
    if stretch.prompt_rate > 1.5 * prompts and stretch.first_tokens:
        return (
            "prefill",
            f"{stretch.first_tokens} prompts were computed in between ({stretch.prompt_rate:,.0f} prompt tokens/s)",
        )
    return (
        "decode",
        "no more prompts than usual, no preemption" if stretch.preemptions == 0 else "nothing else was seen",
    )


def _of_first(stretch: Stretch) -> tuple[Phase, str]:
    wanted = MOST_OF * (stretch.ttft or 0.0)
    if stretch.lag_max and stretch.lag_max > wanted:
        return "client", f"the client's own loop was {stretch.lag_max * 1e3:.3g} ms late"
    if stretch.queue_seconds and stretch.queue_seconds > wanted:
        return "queue", f"{stretch.queue_seconds * 1e3:.3g} ms in the server's queue on average"
    if stretch.prefill_seconds and stretch.prefill_seconds > wanted:
        return "prefill", f"{stretch.prefill_seconds * 1e3:.3g} ms of prefill on average"
    if stretch.server_ttft is not None and (stretch.ttft or 0.0) - stretch.server_ttft > wanted:
        return (
            "network or HTTP",
            f"the server counts {stretch.server_ttft * 1e3:.3g} ms to the first token, the client {(stretch.ttft or 0) * 1e3:.3g}",
        )
    if stretch.waiting:
        return "queue", f"{stretch.waiting:.0f} requests waited"
    return "not known", "the server's metrics do not tell" if stretch.waiting is None else "nothing waited"


def slowed(stretch: Stretch) -> str:
    """What lowered the card's clocks; "" for nothing."""
    bits = stretch.throttle or 0
    return ", ".join(name for bit, name in SLOWED_BY.items() if bits & bit)
