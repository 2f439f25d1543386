"""How the engines' readers are written: a table of lines, each with a literal, a pattern and what it states.

A line is tried against a pattern only where it contains the literal, so lines that say nothing cost a few
substring searches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import RequestServed, ServingStats
from loadpath.core.text import Capture, Line

LONGEST = 20_000  # characters of a line that are looked at: SGLang's server_args is one line of 14,000


class Seen(msgspec.Struct, frozen=True):
    """One line that matched: the capture, the line, the match, and `fields`, the common fields of its facts."""

    capture: Capture
    line: Line
    match: re.Match[str]

    @property
    def fields(self) -> dict[str, Any]:
        return at(self.capture, self.line)  # type: ignore[no-any-return]

    @property
    def rank(self) -> int | None:
        return self.line.origin.rank

    def text(self, name: str) -> str | None:
        return self.match.groupdict().get(name)

    def number(self, name: str) -> float | None:
        found = self.text(name)
        return float(found.replace(",", "")) if found else None

    def whole(self, name: str) -> int | None:
        found = self.number(name)
        return None if found is None else round(found)


class Row(msgspec.Struct, frozen=True):
    """`literal` is in every line that `pattern` (searched) matches; `make` turns the match into facts."""

    literal: str
    pattern: str
    make: Callable[[Seen], Iterable[Fact]]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def read_table(capture: Capture, rows: Sequence[Row]) -> Iterator[Fact]:
    """The facts that the lines of `capture` state, by `rows`, in order. Several rows may read one line."""
    for line in capture.lines:
        if line.prose or not line.text:
            continue
        text = line.text[:LONGEST]
        for row in rows:
            if row.literal in text and (match := _compiled(row.pattern).search(text)):
                yield from row.make(Seen(capture, line, match))


def seconds_between(first: Line | Fact, last: Line | Fact) -> float | None:
    """The time between two lines or facts, by their own clocks (wall, else since the start); None where unknown."""
    a, b = first.origin, last.origin
    if a.time is not None and b.time is not None:
        return round(b.time - a.time, 3)
    if a.uptime is not None and b.uptime is not None:
        return round(b.uptime - a.uptime, 3)
    return None


def thinned(facts: Sequence[Fact]) -> Iterator[Fact]:
    """`facts` without the bulk of the periodic ones: of the statistics the first, the last, and those with the fullest
    cache and the longest queue; of the requests the first, the last, and each with a status of 400 or more."""
    stats = [fact for fact in facts if isinstance(fact, ServingStats)]
    requests = [fact for fact in facts if isinstance(fact, RequestServed)]
    kept: set[int] = set()
    if stats:
        fullest = max(stats, key=lambda fact: fact.kv_usage or 0)
        queue = max(stats, key=lambda fact: fact.waiting or 0)
        kept |= {id(fact) for fact in (stats[0], stats[-1], fullest, queue)}
    if requests:
        kept |= {id(fact) for fact in (requests[0], requests[-1], *(r for r in requests if r.status >= 400))}
    yield from (fact for fact in facts if not isinstance(fact, ServingStats | RequestServed) or id(fact) in kept)
