"""One paste → many captures. Knows no format: what a block looks like and where a run starts is told by the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec

from loadpath.core.text import Capture, Line


class Shape(msgspec.Struct, frozen=True):
    """A kind of block: `extent(lines, i)` is the index after the block that begins at lines[i] (i: none does).
    `sniffs` (lower case): one of them is in the block's first line; () to ask at every line."""

    kind: str
    sniffs: tuple[str, ...]
    extent: Callable[[Sequence[Line], int], int]


class LogShape(msgspec.Struct, frozen=True):
    """A kind of log: `sniffs` (lower case) that only its lines contain, and whether a line begins a new run."""

    kind: str
    sniffs: tuple[str, ...]
    starts_run: Callable[[Line], bool]


def cut(source: str, lines: Sequence[Line], blocks: Sequence[Shape], logs: Sequence[LogShape]) -> list[Capture]:
    """The captures of one source, in the order of their first lines. Every line is in exactly one of them;
    prose (`Line.prose`) is left out. Lines that no shape knows are a `log`."""
    captures: list[Capture] = []
    rest: list[Line] = []
    i = 0
    while i < len(lines):
        low = lines[i].text.lower()
        for shape in blocks if not lines[i].prose else ():
            if shape.sniffs and not any(s in low for s in shape.sniffs):
                continue
            end = shape.extent(lines, i)
            if end > i:
                captures.append(Capture(shape.kind, source, tuple(x for x in lines[i:end] if not x.prose)))
                i = end
                break
        else:
            rest.append(lines[i])
            i += 1
    captures += _logs(source, [line for line in rest if not line.prose], logs, _alone(rest))
    return sorted(captures, key=lambda c: c.first_line)


# So many of an engine's lines before its start line make a run of its own (a log whose head was cut off); fewer are
# what a program prints before its first word (platform checks, deprecations).
LINES_OF_A_RUN = 12
TRACEBACK = "Traceback (most recent call last)"


def _alone(rest: list[Line]) -> dict[int, str]:
    """Line number → `traceback` for the lines of each paste between a person's words that is one traceback."""
    alone: dict[int, str] = {}
    for spoken, own in groupby(rest, key=lambda line: line.prose):
        lines = [line for line in own if line.text.strip()]
        if not spoken and len(lines) < len(rest) and lines and lines[0].text.startswith(TRACEBACK):
            alone.update((line.number, "traceback") for line in lines)
    return alone


def _logs(source: str, rest: list[Line], shapes: Sequence[LogShape], alone: dict[int, str]) -> list[Capture]:
    by_kind = {shape.kind: shape for shape in shapes}
    stretches: list[tuple[str, int, list[Line]]] = []
    current: dict[str, int] = {}
    begun: dict[str, bool] = {}
    for line, known in zip(rest, _kinds(rest, shapes), strict=True):
        kind = alone.get(line.number, known)
        shape = by_kind.get(kind)
        begins = shape is not None and shape.starts_run(line)
        own = stretches[current[kind]][2] if kind in current else None
        if own is None or (begins and shape is not None and (begun.get(kind) or _is_run(own, shape))):
            run = 1 if own is None else stretches[current[kind]][1] + 1
            current[kind] = len(stretches)
            own = []
            stretches.append((kind, run, own))
        if begins:
            begun[kind] = True
        own.append(line)
    return [Capture(kind, source, tuple(own), run) for kind, run, own in stretches if own]


def _is_run(lines: list[Line], shape: LogShape) -> bool:
    """Whether so many lines are the engine's own that a start must have come before them."""
    known = sum(any(sniff in line.raw.lower() for sniff in shape.sniffs) for line in lines)
    return known >= LINES_OF_A_RUN


def _kinds(rest: list[Line], shapes: Sequence[LogShape]) -> list[str]:
    """The kind of each line: that of the last line before it which only one kind of log contains.

    One engine's log may name another (a path, an import): the kind changes only where the other engine starts,
    speaks twice in a row, or is the one that speaks more.
    """
    votes = [(i, kind) for i, line in enumerate(rest) if (kind := _vote(_words(line), shapes))]
    if not votes:
        return ["log"] * len(rest)
    total = Counter(kind for _, kind in votes)
    starts = {shape.kind: shape.starts_run for shape in shapes}
    first = votes[0][1]
    current = first if total[first] > 1 or starts[first](rest[votes[0][0]]) else total.most_common(1)[0][0]
    kinds: list[str] = []
    for n, (i, kind) in enumerate(votes):
        if kind == current:
            continue
        again = n + 1 < len(votes) and votes[n + 1][1] == kind
        if again or total[kind] >= total[current] or starts[kind](rest[i]):
            kinds += [current] * (i - len(kinds))
            current = kind
    return kinds + [current] * (len(rest) - len(kinds))


def _words(line: Line) -> str:
    """The line as pasted, prefixes of the engine's processes included, but not the names that somebody gave things."""
    low = line.raw.lower()
    for name in (line.origin.container, line.origin.pod):
        if name:
            low = low.replace(name.lower(), "")
    return low


def _vote(low: str, shapes: Sequence[LogShape]) -> str:
    return next((s.kind for s in shapes if any(sniff in low for sniff in s.sniffs)), "")
