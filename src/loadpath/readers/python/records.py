"""Lines of JSON that loadpath's own probes write, one fact a line: `type` names it, `text` says it for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.text import Capture


def records(capture: Capture, types: Collection[type[Fact]]) -> Iterator[Fact]:
    """The facts of a capture of records; a line that is none, or of another type, is passed over."""
    known = {kind.__name__: kind for kind in types}
    for line in capture.lines:
        if not line.raw.startswith("{"):
            continue
        try:
            told = json.loads(line.raw)
            yield msgspec.convert({**msgspec.to_builtins(at(capture, line)), **told}, known[told["type"]])
        except (ValueError, KeyError, TypeError, msgspec.ValidationError):
            continue
