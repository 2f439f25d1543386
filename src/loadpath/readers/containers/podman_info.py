"""`podman info`: its low-level runtime, cgroups, whether it runs without root.

host:
  cgroupManager: systemd
  cgroupVersion: v2
  ociRuntime:
    name: crun
    path: /usr/bin/crun
version:
  Version: 4.9.4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import RuntimesKnown
from loadpath.core.facts.runtime import RuntimeBinary
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import Broken, parse_yaml, yaml_extent

_TOP = frozenset(("host", "store", "plugins", "registries", "version"))
LOOK_AHEAD = 80


def extent(lines: Sequence[Line], i: int) -> int:
    if lines[i].text != "host:" or not any("ociRuntime:" in line.text for line in lines[i : i + LOOK_AHEAD]):
        return i
    return yaml_extent(lines, i, _TOP)


def read(capture: Capture) -> Iterator[Fact]:
    try:
        value = next(iter(parse_yaml("\n".join(line.raw for line in capture.lines))), None)
    except Broken:
        return
    host = value.get("host") if isinstance(value, dict) else None
    runtime = host.get("ociRuntime") if isinstance(host, dict) else None
    if not isinstance(value, dict) or not isinstance(host, dict) or not isinstance(runtime, dict):
        return
    line = next((x for x in capture.lines if "ociRuntime" in x.text), capture.lines[0])
    name = str(runtime.get("name") or "")
    version = str(host.get("cgroupVersion") or "").removeprefix("v")
    yield RuntimesKnown(
        **at(capture, line), names=(name,) if name else (), default=name or None, basis="podman info",
        engine_version=_version(value.get("version")), cgroup_driver=host.get("cgroupManager"),
        cgroup_version=int(version) if version.isdigit() else None,
        rootless=bool((host.get("security") or {}).get("rootless")), total_memory_bytes=_number(host.get("memTotal")),
    )  # fmt: skip
    if isinstance(runtime.get("path"), str) and runtime["path"]:
        yield RuntimeBinary(**at(capture, line), engine="Podman", name=name, binary=runtime["path"])


def _version(value: Any) -> str | None:
    return str(value["Version"]) if isinstance(value, dict) and value.get("Version") else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
