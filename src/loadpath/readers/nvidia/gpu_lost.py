"""GPUs that vanished or did not come up, told without an Xid: by the kernel driver, by NVML's tools.

NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.
NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x24:0x72:1447)
Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import AdapterInitFailed, GpuLost
from loadpath.core.pci import ADDRESS, pci_address
from loadpath.core.text import Capture, Line

NEAR = 3  # the kernel says "The NVIDIA GPU …", "(PCI ID …)" and "fallen off the bus" on three lines


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "init": rf"(?:GPU (?P<pci>{ADDRESS}): )?RmInitAdapter failed! \((?P<code>0x[0-9a-fA-F]+:0x[0-9a-fA-F]+:\d+)\)",
        "off": r"fallen off the bus",
        "address": rf"\b(?:GPU|PCI:) ?(?P<pci>{ADDRESS})",
        "handle": rf"device handle for (?:gpu ?(?:(?P<index>\d+): )?)?(?P<pci>{ADDRESS})?:? *(?P<words>[A-Z][\w ]+)",
        "lost": r"\b(?:GPU is lost|NV_ERR_GPU_IS_LOST|ERROR_GPU_IS_LOST|NVML_ERROR_GPU_IS_LOST|GPU_IS_LOST)\b",
    }[name], re.IGNORECASE if name == "handle" else 0)  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    lines = [line for line in capture.lines if not line.prose]
    for i, line in enumerate(lines):
        if fact := _fact(capture, lines, i, line):
            yield fact


def _fact(capture: Capture, lines: Sequence[Line], i: int, line: Line) -> Fact | None:
    text = line.text
    common = at(capture, line)
    if found := _pattern("init").search(text):
        return AdapterInitFailed(**common, pci=pci_address(found["pci"]) if found["pci"] else None, code=found["code"])
    if _pattern("off").search(text):
        if "Xid" in text:
            return None
        return GpuLost(**common, pci=_address_near(lines, i), words="fallen off the bus")
    if found := _pattern("handle").search(text):
        index = int(found["index"]) if found["index"] else None
        pci = pci_address(found["pci"]) if found["pci"] else None
        return GpuLost(**common, pci=pci, index=index, said_by="nvml", words=found["words"].strip())
    if _pattern("lost").search(text):
        said_by: Literal["kernel", "nvml"] = "kernel" if "NVRM" in text else "nvml"
        return GpuLost(**common, pci=_address_near(lines, i, 0), said_by=said_by, words="GPU is lost")
    return None


def _address_near(lines: Sequence[Line], i: int, near: int = NEAR) -> str | None:
    """The address in the line itself, or in those just before it."""
    for line in reversed(lines[max(0, i - near + 1) : i + 1] if near else lines[i : i + 1]):
        if found := _pattern("address").search(line.text):
            return pci_address(found["pci"])
    return None
