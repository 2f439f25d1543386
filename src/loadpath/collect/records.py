"""Facts as lines: what a probe found in files, one JSON object a line, for the reader of kind `inventory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from time import monotonic
from typing import Any

import msgspec

from loadpath.collect.probe import Machine, Sample
from loadpath.core.facts.base import Fact


def record(kind: type[Fact], **fields: Any) -> str:
    """The line of one fact: its type and its fields, without those that are at their default."""
    own = msgspec.structs.fields(kind)
    defaults = {f.name: f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory() for f in own}
    if unknown := set(fields) - set(defaults):
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    said = {name: value for name, value in fields.items() if value != defaults[name]}
    return msgspec.json.encode({"type": kind.__name__, **said}).decode()


def timed(gather: Callable[[Machine], Iterator[Sample]]) -> Callable[[Machine], Iterator[Sample]]:
    """A probe's function whose samples say how long each took to put together."""

    @wraps(gather)
    def with_seconds(machine: Machine) -> Iterator[Sample]:
        began = monotonic()
        for sample in gather(machine):
            yield msgspec.structs.replace(sample, seconds=sample.seconds or round(monotonic() - began, 3))
            began = monotonic()

    return with_seconds
