"""`nvidia-ctk cdi list` (and the discovered devices of `docker info`): which CDI devices can be asked for.

INFO[0000] Found 3 CDI devices
nvidia.com/gpu=0
nvidia.com/gpu=GPU-…
nvidia.com/gpu=all
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import at
from loadpath.core.facts.container import CdiDevicesListed
from loadpath.core.text import Capture

_DEVICE = re.compile(r"^(?:-\s+|cdi:\s+)?(?P<name>(?:[\w-]+\.)?nvidia\.com/[\w-]+=[\w:.-]+)$")
_COUNT = re.compile(r"Found (?P<count>\d+) CDI devices")


def read(capture: Capture) -> Iterator[CdiDevicesListed]:
    names: list[str] = []
    first = None
    for line in capture.lines:
        text = line.text.strip()
        if found := _DEVICE.match(text):
            first = first or line
            names.append(found["name"])
        elif _COUNT.search(text):
            first = line
    if first is not None:
        yield CdiDevicesListed(**at(capture, first), names=tuple(names))
