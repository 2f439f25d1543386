"""Text as loadpath sees it: lines that remember where they stood and who printed them.

Intake makes these from bytes; readers turn them into facts. Nothing here interprets a line.
"""

from __future__ import annotations

import msgspec


class Span(msgspec.Struct, frozen=True):
    """Where something was read: a source's name and its first and last line (1-based, inclusive)."""

    source: str
    first_line: int
    last_line: int

    def __str__(self) -> str:
        if self.first_line == self.last_line:
            return f"{self.source}:{self.first_line}"
        return f"{self.source}:{self.first_line}-{self.last_line}"


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the prefixes of a line said about who printed it and when; None where they did not.

    `time` is in seconds since 1 January 00:00 of its own (leap) year, because many logs print no
    year: subtract two of them for a duration, compare them across captures of one incident.
    `uptime` is in seconds since boot (kernel logs) or process start, where that is what was printed.
    `process` is the name as printed (`EngineCore_DP0`, `Worker_TP1`, `APIServer`), `rank` the rank
    that a prefix names, `repeats` what Ray folded (`[repeated 3x across cluster]`).
    """

    time: float | None = None
    year: int | None = None
    uptime: float | None = None
    level: str | None = None
    location: str | None = None
    process: str | None = None
    pid: int | None = None
    rank: int | None = None
    host: str | None = None
    container: str | None = None
    pod: str | None = None
    ip: str | None = None
    stream: str | None = None
    repeats: int | None = None


NO_ORIGIN = Origin()


class Line(msgspec.Struct, frozen=True):
    """One logical line.

    `text` is what the program said: clean, without transport prefixes and record headers, trailing
    blanks removed. `raw` is the clean line as pasted, for evidence. `number` is its line in the
    source; a message that was wrapped over several lines spans `number`..`last_number`.
    `prose` marks a person's own words around the output (readers do not look for errors there).
    """

    number: int
    text: str
    raw: str
    origin: Origin = NO_ORIGIN
    last_number: int = 0
    prose: bool = False

    @property
    def end(self) -> int:
        return self.last_number or self.number


class Capture(msgspec.Struct, frozen=True):
    """Lines of one kind from one source, in order. `run` counts the starts of a server in a source from 1."""

    kind: str
    source: str
    lines: tuple[Line, ...]
    run: int = 1

    @property
    def first_line(self) -> int:
        return self.lines[0].number if self.lines else 0

    @property
    def last_line(self) -> int:
        return self.lines[-1].end if self.lines else 0

    def span(self, first: Line | None = None, last: Line | None = None) -> Span:
        """The span of one line, of `first`..`last`, or (without arguments) of the whole capture."""
        if first is None:
            return Span(self.source, self.first_line, self.last_line)
        return Span(self.source, first.number, (last or first).end)

    @property
    def text(self) -> str:
        """All lines' `text`, joined by line feeds."""
        return "\n".join(line.text for line in self.lines)
