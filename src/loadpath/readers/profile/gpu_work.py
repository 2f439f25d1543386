"""A recorded timeline as profilers of any make tell it, and the arithmetic on its intervals. Times in whole nanoseconds."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from loadpath.core.facts.profile import Profiler

Interval = tuple[int, int]
Numbers = Any
"""An `array` of whole nanoseconds (msgspec knows no such type)."""


class View(msgspec.Struct, frozen=True):
    """The part of a timeline that is asked for: `begin` and `end` in seconds from its first GPU work; one `gpu`."""

    begin: float = 0.0
    end: float | None = None
    gpu: int | None = None

    def bounds(self, first: int) -> Interval | None:
        """Begin and end in the recording's own time, where its first work began at `first`; None: all of it."""
        if not self.words:
            return None
        end = 1 << 62 if self.end is None else first + round(self.end * 1e9)
        return first + round(self.begin * 1e9), end

    @property
    def words(self) -> str:
        if not self.begin and self.end is None:
            return ""
        return f"{self.begin:g}-{'' if self.end is None else f'{self.end:g}'} s"


WHOLE = View()


class Kernel(NamedTuple):
    """A kernel's run, or (`graph` 2) a whole graph's; `graph` 1: a kernel that a graph launched."""

    start: int
    end: int
    name: str
    call: int
    stream: int
    graph: int = 0
    shape: tuple[int, int, int] = (0, 0, 0)


class Copy(NamedTuple):
    """A copy (or with direction `set` a memory set) on a GPU."""

    start: int
    end: int
    direction: str
    memory: str
    bytes: int
    call: int


class Board(msgspec.Struct):
    """What the recording says of a GPU."""

    name: str = ""
    capability: str = ""


class Trace(msgspec.Struct):
    """Everything recorded. `calls`: by the number that ties a call to its work: start and end; `graph_calls`: those of
    them that launch graphs; `spans`: calls that hold
    up the host, by role; `timed`: starts and durations of all calls by name."""

    tool: Profiler
    version: str = ""
    kernels: dict[int, list[Kernel]] = {}
    copies: dict[int, list[Copy]] = {}
    boards: dict[int, Board] = {}
    calls: dict[int, Interval] = {}
    graph_calls: set[int] = set()
    spans: dict[str, list[tuple[int, int, str]]] = {}
    timed: dict[str, tuple[Numbers, Numbers]] = {}
    cpu_events: int = 0
    notes: list[str] = []

    def call(self, start: int, end: int, name: str, role: str, number: int) -> None:
        """A call of the CUDA API."""
        if number:
            self.calls[number] = (start, end)
            if role == "graph-launch":
                self.graph_calls.add(number)
        if role in ("sync", "allocation"):
            self.spans.setdefault(role, []).append((start, end, name))
        held = self.timed.get(name)
        if held is None:
            held = self.timed[name] = (array("q"), array("q"))
        held[0].append(start)
        held[1].append(end - start)

    def of_graph(self, kernel: Kernel) -> bool:
        """Whether a graph launched this kernel: by its own mark, or by the call that is tied to it."""
        return kernel.graph == 1 or (kernel.graph == 0 and kernel.call in self.graph_calls)

    @property
    def gpus(self) -> list[int]:
        return sorted({*self.kernels, *self.copies})

    @property
    def first(self) -> int:
        """When the first work of any GPU began."""
        works = [work.start for own in (self.kernels, self.copies) for held in own.values() for work in held]
        return min(works, default=0)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorted intervals that do not touch, of intervals in the order of their starts."""
    merged: list[Interval] = []
    begin = end = -1
    for start, stop in intervals:
        if end < 0:
            begin, end = start, stop
        elif start <= end:
            end = max(end, stop)
        else:
            merged.append((begin, end))
            begin, end = start, stop
    if end >= 0:
        merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


class Cover:
    """How much of an interval a union covers, in logarithmic time."""

    def __init__(self, merged: list[Interval]) -> None:
        self._starts = [start for start, _ in merged]
        self._merged = merged
        self._before = [0]
        for start, end in merged:
            self._before.append(self._before[-1] + end - start)

    def until(self, time: int) -> int:
        """Covered time before `time`."""
        place = bisect_right(self._starts, time)
        if not place:
            return 0
        start, end = self._merged[place - 1]
        return self._before[place - 1] + min(time, end) - start

    def within(self, start: int, end: int) -> int:
        return self.until(end) - self.until(start)

    def holds(self, time: int) -> bool:
        """Whether `time` lies inside (its end excluded)."""
        place = bisect_right(self._starts, time)
        return bool(place) and time < self._merged[place - 1][1]


def gaps(merged: list[Interval]) -> Iterator[Interval]:
    for (_, end), (start, _) in pairwise(merged):
        yield end, start


def median(values: Iterable[int]) -> float:
    ordered = sorted(values)
    return float(ordered[len(ordered) // 2]) if ordered else 0.0
