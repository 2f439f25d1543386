"""Known error texts: each line that matches a row of the findings tables becomes a Symptom.

Which rows can match at all is found by looking for their literals in the whole text first, so rows that
are not there cost one substring search.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.errors import Symptom
from loadpath.core.text import Capture, Line
from loadpath.knowledge.tables import Match, findings

WINDOW = 4000  # a pattern looks at so many characters from around its literal in very long lines


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.MULTILINE)


def read(capture: Capture) -> Iterator[Symptom]:
    lines = [line for line in capture.lines if not line.prose and line.text]
    lowered = [line.text.lower() for line in lines]
    whole = "\n".join(lowered)
    quiet: set[int] = set()
    # Rows of harmless texts come first: what they claim shows no other finding.
    for row in sorted(findings().values(), key=lambda row: not row.harmless):
        for index, match in enumerate(row.match):
            if match.engine and not capture.kind.startswith(match.engine):
                continue
            if match.literals and not any(literal in whole for literal in match.literals):
                continue
            for line, hit in _hits(match, lines, lowered):
                if row.harmless:
                    quiet.update(_record(lines, line))
                elif line.number in quiet:
                    continue
                groups = {name: value for name, value in hit.groupdict().items() if value is not None}
                yield Symptom(**at(capture, line), finding=row.id, match=index, groups=groups)


def _record(lines: list[Line], first: Line) -> Iterator[int]:
    """The numbers of the lines of one log record: those after `first` with the same header."""
    header = (first.origin.time, first.origin.location, first.origin.process)
    yield first.number
    if first.origin.location is None:
        return
    for line in lines[bisect_right(lines, first.number, key=lambda line: line.number) :]:
        if (line.origin.time, line.origin.location, line.origin.process) != header:
            return
        yield line.number


def _hits(match: Match, lines: list[Line], lowered: list[str]) -> Iterable[tuple[Line, re.Match[str]]]:
    pattern = _compiled(match.regex)
    for line, low in zip(lines, lowered, strict=True):
        place = min((p for p in (low.find(literal) for literal in match.literals) if p >= 0), default=-1)
        if match.literals and place < 0:
            continue
        text = line.text
        if len(text) > 2 * WINDOW:
            text = text[max(0, place - WINDOW) : place + WINDOW]
        if hit := pattern.search(text):
            yield line, hit
