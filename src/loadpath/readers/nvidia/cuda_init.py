"""The driver API's first calls as loadpath's own child made them.

libcuda: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
driver-cuda: 13.0
cuInit: 0
devices: 1
device: 0 capability=9.0 memory=85017493504 name=NVIDIA H100 80GB HBM3
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.machine import CudaCalled
from loadpath.core.facts.stack import GpuModel
from loadpath.core.text import Capture, Line
from loadpath.readers.keyed import pair

_CODE = re.compile(r"^(\d+)(?: \((\w+)\))?$")
_DEVICE = re.compile(r"^(?P<index>\d+) capability=(?P<capability>\S+) memory=\d+ name=(?P<name>.*)$")


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    told: dict[str, str] = {}
    telling: Line | None = None
    for line in capture.lines:
        key, value = pair(line)
        if key == "device" and (found := _DEVICE.match(value)):
            yield GpuModel(
                **at(capture, line), name=found["name"], index=int(found["index"]), capability=found["capability"]
            )
        elif key in ("libcuda", "driver-cuda", "cuInit", "cuDeviceGetCount", "devices"):
            told[key] = value
            telling = line if key in ("libcuda", "cuInit", "cuDeviceGetCount") else telling
    if telling is None:
        return
    code = _CODE.match(told.get("cuDeviceGetCount", "")) or _CODE.match(told.get("cuInit", ""))
    library = told.get("libcuda", "none")
    yield CudaCalled(
        **at(capture, telling), library=None if library.startswith("none") else library, cuda=told.get("driver-cuda"),
        code=int(code[1]) if code else None, error=(code[2] or "") if code else "", called="cuInit" in told,
        devices=int(told["devices"]) if told.get("devices", "").isdigit() else None,
    )  # fmt: skip
