"""Configuration of containerd and CRI-O: registered runtimes and their programs, the default one, cgroups, CDI.

# /etc/containerd/config.toml
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import RuntimesKnown
from loadpath.core.facts.runtime import ConfigBroken, RuntimeBinary
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import mappings


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    if not capture.lines:
        return
    path = capture.lines[0].raw.removeprefix("#").strip()
    try:
        value = tomllib.loads("\n".join(line.raw for line in capture.lines))
    except tomllib.TOMLDecodeError as error:
        yield ConfigBroken(**at(capture, capture.lines[0]), path=path, why=str(error))
        return
    engine = "CRI-O" if "crio" in value else "containerd"
    own = value.get("crio", value)
    yield from _facts(capture, engine, path, own if isinstance(own, dict) else {})


def _facts(capture: Capture, engine: str, path: str, value: dict[str, Any]) -> Iterator[Fact]:
    parts = list(mappings(value))
    runtimes = {
        name: entry for part in parts for name, entry in _table(part, "runtimes").items() if isinstance(entry, dict)
    }
    default = _first(parts, "default_runtime_name", "default_runtime")
    cdi = _first(parts, "enable_cdi")
    if not runtimes and default is None and cdi is None:
        return
    systemd = _first(list(mappings(list(runtimes.values()))), "SystemdCgroup")
    manager = _first(parts, "cgroup_manager") or (None if systemd is None else "systemd" if systemd else "cgroupfs")
    where = at(capture, _line(capture, "runtimes", "default_runtime", "enable_cdi"))
    yield RuntimesKnown(
        **where, names=tuple(runtimes), default=str(default) if default else None, basis=f"{engine} configuration",
        cgroup_driver=str(manager) if manager else None, cdi=cdi if isinstance(cdi, bool) else None,
    )  # fmt: skip
    for name, entry in runtimes.items():
        binary = _table(entry, "options").get("BinaryName") or entry.get("runtime_path")
        if isinstance(binary, str) and binary:
            line = _line(capture, binary)
            yield RuntimeBinary(**at(capture, line), engine=engine, name=name, binary=binary, path=path)


def _table(part: dict[str, Any], name: str) -> dict[str, Any]:
    value = part.get(name)
    return value if isinstance(value, dict) else {}


def _first(parts: Sequence[dict[str, Any]], *names: str) -> Any:
    return next((part[name] for part in parts for name in names if name in part), None)


def _line(capture: Capture, *words: str) -> Line:
    """The first line with one of `words`; the capture's first, where none has it."""
    return next((line for line in capture.lines if any(word in line.raw for word in words)), capture.lines[0])
