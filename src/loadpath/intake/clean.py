"""Bytes → lines: decoded, stripped of terminal codes and prefixes, each with its number in the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from loadpath.core.text import NO_ORIGIN, Line, Origin
from loadpath.intake import prose
from loadpath.intake.decode import decode
from loadpath.intake.markup import unescaped, unquoted
from loadpath.intake.prefixes.learned import learn
from loadpath.intake.prefixes.strip import strip
from loadpath.intake.samples import parts
from loadpath.intake.terminal import BAR, shown
from loadpath.intake.wrapped import rejoined

LONGEST = 200_000
"""Characters of one line that are kept: from its beginning and its end. Single lines of 185,000 have been seen."""


class Piece(msgspec.Struct, frozen=True):
    """One visual line: its number, its text without codes and quotes, and its width with blanks at its end."""

    number: int
    raw: str
    width: int


def clean(data: bytes) -> list[Line]:
    """The lines of a source. Empty lines stay, because numbers count them."""
    physical = decode(data).split("\n")
    if physical[-1] == "":
        physical.pop()  # what follows the last line end is no line
    return clean_numbered(enumerate(physical, 1))


def clean_numbered(physical: Iterable[tuple[int, str]]) -> list[Line]:
    """The same for lines that were picked out of a source, each with its number."""
    lines: list[Line] = []
    for is_sample, own in parts(physical):
        lines += _sample(own) if is_sample else _pasted(own)
    return lines


def _sample(physical: list[tuple[int, str]]) -> list[Line]:
    """The lines of a sample: a program wrote it, so its lines are whole and nobody speaks in between."""
    (number, header), *data = physical
    lines = [Line(number, header, header)]
    pieces = [piece for number, line in data for piece in _pieces(number, line)]
    carriers = learn([piece.raw for piece in pieces])
    for piece in pieces:
        text, origin, _ = strip(piece.raw, carriers)
        lines += _lines_of(piece, text, origin)
    return lines


def _pasted(physical: list[tuple[int, str]]) -> list[Line]:
    pieces = _dedented([piece for number, line in physical for piece in _pieces(number, line)])
    carriers = learn([unquoted(piece.raw) for piece in pieces])
    lines: list[Line] = []
    widths: list[int] = []
    goes_on = False
    for piece in pieces:
        text, origin, more = strip(unquoted(piece.raw), carriers)
        if more:
            text += " " * (piece.width - len(piece.raw))
        for line in _lines_of(piece, text, origin):
            if goes_on and lines and len(lines[-1].text) < LONGEST:
                # A container runtime cut a long line into parts (CRI's `P`).
                held = lines[-1]
                lines[-1] = Line(held.number, held.text + line.text, held.raw, held.origin, line.number)
            elif lines and _prefix_of(lines[-1], line):
                lines[-1] = msgspec.structs.replace(line, origin=lines[-1].origin)
                widths[-1] = piece.width
            else:
                lines.append(line)
                widths.append(piece.width)
        goes_on = more
    return prose.mark(rejoined(lines, widths))


def _lines_of(piece: Piece, text: str, origin: Origin) -> list[Line]:
    """The lines of one piece: one, but for a JSON record whose words hold line ends."""
    if "\n" not in text:
        return [Line(piece.number, text, piece.raw, origin)]
    lines = []
    for words in text.split("\n"):
        inner, own, _ = strip(words)
        told = {name: value for name in own.__struct_fields__ if (value := getattr(own, name)) is not None}
        lines.append(Line(piece.number, inner, piece.raw, msgspec.structs.replace(origin, **told) if told else origin))
    return lines


def _pieces(number: int, line: str) -> Iterator[Piece]:
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} […] {line[-LONGEST // 2 :]}"
    whole = line.rstrip("\r")
    for raw in shown(line):
        width = len(whole) if whole.startswith(raw) else len(raw)
        plain = unescaped(raw)
        yield Piece(number, plain, width - len(raw) + len(plain))


def _dedented(pieces: list[Piece]) -> list[Piece]:
    """Without an indentation that all lines share: an indented quote, a block of YAML, a list item."""
    common = min((len(p.raw) - len(p.raw.lstrip(" ")) for p in pieces if p.raw.strip()), default=0)
    if not common:
        return pieces
    return [msgspec.structs.replace(p, raw=p.raw[common:]) for p in pieces]


def _prefix_of(before: Line, line: Line) -> bool:
    """Did a progress bar's line feed or return part it from its process prefix?"""
    return (
        not before.text
        and before.origin.pid is not None
        and line.origin is NO_ORIGIN
        and line.number - before.number <= 1
        and BAR.search(line.text) is not None
    )
