"""Target and drafter print the same lines, and a sliding-window model prints one KV line a pool: which is which.

The order is fixed: the target's weights, the drafter's weights, the target's pools, the drafter's pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KvPool, ServingStats, StepMark, Stopped, WeightsLoaded
from loadpath.core.facts.placement import FreeMemory, SidePool
from loadpath.engines.line_table import seconds_between


def name_passes(facts: Sequence[Fact]) -> list[Fact]:
    """`facts` with the drafter's weights and pools named `draft`, and unprinted durations taken from the clock."""
    loads: dict[int | None, int] = {}
    pools: dict[int | None, int] = {}
    out: list[Fact] = []
    stopped = False
    for fact in facts:
        rank = fact.origin.rank
        stopped = stopped or isinstance(fact, Stopped)
        if isinstance(fact, StepMark) and _repeated(fact, loads.get(rank, 0), stopped):
            continue
        if isinstance(fact, StepMark) and fact.step == "weight-load" and fact.event == "began":
            loads[rank] = loads.get(rank, 0) + 1
        if isinstance(fact, StepMark) and fact.step == "kv-pool" and fact.event == "ended":
            pools[rank] = pools.get(rank, 0) + 1
        later_load = loads.get(rank, 0) > 1
        # Without a drafter a second pass is none: some versions rebuild the pool.
        later_pool = later_load and pools.get(rank, 0) >= 1
        if later_load and isinstance(fact, StepMark | WeightsLoaded | FreeMemory) and _about_weights(fact):
            fact = msgspec.structs.replace(fact, what="draft")
        if later_pool and isinstance(fact, KvPool) and fact.bytes is not None:
            fact = _side(fact, "draft")
        out.append(_timed(fact, out))
    return _window_parts(out)


def with_serving(facts: Sequence[Fact]) -> list[Fact]:
    """In a log whose start was cut off, the first batch line tells that the server was serving."""
    first = next((i for i, fact in enumerate(facts) if isinstance(fact, ServingStats)), None)
    if first is None or any(isinstance(fact, StepMark) and fact.step in ("http-server", "warm-up") for fact in facts):
        return list(facts)
    stats = facts[first]
    mark = StepMark(span=stats.span, origin=stats.origin, text=stats.text, run=stats.run, step="serving", event="began")
    return [*facts[:first], mark, *facts[first:]]


def _side(pool: KvPool, what: str) -> SidePool:
    common = {"span": pool.span, "origin": pool.origin, "text": pool.text, "run": pool.run, "rank": pool.rank}
    return SidePool(**common, what=what, tokens=pool.tokens, bytes=pool.bytes, dtype=pool.dtype)  # type: ignore[arg-type]


def _window_parts(facts: list[Fact]) -> list[Fact]:
    """Where both parts of a window model's cache are summed up in a line of their own, the parts are side pools."""
    sums = [fact for fact in facts if isinstance(fact, KvPool) and "SWAKVPool" in fact.text]
    if not sums:
        return facts
    out: list[Fact] = []
    for fact in facts:
        if isinstance(fact, KvPool) and fact.bytes is not None and fact not in sums:
            total = next((s for s in sums if s.origin.rank == fact.origin.rank), sums[0])
            fact = _side(fact, "full" if fact.tokens == total.tokens else "sliding")
        out.append(fact)
    return out


def _repeated(mark: StepMark, loads: int, stopped: bool) -> bool:
    """The drafter goes through distributed init again; processes are killed after failures as well as after stops."""
    if mark.step in ("process-start", "device-enumeration", "context-creation"):
        return loads > 0
    return mark.step == "shutdown" and mark.event == "ended" and not stopped


def _about_weights(fact: StepMark | WeightsLoaded | FreeMemory) -> bool:
    if isinstance(fact, StepMark):
        return fact.step == "weight-load"
    return isinstance(fact, WeightsLoaded) or fact.when in ("before-weights", "after-weights")


def _timed(fact: Fact, before: Sequence[Fact]) -> Fact:
    """A step's end with its duration by the clock, where the line does not print one (before 0.5.9)."""
    if not isinstance(fact, StepMark) or fact.event != "ended" or fact.seconds is not None:
        return fact
    began = next(
        (f for f in reversed(before) if isinstance(f, StepMark) and f.step == fact.step and f.event == "began"
         and f.origin.rank == fact.origin.rank), None)  # fmt: skip
    seconds = seconds_between(began, fact) if began else None
    return fact if seconds is None else msgspec.structs.replace(fact, seconds=seconds)
