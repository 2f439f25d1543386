"""`nvidia-container-cli info`, and the device lists of `nvidia-ctk cdi list`.

NVRM version:   580.82.07
CUDA version:   13.0

Device Index:   0
Device Minor:   0
Model:          NVIDIA H100 80GB HBM3
GPU UUID:       GPU-…
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import ContainerCliInfo
from loadpath.core.text import Capture, Line

_FIELD = re.compile(
    r"^(NVRM version|CUDA version|Device Index|Device Minor|Model|Brand|GPU UUID|Bus Location|Architecture):\s+(.*)$"
)


def extent(lines: Sequence[Line], i: int) -> int:
    if (
        not lines[i].text.startswith("NVRM version:")
        or i + 1 >= len(lines)
        or not lines[i + 1].text.startswith("CUDA version:")
    ):
        return i
    end = i
    while end < len(lines) and (not lines[end].text or _FIELD.match(lines[end].text)):
        end += 1
    while end > i and not lines[end - 1].text:
        end -= 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    pairs = [(m[1], m[2].strip()) for line in capture.lines if (m := _FIELD.match(line.text))]

    def every(key: str) -> list[str]:
        return [value for name, value in pairs if name == key]

    def known(key: str) -> str | None:
        return next((value for value in every(key) if value != "(null)"), None)

    indices = [int(value) for value in every("Device Index") if value.isdigit()]
    yield ContainerCliInfo(
        **at(capture, capture.lines[0]), driver_version=known("NVRM version"), cuda_version=known("CUDA version"),
        devices=tuple(zip(indices, every("Model"), strict=False)), uuids=tuple(u for u in every("GPU UUID") if u != "(null)"),
    )  # fmt: skip
