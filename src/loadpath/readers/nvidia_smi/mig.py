"""`nvidia-smi mig -lgi`: the GPU instances that exist. Profiles that could be made (`-lgip`) are claimed, not read.

|   0  MIG 1g.6gb          14        3          0:1     |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import MigInstance
from loadpath.core.text import Capture, Line

_TITLE = re.compile(r"^\|\s*(?:GPU|Compute) instance(?:s| profiles):\s*\|?$")
_INSTANCE = re.compile(r"^\|\s*(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s*\|?$")


def extent(lines: Sequence[Line], i: int) -> int:
    below = lines[i + 1].text.strip() if i + 1 < len(lines) else ""
    text = lines[i].text.strip()
    if not (_TITLE.match(text) or (text.startswith("+--") and _TITLE.match(below))):
        return i
    end = i
    while end < len(lines) and lines[end].text.strip().startswith(("|", "+")):
        end += 1
    return end


def read(capture: Capture) -> Iterator[MigInstance]:
    if not any("GPU instances:" in line.text for line in capture.lines[:2]):
        return
    for line in capture.lines:
        if row := _INSTANCE.match(line.text.strip()):
            yield MigInstance(**at(capture, line), index=int(row[1]), profile=row[2], gpu_instance=int(row[3]))
