"""Several starts in one log that no version line parts: programs that make one `LLM(…)` after another.

An engine core of the same name with another pid, or another engine in the same process, is a new start once the one
before it has come up or failed. Replicas that start side by side (data parallel, rollouts) are one start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadpath.core.text import Line

_START = re.compile(r"Initializing an? (?:V[01] )?LLM engine ")
# What shows that the engine before has come to something.
_OVER = ("init engine (", "failed to start", "core initialization failed", "Processed prompts", "startup complete",
         "# GPU blocks:", "# cuda blocks:", "# CUDA blocks:")  # fmt: skip
# What a program prints before its engine: the start begins with the first of them.
_BEFORE = (
    "non-default args: ",
    "Resolved architecture: ",
    "This model supports multiple tasks",
    "Chunked prefill is enabled",
)
LINES_BEFORE = 40


def more_starts(lines: Sequence[Line]) -> list[int]:
    """Indices of the lines at which a further start begins, in a log that holds at most one version line."""
    found: list[int] = []
    last: Line | None = None
    over = False
    for i, line in enumerate(lines):
        if last is not None and not over and any(word in line.text for word in _OVER):
            over = True
        if "LLM engine " not in line.text or not _START.search(line.text):
            continue
        if last is not None and over and _other(last, line):
            found.append(_begin(lines, i, found[-1] if found else 0))
            over = False
        last = line
    return found


def _other(before: Line, line: Line) -> bool:
    """Whether two engines follow each other: the same name with another pid, or no pid at all."""
    a, b = before.origin, line.origin
    return a.process == b.process and (a.pid is None or a.pid != b.pid)


def _begin(lines: Sequence[Line], i: int, least: int) -> int:
    """The first line of the start whose engine begins at index i."""
    begin = i
    for j in range(i - 1, max(least, i - LINES_BEFORE), -1):
        if any(word in lines[j].text for word in _OVER):
            break
        if any(word in lines[j].text for word in _BEFORE):
            begin = j
    return begin
