"""Limits and settings of a host as a probe writes them: control groups, kernel settings, processors, model folders.

vm.overcommit_memory: 0
cpu.governor: performance x 64
cgroup: {"path": "/kubepods/pod1", "memory_bytes": 68719476736, "used_bytes": 6871947673}
model-cache: {"path": "/root/.cache/huggingface", "mount": "/", "size_bytes": 1000, "free_bytes": 10}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.runtime import CgroupLimits, HostSetting, ModelCache
from loadpath.core.text import Capture, Line
from loadpath.readers.keyed import pair

_TYPES: dict[str, type[Fact]] = {"cgroup": CgroupLimits, "model-cache": ModelCache}


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        key, value = pair(line)
        if kind := _TYPES.get(key):
            try:
                yield msgspec.convert({**msgspec.to_builtins(at(capture, line)), **json.loads(value)}, kind)
            except (ValueError, TypeError):
                continue
        elif key:
            yield HostSetting(**at(capture, line), name=key, value=value)
