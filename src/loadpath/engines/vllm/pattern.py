"""What a pattern of a log line is, and what its maker sees: the match, the line, and what the run has told so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import StepMark
from loadpath.core.text import Capture, Line
from loadpath.core.units import gib
from loadpath.core.vocabulary import STEPS, Step

# A message may run on in the lines after it (wrapped terminals, multi-line records).
LINES_OF_A_MESSAGE = 4
LONGEST_NUMBER, LARGEST_NUMBER = 19, 1e18  # what is longer is no figure of a log
_RANK = re.compile(r"\b(?:TP|rank=)(\d{1,6})\b|\bVllmWorker-(\d{1,6})\b")


class Run:
    """What earlier lines of this run told: patterns read and change it."""

    def __init__(self, version: tuple[int, ...] = ()) -> None:
        self.version = version
        self.block_tokens = 16
        self.hybrid = False
        self.multimodal = False
        self.eager = False
        self.dead = False
        """A fatal error was printed: what follows is not an orderly stop."""
        self.stopping = False
        """It was told to stop: errors from here on are part of the end."""
        self.ready = False
        self.step: Step = "process-start"
        self.placed = False
        """Some line has shown a step: only then is it known where a failure stands."""
        self.graphs: dict[str, int] = {}
        """Graphs to capture, by the bar's name."""
        self.seen: set[tuple[Any, ...]] = set()

    def once(self, *key: Any) -> bool:
        """True the first time for `key`."""
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    @property
    def present(self) -> Step:
        """The step in which the run is: the furthest that was seen, or the one after it where it has ended."""
        if self.ready:
            return "serving"
        ended = ("ended", self.step) in self.seen
        return STEPS[STEPS.index(self.step) + 1] if ended and self.step != "shutdown" else self.step

    def reach(self, step: Step) -> None:
        if STEPS.index(step) > STEPS.index(self.step):
            self.step = step


class Seen:
    """A line that a pattern matched."""

    def __init__(self, capture: Capture, lines: Sequence[Line], index: int, match: re.Match[str], run: Run) -> None:
        self.capture, self.lines, self.index, self.match, self.run = capture, lines, index, match, run
        self.line = lines[index]

    @cached_property
    def common(self) -> Any:
        return at(self.capture, self.line)

    @cached_property
    def rank(self) -> int | None:
        """The rank that the line's prefix names; None where it names none (a single GPU, or the engine core)."""
        return rank_of(self.line)

    @cached_property
    def message(self) -> str:
        """The line and the next few, joined: for messages that run over several lines."""
        return " ".join(line.text for line in self.lines[self.index : self.index + LINES_OF_A_MESSAGE])

    def group(self, name: str | int) -> str | None:
        return self.match[name]

    def count(self, name: str | int) -> int | None:
        value = (self.match[name] or "").replace(",", "")
        return int(value) if value.isdecimal() and len(value) < LONGEST_NUMBER else None

    def number(self, name: str | int) -> float | None:
        return figure(self.match[name])

    def size(self, name: str | int) -> int | None:
        """Bytes of a group in GiB (also where vLLM before 0.8.4 printed "GB": it divided by 2^30)."""
        value = self.number(name)
        return gib(value) if value is not None else None

    def mark(self, step: Step, event: Any, seconds: float | None = None, what: str = "") -> StepMark:
        self.run.reach(step)
        self.run.placed = True
        if event == "ended":
            self.run.once("ended", step)
        return StepMark(**self.common, step=step, event=event, seconds=seconds, what=what)


class Pattern(msgspec.Struct, frozen=True):
    """A line's words → facts. `literal` is in every line that `regex` can match (looked for first, case matters)."""

    literal: str
    regex: str
    make: Callable[[Seen], Iterator[Fact]]


@cache
def compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


def figure(text: str | None) -> float | None:
    """A printed number; None where it is none (a full stop that ended the sentence does no harm)."""
    try:
        value = float((text or "").replace(",", "").rstrip("."))
    except ValueError:
        return None
    return value if abs(value) < LARGEST_NUMBER else None


def rank_of(line: Line) -> int | None:
    if line.origin.rank is not None:
        return line.origin.rank
    name = line.origin.process or line.raw[:80]
    match = _RANK.search(name) if "Worker" in name else None
    return int(match[1] or match[2]) if match else None
