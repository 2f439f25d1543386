"""One paste → many captures. Knows no format: what a block looks like and where a run starts is told by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        for shape in blocks:
            if shape.sniffs and not any(s in low for s in shape.sniffs):
                continue
            end = shape.extent(lines, i)
            if end > i:
                captures.append(Capture(shape.kind, source, tuple(lines[i:end])))
                i = end
                break
        else:
            rest.append(lines[i])
            i += 1
    captures += _logs(source, [line for line in rest if not line.prose], logs)
    return sorted(captures, key=lambda c: c.first_line)


def _logs(source: str, rest: list[Line], shapes: Sequence[LogShape]) -> list[Capture]:
    kinds = _kinds(rest, shapes)
    stretches: list[tuple[str, int, list[Line]]] = []
    runs: dict[str, int] = {}
    for line, kind in zip(rest, kinds, strict=True):
        shape = next((s for s in shapes if s.kind == kind), None)
        begins = shape is not None and shape.starts_run(line)
        if kind not in runs:
            runs[kind] = 1
            stretches.append((kind, 1, []))
        elif begins and any(k == kind and own for k, r, own in stretches if r == runs[kind]):
            runs[kind] += 1
            stretches.append((kind, runs[kind], []))
        next(own for k, r, own in reversed(stretches) if k == kind and r == runs[kind]).append(line)
    return [Capture(kind, source, tuple(own), run) for kind, run, own in stretches if own]


def _kinds(rest: list[Line], shapes: Sequence[LogShape]) -> list[str]:
    """The kind of each line: that of the last line before it which only one kind of log contains."""
    current = ""
    kinds: list[str] = []
    for line in rest:
        low = line.raw.lower()
        current = next((s.kind for s in shapes if any(sniff in low for sniff in s.sniffs)), current)
        kinds.append(current)
    first = next((k for k in kinds if k), "log")
    return [k or first for k in kinds]
