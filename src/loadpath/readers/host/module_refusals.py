"""What the kernel module says of GPUs that it does not drive. Its message is wrapped over several log lines:

NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db5)
NVRM: installed in this system is not supported by open
NVRM: nvidia.ko because it does not include the required GPU
NVRM: System Processor (GSP).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.kernel import GpuRefused
from loadpath.core.pci import ADDRESS, pci_address
from loadpath.core.text import Capture, Line

WRAPPED = 8  # lines of the longest of these messages


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "begin": r"The NVIDIA (?:GPU|probe routine)|is already bound to|ignoring the legacy GPU|Legacy drivers|legacy driver"
        r"|Kernel driver in use: nouveau|^nouveau \d{4}:|^nouveau +\d+ +\d+|Nouveau kernel driver is currently",
        "gpu": rf"The NVIDIA GPU (?P<pci>{ADDRESS})(?: +\(PCI ID: [0-9a-f]{{4}}:(?P<id>[0-9a-f]{{4}})\))?",
        "id": r"\(PCI ID: [0-9a-fA-F]{4}:(?P<id>[0-9a-fA-F]{4})\)",
        "release": r"NVIDIA (?P<version>\d{3}\.[\d.]+\d) driver release",
        "legacy": r"supported through the NVIDIA (?P<branch>\d{2,3})[.x]* Legacy",
        "count": r"probe routine was not called for (?P<n>\d+) device",
        "bound": rf"GPU (?P<pci>{ADDRESS}) is already bound to (?P<owner>[\w-]+)",
        "in-use": r"Kernel driver in use: (?P<owner>[\w-]+)",
        "nouveau": rf"^nouveau (?P<pci>{ADDRESS})",
    }[name], re.IGNORECASE if name in ("begin", "gpu") else 0)  # fmt: skip


def read(capture: Capture) -> Iterator[GpuRefused]:
    lines = [line for line in capture.lines if not line.prose]
    for i, line in enumerate(lines):
        if _pattern("begin").search(line.text) and (made := _read(capture, lines, i)):
            yield made


def _read(capture: Capture, lines: Sequence[Line], i: int) -> GpuRefused | None:
    line = lines[i]
    text = line.text
    if found := _pattern("bound").search(text):
        return GpuRefused(**at(capture, line), why="owned", pci=pci_address(found["pci"]), owner=found["owner"])
    if found := _pattern("in-use").search(text):
        return GpuRefused(**at(capture, line), why="owned", owner=found["owner"])
    if text.startswith("nouveau") or "Nouveau kernel driver" in text:
        bound = _pattern("nouveau").search(text)
        return GpuRefused(
            **at(capture, line), why="owned", owner="nouveau", pci=pci_address(bound["pci"]) if bound else None
        )
    whole, last = _message(lines, i)
    if found := _pattern("count").search(whole):
        return GpuRefused(**at(capture, line, last), why="owned", count=int(found["n"]))
    return _unsupported(capture, line, last, whole)


def _message(lines: Sequence[Line], i: int) -> tuple[str, Line]:
    """The message with its wrapped lines as one text, `NVRM:` taken off, and the last line of it."""
    parts, last = [lines[i].text], lines[i]
    for line in lines[i + 1 : i + WRAPPED]:
        if "NVRM" not in line.text or _pattern("begin").search(line.text):
            break
        parts.append(line.text)
        last = line
    return re.sub(r"\s+", " ", " ".join(part.replace("NVRM:", " ") for part in parts)), last


def _unsupported(capture: Capture, line: Line, last: Line, whole: str) -> GpuRefused | None:
    gpu, device = _pattern("gpu").search(whole), _pattern("id").search(whole)
    release, legacy = _pattern("release").search(whole), _pattern("legacy").search(whole)
    low = whole.lower()
    if "not supported by open" in low or "required gpu system processor" in low:
        why = "open-module"
    elif "requires use of the nvidia open kernel modules" in low:
        why = "proprietary-module"
    elif legacy or "legacy" in low:
        why = "legacy"
    elif "not supported by the" in low:
        why = "not-supported"
    else:
        return None
    return GpuRefused(
        **at(capture, line, last),
        why=why,  # type: ignore[arg-type]
        pci=pci_address(gpu["pci"]) if gpu else None,
        device_id=device["id"].lower() if device else None,
        release=release["version"] if release else None,
        wanted=legacy["branch"] if legacy else None,
    )
