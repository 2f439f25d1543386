"""A result of `loadpath ready` (`loadpath.ready/1`, also its state file) → the run and its stages.

{"schema":"loadpath.ready/1","url":"http://127.0.0.1:8000","ready":true,"at":1.0,"seconds":2.1,"limit":30.0,"stages":[
{"name":"port","state":"holds","seconds":0.002},
{"name":"health","state":"holds","seconds":0.41,"why":"/health 200"}
]}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.readiness import ReadyRun, ReadyStage
from loadpath.core.readiness import READY_SCHEMA, Readiness, Stage
from loadpath.core.text import Capture, Line

_SIGN = f'{{"schema":"{READY_SCHEMA}"'


def extent(lines: Sequence[Line], i: int) -> int:
    if not lines[i].text.startswith(_SIGN):
        return i
    return next((j + 1 for j in range(i, len(lines)) if lines[j].text.rstrip().endswith("]}")), i + 1)


def read(capture: Capture) -> Iterator[Fact]:
    try:
        result = msgspec.json.decode("\n".join(line.text for line in capture.lines).encode(), type=Readiness)
    except msgspec.MsgspecError:
        return
    told = _fields(result, ReadyRun)
    yield ReadyRun(**at(capture, capture.lines[0]), **told)
    lines = [line for line in capture.lines if line.text.startswith('{"name":')]
    for stage, line in zip(result.stages, lines, strict=False):
        yield ReadyStage(**at(capture, line), **_fields(stage, ReadyStage))


def _fields(source: Readiness | Stage, kind: type[Fact]) -> dict[str, Any]:
    """The fields that both have."""
    return {name: getattr(source, name) for name in kind.__struct_fields__ if name in type(source).__struct_fields__}
