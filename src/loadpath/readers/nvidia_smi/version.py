"""`nvidia-smi --version` (550 and later): four versions, one a line; 610 moved the driver's and CUDA's to new keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import DriverVersions
from loadpath.core.text import Capture, Line
from loadpath.readers.nvidia_smi.fields import plain

_PAIR = re.compile(r"^(NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD) version\s*:\s*(.+)$", re.IGNORECASE)


def extent(lines: Sequence[Line], i: int) -> int:
    if not re.match(r"NVIDIA-SMI version\s*:", lines[i].text.strip(), re.IGNORECASE):
        return i
    end = i
    while end < len(lines) and _PAIR.match(lines[end].text.strip()):
        end += 1
    return end


def read(capture: Capture) -> Iterator[DriverVersions]:
    found: dict[str, str | None] = {}
    for line in capture.lines:
        if pair := _PAIR.match(line.text.strip()):
            found[pair[1].lower()] = plain(pair[2])
    yield DriverVersions(
        **at(capture, capture.lines[0]), view="version", tool=found.get("nvidia-smi"), nvml=found.get("nvml"),
        driver=found.get("kmd") or found.get("driver"), cuda=found.get("cuda umd") or found.get("cuda"),
    )  # fmt: skip
