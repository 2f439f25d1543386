"""DeepSpeed's notes on memory: what it printed on GPU and host, and how the optimizer is split.

MA 11.76 GB         Max_MA 11.76 GB         CA 11.77 GB         Max_CA 12 GB
CPU Virtual Memory:  used = 28.43 GB, percent = 22.6%
Rank: 0 partition count [8] and sizes[(756213899, False)]

Its GB are powers of two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.host import HostMemory, OptimizerPartition, TrainingGpuMemory
from loadpath.core.text import Capture
from loadpath.core.units import gib

_GPU = re.compile(r"\bMA (?P<ma>[\d.]+) GB\s+Max_MA [\d.]+ GB\s+CA (?P<ca>[\d.]+) GB")
_HOST = re.compile(r"CPU Virtual Memory:\s+used = (?P<used>[\d.]+) GB, percent = (?P<percent>[\d.]+)%")
_SPLIT = re.compile(r"partition count \[(?P<ranks>\d+)[^\]]*\] and sizes\[(?P<sizes>.*)\]")


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        text = line.text
        if found := _GPU.search(text):
            yield TrainingGpuMemory(
                **at(capture, line), allocated_bytes=gib(float(found["ma"])), reserved_bytes=gib(float(found["ca"]))
            )
        elif found := _HOST.search(text):
            used, share = gib(float(found["used"])), float(found["percent"]) / 100
            yield HostMemory(
                **at(capture, line),
                used_bytes=used,
                used_share=share,
                total_bytes=round(used / share) if share else None,
            )
        elif found := _SPLIT.search(text):
            sizes = [int(number) for number in re.findall(r"\((\d+),", found["sizes"])]
            if sizes:
                yield OptimizerPartition(**at(capture, line), parameters=sum(sizes), ranks=int(found["ranks"]))
