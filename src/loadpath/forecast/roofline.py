"""`loadpath roofline`: from names and figures to roofs and the work placed under them."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.knowledge.gpus import Gpu, by_id
from loadpath.planning.cards import CardUnknown, cards_of
from loadpath.planning.energy import Basis, Cap, CappedWork, RunEnergy, cap, decode_draws, run_energy, work_under
from loadpath.planning.rates import BadFormat, rate
from loadpath.planning.roofline import Placement, Roof, Work, place

SCHEMA = "loadpath.roofline/1"
MIG = " MIG "
"""Stands in the name of a card that is a slice of one."""


class RooflineRefused(ValueError):
    """What was asked cannot be drawn; the message says why and what would do."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Roofs, and every piece of work under every roof. `energy`: of one run.

    Energy and the power limit's effect are those of the measured time, else of the floor under the first roof.
    """

    roofs: tuple[Roof, ...]
    work: tuple[Placement, ...]
    energy: dict[str, RunEnergy] = {}
    power_limit: Cap | None = None
    capped: tuple[CappedWork, ...] = ()
    notes: tuple[str, ...] = ()


def board(name: str) -> Gpu:
    """The board that people call `name`. Raises `RooflineRefused` where there is none, or only a slice of one."""
    try:
        cards = cards_of(name)
    except CardUnknown as error:
        raise RooflineRefused(str(error)) from error
    found = by_id(cards[0].id) if len(set(cards)) == 1 else None
    if found is None:
        raise RooflineRefused(f"{name}: one card of the GPU table was expected (or --peak and --bandwidth)")
    if MIG in cards[0].name:
        raise RooflineRefused(f"{name}: the table has no rates of slices: give --peak and --bandwidth")
    return found


def given_roof(peak: float, bandwidth: float) -> Roof:
    """The roof of two figures that the user states."""
    return Roof(name="given roof", peak_flops_per_s=peak, bandwidth_bytes_per_s=bandwidth)


def roofs_of(
    gpu: Gpu, dtypes: tuple[str, ...], bandwidth: float | None = None
) -> tuple[tuple[Roof, ...], tuple[str, ...]]:
    """The board's roofs for some formats, and notes on them. Raises `RooflineRefused` where it has no path for one."""
    made, notes = [], list[str]()
    for dtype in dtypes:
        try:
            found = rate(gpu, dtype)
        except BadFormat as error:
            raise RooflineRefused(str(error)) from error
        if found.flops_per_s is None:
            can = [name for name in sorted(gpu.tflops) if rate(gpu, name).flops_per_s]
            raise RooflineRefused(f"{found.refused}. It has: {', '.join(can) or 'no listed rate'}.")
        notes += [f"{found.dtype}: {note}" for note in found.notes]
        made.append(
            Roof(
                name=f"{gpu.names[0].removeprefix('NVIDIA ')} {found.dtype}",
                peak_flops_per_s=found.flops_per_s,
                bandwidth_bytes_per_s=bandwidth or gpu.bandwidth_gbs * 1e9,
                source="GPU table: " + "; ".join(gpu.source),
                confidence=gpu.confidence,
            )
        )
    notes.append("dense rates, 32-bit accumulation; sparse figures of datasheets are twice as high and not counted")
    return tuple(made), tuple(notes)


def roofline(
    roofs: tuple[Roof, ...],
    work: tuple[Work, ...],
    *,
    gpu: Gpu | None = None,
    watts: float | None = None,
    power_limit: float | None = None,
    tokens: int | None = None,
    notes: tuple[str, ...] = (),
) -> Roofline:
    """All work under all roofs, the energy of a run where watts are known, and the effect of a power limit."""
    if power_limit is not None and gpu is None:
        raise RooflineRefused("--power-limit needs --gpu: its effect depends on the share of the board's own limit")
    drawn = watts or (gpu.tdp_w if gpu else None)
    placed = tuple(place(item, roof) for item in work for roof in roofs)
    limit = cap(gpu, power_limit) if gpu and power_limit is not None else None
    if limit and watts and watts <= limit.watts:
        notes += (f"the measured {watts:,.0f} W stay below that limit: it changes nothing here",)
    first = [place(item, roofs[0]) for item in work]
    basis: Basis = "given" if watts else "limit"
    return Roofline(
        roofs=roofs,
        work=placed,
        energy={p.work: run_energy(_seconds(p), drawn, basis, tokens) for p in first} if drawn else {},
        power_limit=limit,
        capped=tuple(
            made for p in first if limit and (not watts or watts > limit.watts) and (made := _capped(limit, p))
        ),
        notes=notes + _draw_notes(first, watts, drawn),
    )


def _draw_notes(placed: list[Placement], watts: float | None, drawn: float | None) -> tuple[str, ...]:
    """What bandwidth-bound work was measured to draw, where the board's limit had to be assumed."""
    if watts or not drawn or not any(p.memory_seconds > p.compute_seconds for p in placed):
        return ()
    draws = sorted(decode_draws(), key=lambda draw: draw[1])
    (low_card, low, _), (high_card, _, high) = draws[0], draws[-1]
    said = f"from {low:.0%} of the limit ({low_card}) to {high:.0%} ({high_card})"
    return (f"decode was published to draw {said}: --watts takes the figure of your card",)


def _seconds(placed: Placement) -> float:
    """The measured time of the work, else its floor."""
    return placed.measured_seconds or placed.floor_seconds


def _capped(limit: Cap, placed: Placement) -> CappedWork | None:
    bound = placed.memory_seconds >= placed.compute_seconds
    return work_under(limit, placed.work, _seconds(placed), memory_bound=bound)


def to_document(made: Roofline) -> dict[str, Any]:
    """The JSON document: figures with their units in the keys."""
    body = msgspec.to_builtins(made)
    for roof, own in zip(made.roofs, body["roofs"], strict=True):
        own["ridge_flops_per_byte"] = roof.ridge_flops_per_byte
    return {"schema": SCHEMA, "roofline": body}
