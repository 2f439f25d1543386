"""What a probe found of the container stack: programs, services, paths that configurations name, the kubelet's plugins.

{"type":"ProgramFound", "name": "nvidia-ctk", "path": "/usr/bin/nvidia-ctk", "version": "1.17.4", "text": "…"}
{"type":"PathSeen", "path": "/usr/lib/libcuda.so.550.54.15", "exists": false, "named_by": "/etc/cdi/nvidia.yaml", "text": "…"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.facts.runtime import (
    DaemonSilent,
    PathSeen,
    PluginRegistered,
    PluginSockets,
    ProgramFound,
    ServiceState,
)
from loadpath.core.text import Capture, Line
from loadpath.readers.python.records import records

_TYPES = (ProgramFound, ServiceState, PathSeen, DaemonSilent, PluginRegistered, PluginSockets)


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    return records(capture, _TYPES)
