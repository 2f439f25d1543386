"""A second look at a small paste in which nothing was found: as if its lines had been cut at a terminal's edge."""

from __future__ import annotations

from collections.abc import Callable

from loadpath.core.report import Report
from loadpath.core.sample import MARK
from loadpath.core.text import Line
from loadpath.intake.wrapped import joined_at_widest
from loadpath.knowledge.tables import findings

MOST_LINES = 400  # a longer paste shows its wrap by itself (`intake.wrapped`)
VAGUE = 30  # rows below this depth say little: somewhere something failed

Named = list[tuple[str, list[Line]]]


def second_look(first: Report, named: Named, read: Callable[[Named], Report]) -> Report:
    """The report on the lines joined at their greatest width, where `first` says little and that one says more."""
    if _depth(first) >= VAGUE or first.verdict.state in ("healthy", "starting") or _long(named):
        return first
    for glue in ("", " "):
        joined = [(name, lines if _whole(lines) else joined_at_widest(lines, glue)) for name, lines in named]
        if joined == named:
            return first
        again = read(joined)
        if _depth(again) > max(VAGUE, _depth(first)):
            return again
    return first


def _whole(lines: list[Line]) -> bool:
    """Whether a program of ours wrote the lines: no terminal cut them."""
    return any(line.raw.startswith(MARK) for line in lines)


def _depth(report: Report) -> int:
    row = findings().get(report.root_cause or "")
    if row is None:
        return -1
    return 0 if row.id == "unrecognised-exception" or row.consequence else row.depth


def _long(named: Named) -> bool:
    return sum(len(lines) for _, lines in named) > MOST_LINES
