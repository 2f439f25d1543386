"""`nvidia-smi -L`: the GPUs and, below them, their MIG devices, and the counts that `--version` prints.

GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-…)
  MIG 1g.10gb     Device  0: (UUID: MIG-00000000-…)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import GpuListed, MigInstance, SmiSnapshot
from loadpath.core.text import Capture, Line

_GPU = re.compile(r"^GPU\s+(\d+): (.+?) \(UUID: (GPU-[^)\s]+)\)?$")
_MIG = re.compile(r"^MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)?$")


def extent(lines: Sequence[Line], i: int) -> int:
    end = i
    while end < len(lines):
        text = lines[end].text.strip()
        if (_GPU.match(text) and not _nvlink_follows(lines, end)) or (end > i and _MIG.match(text)):
            end += 1
        else:
            break
    return end


def _nvlink_follows(lines: Sequence[Line], i: int) -> bool:
    """`nvlink -s` prints the same heading: then it is that reader's."""
    below = next((line.text.strip() for line in lines[i + 1 : i + 3] if line.text.strip()), "")
    return re.match(r"Link \d+:|NVML: Unable to retrieve Nvlink|Nvlink queries|Device does not have", below) is not None


def read(capture: Capture) -> Iterator[Fact]:
    index: int | None = None
    shown = 0
    for line in capture.lines:
        text = line.text.strip()
        if gpu := _GPU.match(text):
            index, shown = int(gpu[1]), shown + 1
            yield GpuListed(**at(capture, line), index=index, name=gpu[2], uuid=gpu[3])
        elif mig := _MIG.match(text):
            old = re.match(r"MIG-GPU-\S+?/(\d+)/(\d+)$", mig[3])
            yield MigInstance(
                **at(capture, line), index=index, profile=mig[1], device=int(mig[2]), uuid=mig[3],
                gpu_instance=int(old[1]) if old else None, compute_instance=int(old[2]) if old else None,
            )  # fmt: skip
    if shown:
        yield SmiSnapshot(**at(capture, capture.lines[0]), view="list", shown=shown)
