"""What a probe found of engines: installed, running, answering, and where their logs are.

{"type": "EngineProcess", "engine": "vllm", "pid": 4711, "argv": ["vllm", "serve", "org/model"], "port": 8000, "text": "…"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.facts.runtime import EndpointAsked, EngineInstalled, EngineLog, EngineProcess
from loadpath.core.text import Capture, Line
from loadpath.readers.python.records import records

_TYPES = (EngineInstalled, EngineProcess, EndpointAsked, EngineLog)


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    return records(capture, _TYPES)
