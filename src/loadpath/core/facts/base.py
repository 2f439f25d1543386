"""What every fact has: the span it was read from, and who printed it and when."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.text import NO_ORIGIN, Capture, Line, Origin, Span


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """One typed, immutable thing that a capture states. Units: bytes, seconds, tokens, watts, MHz, °C.

    `text` is the line as pasted (the first one, for facts of several lines), kept as evidence. `run` is the
    capture's run: which start of the server in that source this belongs to.
    """

    span: Span
    origin: Origin = NO_ORIGIN
    text: str = ""
    run: int = 1


def at(capture: Capture, first: Line, last: Line | None = None) -> Any:
    """The common fields of a fact read from `first` (..`last`) of `capture`: pass them on with `**`."""
    return {"span": capture.span(first, last), "origin": first.origin, "text": first.raw.strip(), "run": capture.run}
