"""`loadpath occupancy`: a kernel on one card, one compute capability, or all of them."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.forecast.roofline import RooflineRefused, board
from loadpath.knowledge.sm import Sm, sm_of, sms
from loadpath.planning.occupancy import Change, Kernel, Occupancy, Waves, changes, occupancy, waves

SCHEMA = "loadpath.occupancy/1"


class OccupancyRefused(ValueError):
    """What was asked cannot be computed; the message says why."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`found`: one for each capability asked for; `changes`: where it is one; `waves`: of a grid on a card."""

    kernel: Kernel
    found: tuple[Occupancy, ...]
    changes: tuple[Change, ...] = ()
    waves: Waves | None = None


def answer(kernel: Kernel, *, gpu: str | None, capability: str | None, grid: int | None = None) -> Answer:
    """The kernel's occupancy. Raises `OccupancyRefused` for names that are not known."""
    if gpu and capability:
        raise OccupancyRefused("--gpu and --sm say the same thing: give one")
    if grid and not gpu:
        raise OccupancyRefused("--grid needs --gpu: waves depend on how many SMs the card has")
    if gpu is None and capability is None:
        return Answer(kernel=kernel, found=tuple(occupancy(kernel, sm) for sm in sms()))
    count = None
    if gpu:
        capability, count = _card(gpu)
    sm = _sm(capability or "")
    found = occupancy(kernel, sm)
    return Answer(
        kernel=kernel,
        found=(found,),
        changes=changes(kernel, sm),
        waves=waves(found, grid, count) if grid and count and found.blocks_per_sm else None,
    )


def to_document(made: Answer) -> dict[str, Any]:
    """The JSON document."""
    return {"schema": SCHEMA, "occupancy": msgspec.to_builtins(made)}


def _card(name: str) -> tuple[str, int | None]:
    try:
        gpu = board(name)
    except RooflineRefused as error:
        raise OccupancyRefused(str(error)) from error
    return gpu.capability, gpu.sms


def _sm(capability: str) -> Sm:
    found = sm_of(capability)
    if found is None:
        known = ", ".join(sm.capability for sm in sms())
        raise OccupancyRefused(f"no limits are known of compute capability {capability!r}; they are of {known}")
    return found
