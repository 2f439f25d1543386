"""The NVIDIA Container Toolkit's config.toml: its mode, its loader cache program, what unprivileged containers may ask for.

# /etc/nvidia-container-runtime/config.toml
accept-nvidia-visible-devices-envvar-when-unprivileged = true
[nvidia-container-cli]
ldconfig = "@/sbin/ldconfig.real"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.runtime import ConfigBroken, ToolkitSetting
from loadpath.core.text import Capture, Line


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    if not capture.lines:
        return
    try:
        value = tomllib.loads("\n".join(line.raw for line in capture.lines))
    except tomllib.TOMLDecodeError as error:
        path = capture.lines[0].raw.removeprefix("#").strip()
        yield ConfigBroken(**at(capture, capture.lines[0]), path=path, why=str(error))
        return
    for name, setting in _flat(value, ""):
        key = name.rpartition(".")[2]
        line = next((x for x in capture.lines if x.raw.strip().startswith(key)), capture.lines[0])
        yield ToolkitSetting(**at(capture, line), name=name, value=setting)


def _flat(value: dict[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{before}{name}.")
        elif isinstance(item, bool):
            yield before + name, str(item).lower()
        else:
            yield before + name, ", ".join(map(str, item)) if isinstance(item, list) else str(item)
