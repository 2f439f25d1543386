"""Bytes → lines: decoded, stripped of terminal codes and prefixes, each with its number in the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loadpath.core.text import Line
from loadpath.intake.decode import decode
from loadpath.intake.markup import unescaped, unquoted
from loadpath.intake.prefixes.strip import strip
from loadpath.intake.terminal import shown

LONGEST = 200_000
"""Characters of one line that are kept: from its beginning and its end. Single lines of 185,000 have been seen."""


def clean(data: bytes) -> list[Line]:
    """The lines of a source. Line ends are those of any system; empty lines stay, because numbers count them."""
    return clean_numbered(enumerate(decode(data).split("\n"), 1))


def clean_numbered(physical: Iterable[tuple[int, str]]) -> list[Line]:
    """The same for lines that were picked out of a source, each with its number."""
    return list(_joined_parts(_pieces(physical)))


def _pieces(physical: Iterable[tuple[int, str]]) -> Iterator[tuple[Line, bool]]:
    for number, line in physical:
        if len(line) > LONGEST:
            line = f"{line[: LONGEST // 2]} […] {line[-LONGEST // 2 :]}"
        for piece in shown(line):
            raw = unescaped(piece)
            text, origin, goes_on = strip(unquoted(raw))
            if "\n" in text:
                for words in text.split("\n"):
                    inner, _, _ = strip(words)
                    yield Line(number, inner, raw, origin), False
            else:
                yield Line(number, text, raw, origin), goes_on


def _joined_parts(pieces: Iterable[tuple[Line, bool]]) -> Iterator[Line]:
    """Joins what a container runtime cut because the line was long (CRI's `P` lines)."""
    held: Line | None = None
    for line, goes_on in pieces:
        if held is not None:
            line = Line(held.number, held.text + line.text, held.raw, held.origin, line.end)
        if goes_on and len(line.text) < LONGEST:
            held = line
            continue
        held = None
        yield line
    if held is not None:
        yield held
