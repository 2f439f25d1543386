"""Progress bars of a checkpoint's load, where no other line tells whose log it is.

    Loading safetensors checkpoint shards:  45% Completed | 3/7 [00:02<00:02,  1.5it/s]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import Progress, StepMark
from loadpath.core.text import Capture

# Groups: what, percent, done, total, elapsed, left.
SHARDS = (
    r"(Loading \S+ checkpoint shards|Multi-thread loading shards|Prefetching checkpoint files"
    r"|Loading [^:|]{0,40}shards)"
    r":\s*(\d+)%.*?(?<!\d)(\d+)/(\d+)\b\)?(?:\s*\[([\d:]+)<([\d:?]+))?"
)
_SHARDS = re.compile(SHARDS)


def clock(text: str | None) -> float | None:
    """Seconds of a progress bar's `01:02` or `1:02:03`; None for `?`."""
    if not text or not re.fullmatch(r"[\d:]+", text):
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)


def read(capture: Capture) -> Iterator[Fact]:
    """The first and the last bar of each kind; an engine's own log is read by its engine."""
    if capture.kind != "log":
        return
    bars: dict[tuple[str, int], list[Progress]] = {}
    for line in capture.lines:
        if "shards" in line.text and (match := _SHARDS.search(line.text)):
            done, total = int(match[3]), int(match[4])
            bars.setdefault((match[1], total), []).append(
                Progress(
                    **at(capture, line), step="weight-load", what=match[1], done=done, total=total,
                    elapsed_seconds=clock(match[5]), left_seconds=clock(match[6]),
                )
            )  # fmt: skip
    for (what, _), own in bars.items():
        first, last = own[0], own[-1]
        yield StepMark(span=first.span, origin=first.origin, text=first.text, step="weight-load", event="began", what=what)
        yield first
        if last is not first:
            yield last
