"""What a step of a model costs at least on given cards, as `loadpath bench` computed it for its own report.

{"schema": "loadpath.step-work/1", "model": "m", "gpu": "L4", "weight_bytes": 16060522496, …}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.traffic import StepWork
from loadpath.core.text import Capture, Line
from loadpath.core.units import show_bytes

SCHEMA = "loadpath.step-work/1"


def extent(lines: Sequence[Line], i: int) -> int:
    return i + 1 if lines[i].text.startswith("{") and SCHEMA in lines[i].text[:60] else i


def read(capture: Capture) -> Iterator[Fact]:
    document = msgspec.json.decode(capture.lines[0].text)
    line = capture.lines[0]
    document.pop("schema", None)
    shown = (
        f"{document['model']}: {show_bytes(document['weight_bytes'])} of weights read in every step; "
        f"{document['gpu']}: {document['bandwidth_bytes_per_s'] / 1e9:,.0f} GB/s"
    )
    yield msgspec.convert(
        {**document, "type": "StepWork", **msgspec.to_builtins({**at(capture, line), "text": shown})}, StepWork
    )
