"""Where samples of a live machine stand in a source: each has a header line that names its kind, so that nothing about
its lines has to be guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from loadpath.core.sample import MARK, header_of
from loadpath.core.text import Line

T = TypeVar("T")


def parts(physical: Iterable[tuple[int, str]]) -> list[tuple[bool, list[tuple[int, str]]]]:
    """A source's numbered lines by what they are: (is a sample, its lines with the header), in order."""
    stretches: list[tuple[bool, list[tuple[int, str]]]] = []
    for number, line in physical:
        if line.startswith(MARK):
            stretches.append((True, []))
        elif not stretches:
            stretches.append((False, []))
        stretches[-1][1].append((number, line))
    return stretches


def labelled(lines: Sequence[Line]) -> Iterator[tuple[str | None, list[Line]]]:
    """(kind that the header before them names, lines); None for a header itself and for what no header names."""
    kind: str | None = None
    marked: list[tuple[str | None, int, Line]] = []
    stretch = 0
    for line in lines:
        if header := header_of(line.raw):
            marked.append((None, stretch + 1, line))
            kind, stretch = header.kind, stretch + 2
        else:
            marked.append((kind, stretch, line))
    for (name, _), own in groupby(marked, key=lambda item: item[:2]):
        yield name, [line for _, _, line in own]
