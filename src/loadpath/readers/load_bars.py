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
    r":\s*(\d+)%.*?(?<!\d)(\d{1,9})/(\d{1,9})\b\)?(?:\s*\[([\d:]{1,12})<([\d:?]{1,12}))?"
)
_SHARDS = re.compile(SHARDS)
# `model-00001-of-00004.safetensors:  12%|█▏  | 591M/4.98G [01:40<12:20, 5.92MB/s]`
_DOWNLOAD = re.compile(
    r"(\S+\.(?:safetensors|bin|gguf|pt))[^:%|]*:\s+\d+%\|[^|]*\|\s*(\d{1,6}(?:\.\d+)?[kMGT]?)/(\d{1,6}(?:\.\d+)?[kMGT]?)"
    r" \[([\d:]{1,12})<([\d:?]{1,12}),\s*[\d.]+[kMGT]?B/s"
)
_SCALE = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def clock(text: str | None) -> float | None:
    """Seconds of a progress bar's `01:02` or `1:02:03`; None for `?`."""
    if not text or not re.fullmatch(r"[\d:]+", text):
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)


def _size(text: str) -> int:
    """Bytes of tqdm's `591M` (powers of ten)."""
    return round(float(text.rstrip("kMGT")) * _SCALE.get(text[-1], 1))


def read(capture: Capture) -> Iterator[Fact]:
    """The first and the last bar of each kind; of an engine's own log only downloads, the rest is read by its engine."""
    yield from _downloads(capture)
    if capture.kind == "log":
        yield from _loads(capture)


def _downloads(capture: Capture) -> Iterator[Fact]:
    """The last bar of each file that is fetched (bytes done of bytes in all)."""
    last: dict[str, Progress] = {}
    for line in capture.lines:
        if "B/s" in line.text and (match := _DOWNLOAD.search(line.text)):
            last[match[1]] = Progress(
                **at(capture, line), step="weight-load", what=f"download of {match[1]}", done=_size(match[2]),
                total=_size(match[3]), elapsed_seconds=clock(match[4]), left_seconds=clock(match[5]),
            )  # fmt: skip
    yield from last.values()


def _loads(capture: Capture) -> Iterator[Fact]:
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
        yield StepMark(
            span=first.span, origin=first.origin, text=first.text, step="weight-load", event="began", what=what
        )
        yield first
        if last is not first:
            yield last
