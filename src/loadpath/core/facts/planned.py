"""Facts of something that was planned, where no engine's log line says it."""

from __future__ import annotations

import msgspec

from loadpath.core.facts.base import Fact


class Alternative(msgspec.Struct, frozen=True):
    """The same training with one thing changed: the option for it, and what a GPU then holds (bytes)."""

    what: str
    command: str
    bytes: int


class TrainingNeed(Fact, frozen=True, kw_only=True):
    """What one GPU of a training run has to hold, by arithmetic, beside what it has. `largest`: the greatest part."""

    method: str
    model: str
    needed_bytes: int
    total_bytes: int
    gpu: str
    largest: str
    largest_bytes: int
    bytes_per_parameter: float
    exact_bytes: int = 0
    """Of the needed bytes: those that are arithmetic alone (weights, gradients, states)."""
    alternatives: tuple[Alternative, ...] = ()
