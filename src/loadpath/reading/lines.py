"""A source → its lines: all of them where it is small, those that may matter where it is big."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from loadpath.core.report import Skipped
from loadpath.core.text import Line
from loadpath.intake.clean import clean, clean_numbered
from loadpath.intake.sources import Source, sources
from loadpath.readers.profile.gpu_work import WHOLE, View
from loadpath.reading.digest import digest_of, is_digested, is_table, table_lines

SMALL = 1 << 20
"""Bytes up to which every line is read; above, a source is sifted first (`intake.sieve`)."""

ENOUGH = 64 << 10
"""Bytes from the beginning that tell what a source is."""


def named_lines(
    arguments: Iterable[str], skipped: list[Skipped], view: View = WHOLE
) -> Iterator[tuple[str, list[Line]]]:
    """Every source that the arguments name, with its lines; what was passed over goes to `skipped`.

    `view`: the part that is looked at of timelines that profilers recorded.
    Raises `intake.sources.Unreadable` (an OSError) for an argument that cannot be read.
    """
    for item in sources(tuple(arguments)):
        if isinstance(item, Skipped):
            skipped.append(item)
        else:
            lines, notes = lines_of(item, view)
            skipped += notes
            yield item.name, lines


def lines_of_bytes(name: str, data: bytes, skipped: list[Skipped]) -> list[Line]:
    """The lines of a named byte string, as those of a file with the same bytes; what was not read goes to `skipped`."""
    if len(data) <= SMALL and not is_digested(name, data):
        return clean(data)
    lines, notes = lines_of(Source(name, io.BytesIO(data), skipped))
    skipped += notes
    return lines


def lines_of(source: Source, view: View = WHOLE) -> tuple[list[Line], tuple[Skipped, ...]]:
    """The lines of one source, and what of it was not read."""
    chunks = source.chunks()
    head = b""
    while len(head) < ENOUGH and (chunk := next(chunks, b"")):
        head += chunk
    if is_digested(source.name, head):
        return digest_of(source, head, _chained(head, chunks), view)
    while len(head) <= SMALL:
        if not (chunk := next(chunks, b"")):
            return clean(head), ()
        head += chunk
    if is_table(head):
        return table_lines(_chained(head, chunks)), ()
    from loadpath.intake.sieve import Sieve, as_utf8
    from loadpath.reading.signs import signs

    sieve = Sieve(source.name, signs())
    for chunk in as_utf8(_chained(head, chunks)):
        sieve.feed(chunk)
    sifted = sieve.sifted()
    return clean_numbered(sifted.lines), sifted.skipped


def _chained(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from chunks
