"""A look into a container: device files, driver libraries, environment, limits, packages.

place: container vllm
tool: docker
device: /dev/nvidia0 opened
library: /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
env: NVIDIA_VISIBLE_DEVICES=all
shm: shm 65536 0 65536 0% /dev/shm
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.runtime import InsideSeen
from loadpath.core.text import Capture, Line
from loadpath.core.units import show_bytes
from loadpath.readers.keyed import keyed

_UNLIMITED = 1 << 60


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[InsideSeen]:
    told = keyed(capture)
    if "place" not in told:
        return
    devices = dict(text.rpartition(" ")[::2] for text in told.get("device", ()))
    limits = {
        found[1]: found[2] for text in told.get("limit", ()) if (found := re.match(r"Max ([a-z ]+?)\s{2,}(\S+)", text))
    }
    locked, files = limits.get("locked memory", ""), limits.get("open files", "")
    shm = next((text.split() for text in told.get("shm", ()) if len(text.split()) >= 6), None)
    memory = next((int(text) for text in told.get("memory", ()) if text.isdigit() and int(text) < _UNLIMITED), None)
    common = at(capture, capture.lines[0], capture.lines[-1])
    place = told["place"][0]
    libraries = dict(text.split(" ", 1) for text in told.get("library", ()) if " " in text)
    room = f"; /dev/shm {show_bytes(int(shm[1]) * 1024)}" if shm and shm[1].isdigit() else ""
    parts = f"device files {', '.join(devices) or 'none'}; driver libraries {', '.join(libraries.values()) or 'none'}"
    common["text"] = f"{place}: {parts}{room}"
    yield InsideSeen(
        **common, place=place, tool=told.get("tool", ("",))[0], asked=told.get("asked", ("",))[0],
        devices={path: how == "opened" for path, how in devices.items()}, libraries=libraries,
        compat=told.get("compat", ()), environment=dict(text.split("=", 1) for text in told.get("env", ()) if "=" in text),
        shm_bytes=int(shm[1]) * 1024 if shm and shm[1].isdigit() else None,
        memlock_bytes=int(locked) if locked.isdigit() else None, memlock_unlimited=locked == "unlimited",
        open_files=int(files) if files.isdigit() else None, memory_bytes=memory,
        smi=told.get("smi", ()) if "smi-there" in told else None,
        packages=dict(text.split(" ", 1) for text in told.get("package", ()) if " " in text), os=next(iter(told.get("os", ())), None),
    )  # fmt: skip
