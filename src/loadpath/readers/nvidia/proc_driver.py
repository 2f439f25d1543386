"""/proc/driver/nvidia: the version of the loaded module, and what it says of each GPU.

NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (…)
GCC version:  gcc version 13.3.0
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import BoardInformation, DriverVersions
from loadpath.core.text import Capture, Line

_VERSION = re.compile(
    r"^NVRM version:\s+NVIDIA UNIX (?P<open>Open )?(?:\S+ )?Kernel Module.*?\s(?P<version>\d{3}\.\d+(?:\.\d+)?)\b"
)
_FIELD = re.compile(
    r"^(Model|IRQ|GPU UUID|Video BIOS|Bus Type|DMA Size|DMA Mask|Bus Location|Device Minor|GPU Excluded|Blacklisted|"
    r"GPU Firmware):\s*(.*)$"
)


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    if _VERSION.match(text):
        follows = i + 1 < len(lines) and lines[i + 1].text.startswith("GCC version:")
        return i + 2 if follows else i + 1
    if not text.startswith("Model:") or not any(_FIELD.match(line.text.strip()) for line in lines[i + 1 : i + 2]):
        return i
    end = i
    while end < len(lines) and _FIELD.match(lines[end].text.strip()):
        end += 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    first = capture.lines[0]
    if version := _VERSION.match(first.text.strip()):
        flavour: Literal["open", "proprietary"] = "open" if version["open"] else "proprietary"
        yield DriverVersions(**at(capture, first), view="proc", driver=version["version"], flavour=flavour)
        return
    found = {m[1]: m[2].strip() for line in capture.lines if (m := _FIELD.match(line.text.strip()))}
    minor = found.get("Device Minor", "")
    yield BoardInformation(
        **at(capture, first), name=found.get("Model"), bus_id=found.get("Bus Location"),
        minor=int(minor) if minor.isdigit() else None, vbios=found.get("Video BIOS"),
        initialised="??" not in found.get("Video BIOS", ""),
        excluded=found.get("GPU Excluded", found.get("Blacklisted", "No")).lower() == "yes",
    )  # fmt: skip
