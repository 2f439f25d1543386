"""Which runtimes a container engine knows: lines of `docker info`, `podman info`, and a pasted daemon.json.

Runtimes: io.containerd.runc.v2 nvidia runc
Default Runtime: runc
Cgroup Driver: systemd
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from loadpath.core.facts.base import at
from loadpath.core.facts.container import RuntimesKnown
from loadpath.core.text import Capture, Line
from loadpath.core.units import parse_size


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(
        r"^(?P<key>Runtimes|Default Runtime|Server Version|Cgroup Driver|Cgroup Version|Total Memory|CDI spec directories|"
        r"rootless|cgroupns)(?::\s*(?P<value>.*))?$"
    )


def read(capture: Capture) -> Iterator[RuntimesKnown]:
    found: dict[str, str] = {}
    first: Line | None = None
    for line in capture.lines:
        match = _pattern().match(line.text.strip())
        if match is None:
            continue
        if match["key"] == "Runtimes" and "Runtimes" in found and first is not None:
            yield _known(capture, first, found)  # a second machine's output
            found = {}
        if match["key"] == "Runtimes" or (first is None and match["key"] == "Default Runtime"):
            first = line
        found[match["key"]] = match["value"] or ""
    if first is not None and ("Runtimes" in found or "Default Runtime" in found):
        yield _known(capture, first, found)


def _known(capture: Capture, line: Line, found: dict[str, str]) -> RuntimesKnown:
    version = found.get("Cgroup Version", "")
    fields: dict[str, Any] = {
        "names": tuple(found.get("Runtimes", found.get("Default Runtime", "")).split()),
        "default": found.get("Default Runtime"),
        "engine_version": found.get("Server Version"),
        "cgroup_driver": found.get("Cgroup Driver"),
        "cgroup_version": int(version) if version.isdigit() else None,
        "rootless": "rootless" in found,
        "cdi": True if "CDI spec directories" in found else None,
        "total_memory_bytes": parse_size(found.get("Total Memory", "")),
    }
    return RuntimesKnown(**at(capture, line), basis="docker info", **fields)
