"""What loadpath's own probes found of the GPU's device files beside their listing: opening them, majors, holders.

open /dev/nvidia0: EPERM (Operation not permitted)
major: 195 nvidia-frontend
holder: pid=4711 uid=0 state=S devices=nvidia0,nvidiactl container=0123456789ab name=python3 command=vllm serve …
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.machine import DeviceAccess, DeviceHolder, DeviceMajor, ProcessesInSight
from loadpath.core.text import Capture, Line

_OPEN = re.compile(r"^open (?P<path>/dev/\S+): ?(?P<outcome>\w*)")
_MAJOR = re.compile(r"^major: (?P<number>\d+) (?P<name>\S+)")
_HOLDER = re.compile(
    r"^holder: pid=(?P<pid>\d+) uid=(?P<uid>\S+) state=(?P<state>\S+) devices=(?P<devices>\S+)"
    r"(?: container=(?P<container>\S+))?(?: pod=(?P<pod>\S+))? name=(?P<name>.*?) command=(?P<command>.*)$"
)
_SIGHT = re.compile(r"^processes: (?P<shown>\d+) in sight, (?P<hidden>\d+) ")


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        if found := _OPEN.match(line.raw):
            yield DeviceAccess(**at(capture, line), path=found["path"], outcome=found["outcome"] or "hung")
        elif found := _MAJOR.match(line.raw):
            yield DeviceMajor(**at(capture, line), number=int(found["number"]), name=found["name"])
        elif found := _HOLDER.match(line.raw):
            yield DeviceHolder(
                **at(capture, line), pid=int(found["pid"]), uid=found["uid"], state=found["state"],
                devices=tuple(found["devices"].split(",")), container=found["container"], pod=found["pod"],
                name=found["name"], command=found["command"],
            )  # fmt: skip
        elif found := _SIGHT.match(line.raw):
            yield ProcessesInSight(**at(capture, line), shown=int(found["shown"]), hidden=int(found["hidden"]))
