"""`docker info` as a whole: claims its lines; what they say is read by `docker_runtimes`, as in fragments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line

_BEGINS = re.compile(r"^(?:Client:(?: .*)?|Server:|Containers: \d+)$")
_SURE = ("Server Version:", "Storage Driver:", "Default Runtime:")
_GOES_ON = re.compile(r"^\s|^[A-Z][\w ()/-]{1,40}:|^WARNING: |^$")
LOOK_AHEAD = 60


def extent(lines: Sequence[Line], i: int) -> int:
    if not _BEGINS.match(lines[i].text.strip()):
        return i
    if not any(line.text.strip().startswith(_SURE) for line in lines[i : i + LOOK_AHEAD]):
        return i
    end = i + 1
    while end < len(lines) and _GOES_ON.match(lines[end].text) and not lines[end].text.startswith("```"):
        end += 1
    while not lines[end - 1].text:
        end -= 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    return iter(())
