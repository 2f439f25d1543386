"""Energy of a token, and what a power limit does to a bound.

Energy is watts times time. A limit does not move the bound itself: the bandwidth stays until the driver lowers the memory
clock, the peak rate falls with the core clock by a law that differs from card to card. So the effect is given as the range
of published measurements at that share of the full limit, with how many there are, never as one modelled number.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

from loadpath.knowledge.gpus import Gpu
from loadpath.knowledge.power import Kind, Sweep, sweeps

JOULES_PER_KWH = 3.6e6
Basis = Literal["given", "limit"]


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of decoding. `basis`: the watts were `given` (measured), or are the board's power `limit`.

    At the limit and the bound's speed it is what a token costs a card that runs at both; slower engines take more,
    cards that stay below their limit take less.
    """

    watts: float
    basis: Basis
    joules_per_token: float
    tokens_per_kwh: float


class RunEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of one run of a piece of work; of a token where one knows how many a run makes."""

    watts: float
    basis: Basis
    joules_per_run: float
    joules_per_token: float | None = None
    tokens_per_kwh: float | None = None


class CapEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Speed under a limit, relative to the full one: least and most of the published measurements at that share."""

    work: Kind
    share: float
    least: float
    most: float
    cards: tuple[str, ...]
    sources: tuple[str, ...]

    def slowed(self, seconds: float) -> tuple[float, float]:
        """The least and the most that a time grows to."""
        return seconds / self.most, seconds / self.least


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """A power limit below the board's: `share` of it; `effects` by kind of work, without those that nobody measured so low.

    `refused`: why the board does not take the limit.
    """

    watts: float
    full_watts: float
    share: float
    effects: tuple[CapEffect, ...]
    refused: str = ""

    def effect(self, work: Kind) -> CapEffect | None:
        return next((effect for effect in self.effects if effect.work == work), None)


class CappedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A time with the full limit, and the range it grows to under a lower one; joules if either limit is drawn in full."""

    work: str
    seconds: float
    least_seconds: float
    most_seconds: float
    joules: float
    most_joules: float


def energy(tokens_per_s: float, watts: float, basis: Basis) -> Energy:
    """Energy of a token when `tokens_per_s` are made at `watts` (of all GPUs together)."""
    joules = watts / tokens_per_s
    return Energy(watts=watts, basis=basis, joules_per_token=joules, tokens_per_kwh=JOULES_PER_KWH / joules)


def run_energy(seconds: float, watts: float, basis: Basis, tokens: int | None = None) -> RunEnergy:
    """Energy of a run of so long that makes so many tokens (a decode step: one for each sequence)."""
    token = energy(tokens / seconds, watts, basis) if tokens else None
    return RunEnergy(
        watts=watts,
        basis=basis,
        joules_per_run=watts * seconds,
        joules_per_token=token.joules_per_token if token else None,
        tokens_per_kwh=token.tokens_per_kwh if token else None,
    )


def cap(gpu: Gpu, watts: float) -> Cap:
    """What a power limit of so many watts does to the board."""
    share = min(1.0, watts / gpu.tdp_w)
    return Cap(
        watts=watts,
        full_watts=gpu.tdp_w,
        share=share,
        effects=tuple(effect for kind in _kinds() if (effect := cap_effect(share, kind))),
        refused=_refused(gpu, watts),
    )


def cap_effect(share: float, work: Kind) -> CapEffect | None:
    """The range of published speeds at a share of the full limit; None where no sweep goes so low.

    A sweep that ended at a higher limit counts with its last speed: that card is no faster lower down.
    """
    own = [sweep for sweep in sweeps() if sweep.work == work and sweep.points]
    found = [(sweep, speed) for sweep in own if (speed := _at(sweep, share)) is not None]
    if not found:
        return None
    ended = [min(speed for _, speed in sweep.points) for sweep in own if _at(sweep, share) is None]
    return CapEffect(
        work=work,
        share=share,
        least=min([speed for _, speed in found] + ended),
        most=max(speed for _, speed in found),
        cards=tuple(dict.fromkeys(sweep.gpu for sweep, _ in found)),
        sources=tuple(dict.fromkeys(sweep.source for sweep, _ in found)),
    )


def work_under(cap: Cap, name: str, seconds: float, *, memory_bound: bool) -> CappedWork | None:
    """How a time of the work grows under the limit, by what bounds it; None where nobody measured so low."""
    effect = cap.effect("decode" if memory_bound else "compute")
    if effect is None:
        return None
    least, most = effect.slowed(seconds)
    return CappedWork(
        work=name,
        seconds=seconds,
        least_seconds=least,
        most_seconds=most,
        joules=cap.full_watts * seconds,
        most_joules=cap.watts * most,
    )


def decode_draws() -> tuple[tuple[str, float, float], ...]:
    """(card, least, most): shares of the full limit that decode was measured to draw without a lower one."""
    return tuple(
        (sweep.gpu, sweep.draw[0] / sweep.full_w, sweep.draw[1] / sweep.full_w)
        for sweep in sweeps()
        if sweep.work == "decode" and sweep.draw
    )


def _kinds() -> tuple[Kind, ...]:
    return ("decode", "speculative", "compute")


def _at(sweep: Sweep, share: float) -> float | None:
    """The sweep's speed at a share of its full limit, between neighbours on a line; None below its lowest point."""
    points = sorted({(1.0, 1.0), *((watts / sweep.full_w, speed) for watts, speed in sweep.points)})
    if share < points[0][0] or len(points) == 1:
        return None
    for (low, slow), (high, fast) in pairwise(points):
        if low <= share <= high:
            return slow + (fast - slow) * (share - low) / (high - low)
    return 1.0


def _refused(gpu: Gpu, watts: float) -> str:
    if len(gpu.tdp_range_w) == 2 and not gpu.tdp_range_w[0] <= watts <= gpu.tdp_range_w[1]:
        return f"{gpu.names[0]} takes limits from {gpu.tdp_range_w[0]} to {gpu.tdp_range_w[1]} W"
    return ""
