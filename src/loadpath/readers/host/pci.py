"""The PCI bus as loadpath's own probe reads it from sysfs: a summary line, then NVIDIA's devices as lspci writes them.

PCI bus: 37 devices, 1 of NVIDIA
0000:01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)
        Kernel driver in use: nvidia
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.machine import PciBus
from loadpath.core.text import Capture, Line
from loadpath.readers.host import lspci

_BUS = re.compile(r"^PCI bus: (\d+) devices, (\d+) of NVIDIA")


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    wsl = any(line.raw.startswith("WSL:") for line in capture.lines)
    for line in capture.lines:
        if found := _BUS.match(line.raw):
            yield PciBus(**at(capture, line), devices=int(found[1]), nvidia=int(found[2]), wsl=wsl)
    devices = tuple(line for line in capture.lines if not line.raw.startswith(("PCI bus:", "WSL:")))
    if devices:
        yield from lspci.read(msgspec.structs.replace(capture, lines=devices))
