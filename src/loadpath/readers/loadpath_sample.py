"""The header line of a sample that `loadpath check` took: how a probe was asked, and how that went.

#loadpath-sample {"name":"whereabouts","kind":"whereabouts","command":"id","outcome":"ok"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import SmiFailed
from loadpath.core.facts.machine import ProbeRan
from loadpath.core.sample import Header, header_of
from loadpath.core.text import Capture, Line


def extent(lines: Sequence[Line], i: int) -> int:
    return i + 1 if header_of(lines[i].raw) else i


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        if header := header_of(line.raw):
            told = {name: getattr(header, name) for name in Header.__struct_fields__}
            common = {**at(capture, line), "text": _words(header)}
            yield ProbeRan(**common, **told)
            if header.name == "nvidia-smi" and header.outcome == "missing":
                yield SmiFailed(**common, how="command-not-found")


def _words(header: Header) -> str:
    """The header as a person reads it: what was run, and how it ended."""
    ended = "" if header.status is None else f" (status {header.status})"
    took = f" after {header.seconds:.1f} s" if header.seconds >= 0.1 else ""
    note = f": {header.note}" if header.note else ""
    return f"$ {header.command}  → {header.outcome}{ended}{took}{note}"
