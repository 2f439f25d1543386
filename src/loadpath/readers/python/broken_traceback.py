"""Tracebacks that were pasted without their exception: where they were going is known all the same.

[rank0]: Traceback (most recent call last):
[rank0]:   File "…/llm_engine.py", line 512, in _initialize_kv_caches
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import at
from loadpath.core.facts.memory import BrokenOff
from loadpath.core.text import Capture, Line
from loadpath.readers.phases import phase_of

_FRAME = re.compile(r'File "[^"]+", line \d+, in (\S+)')
_HEAD = re.compile(r"Traceback \(most recent call last\)|Exception in worker \S+ while processing method (\w+)")
# A line of source in an error record: a frame whose head was not pasted.
_CODE = re.compile(r"^(?:self\.\w+|return |\w+ = |await |with )[\w.]*.*\(")
# An exception at the end of a traceback: `ValueError: …`, `torch.OutOfMemoryError: …`, `KeyboardInterrupt`.
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Timeout)\b(?:$|[:(])|^SystemExit|out of memory"
)

_ALLOCATES = re.compile(r"\btorch\.(?:empty|zeros|ones|full|empty_like|zeros_like|ones_like)\(")


def read(capture: Capture) -> Iterator[BrokenOff]:
    """At most one fact: only a capture that shows no exception at all is broken off."""
    lines = [line for line in capture.lines if not line.prose]
    heads = [
        i for i, line in enumerate(lines)
        if _HEAD.search(line.text) or _FRAME.search(line.text) or (line.origin.level == "ERROR" and _CODE.match(_said(line)))
    ]  # fmt: skip
    if not heads or any(_EXCEPTION.search(_said(line)) for line in lines[heads[0] :]):
        return
    last = heads[-1]
    while last + 1 < len(lines) and lines[last + 1].text.startswith((" ", "\t")):
        last += 1
    frame = next((m[1] for i in reversed(heads) if (m := _FRAME.search(lines[i].text))), "")
    method = next((m[1] for i in heads if (m := _HEAD.search(lines[i].text)) and m[1]), None)
    yield BrokenOff(
        **at(capture, lines[heads[0]], lines[last]), phase=phase_of(lines, last), function=method or frame or "",
        allocating=any(_ALLOCATES.search(line.text) for line in lines[heads[-1] : last + 3]),
    )  # fmt: skip


def _said(line: Line) -> str:
    return line.text.strip()
