"""Where loadpath ran, as its own probe writes it.

kernel: 6.8.0-45-generic
user: uid 1000
container: /.dockerenv exists
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.machine import Whereabouts
from loadpath.core.text import Capture, Line
from loadpath.readers.keyed import keyed


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Whereabouts]:
    if not capture.lines:
        return
    told = keyed(capture)
    groups = " ".join(told.get("groups", ())).split()
    yield Whereabouts(
        **at(capture, capture.lines[0], capture.lines[-1]),
        kernel=next(iter(told.get("kernel", ())), None),
        os=next(iter(told.get("os", ())), None),
        user=next(iter(told.get("user", ())), None),
        groups=tuple(int(group) for group in groups if group.isdigit()),
        container=told.get("container", ()),
        pod="pod" in told,
        user_namespace="uid-map" in told,
        uptime_seconds=next((float(up) for up in told.get("uptime", ()) if up.replace(".", "", 1).isdigit()), None),
        asked=tuple(" ".join(told.get("asked", ())).split()),
        virtual_machine=next(iter(told.get("virtual-machine", ())), None),
    )
