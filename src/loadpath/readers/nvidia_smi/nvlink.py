"""`nvidia-smi nvlink -s` (speed of each link) and `-e` (error counters).

GPU 0: NVIDIA H200 (UUID: GPU-…)
     Link 0: 26.562 GB/s
     Link 1: <inactive>
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import NvlinkStatus
from loadpath.core.text import Capture, Line

_GPU = re.compile(r"^GPU\s+(\d+): (.+?)(?: \(UUID: .*)?$")
_SPEED = re.compile(r"^Link\s+(\d+):\s*(?:([\d.]+)\s*GB/s|<?(inactive|N/A)>?)", re.IGNORECASE)
_ERRORS = re.compile(r"^Link\s+(\d+):\s*([A-Za-z][\w ()-]*?Errors?|\w[\w -]*?counter\w*):\s*(\d+|N/A)", re.IGNORECASE)
_NONE = (
    ("all links are inactive", "inactive"),
    ("not supported for devices in mig mode", "mig"),
    ("does not have or support nvlink", "no-nvlink"),
)


def extent(lines: Sequence[Line], i: int) -> int:
    if not _GPU.match(lines[i].text.strip()) or not _link_below(lines, i):
        return i
    end = j = i + 1
    while j < len(lines) and j - end < 3:
        text = lines[j].text.strip()
        j += 1
        if _is_link(text) or (_GPU.match(text) and _link_below(lines, j - 1)) or text == "[...]":
            end = j
        elif text:
            break
    return end


def _link_below(lines: Sequence[Line], i: int) -> bool:
    below = next((line.text.strip() for line in lines[i + 1 : i + 3] if line.text.strip()), "")
    return _is_link(below)


def _is_link(text: str) -> bool:
    return re.match(r"Link\s+\d+:", text) is not None or _why_none(text) is not None


def _why_none(text: str) -> str | None:
    low = text.lower()
    return next((why for words, why in _NONE if words in low), None)


def read(capture: Capture) -> Iterator[NvlinkStatus]:
    opened: tuple[Line, re.Match[str]] | None = None
    links: dict[int, float | None] = {}
    errors: dict[str, int] = {}
    why: str | None = None
    last = capture.lines[0]

    def made() -> Iterator[NvlinkStatus]:
        if opened is not None:
            yield NvlinkStatus(
                **at(capture, opened[0], last), index=int(opened[1][1]), name=opened[1][2], links=dict(links),
                errors=dict(errors), why_none=why,
            )  # fmt: skip

    for line in capture.lines:
        text = line.text.strip()
        if gpu := _GPU.match(text):
            yield from made()
            opened, why = (line, gpu), None
            links.clear()
            errors.clear()
        elif speed := _SPEED.match(text):
            links[int(speed[1])] = float(speed[2]) if speed[2] else None
        elif counted := _ERRORS.match(text):
            key = counted[2].lower()
            errors[key] = errors.get(key, 0) + (int(counted[3]) if counted[3].isdigit() else 0)
        elif found := _why_none(text):
            why = found
        if text:
            last = line
    yield from made()
