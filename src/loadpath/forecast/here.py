"""The cards of this machine, for `--gpu here`: asked of NVML in a child process, as `check` does."""

from __future__ import annotations

import msgspec

from loadpath.core.facts.gpu import GpuState
from loadpath.core.sample import to_bytes
from loadpath.forecast.request import PlanRefused
from loadpath.knowledge.gpus import by_name
from loadpath.planning.cards import card_of
from loadpath.planning.deployment import Card


def cards_here() -> tuple[Card, ...]:
    """Every GPU that NVML lists, with what is free on it now. Raises PlanRefused where none is seen."""
    from loadpath.collect.driver_calls import gather_nvml
    from loadpath.collect.probe import Machine
    from loadpath.intake.clean import clean
    from loadpath.reading.service import captures_of, case_of

    samples = list(gather_nvml(Machine()))
    captures = [c for sample in samples for c in captures_of(sample.name, clean(to_bytes(sample)))]
    states = {state.index: state for state in case_of(captures, []).all(GpuState)}
    cards = tuple(card for _, state in sorted(states.items(), key=str) if (card := _card(state)) is not None)
    if not cards:
        said = "; ".join(f"{sample.command.rpartition('/')[2]}: {sample.outcome}" for sample in samples)
        raise PlanRefused(f"--gpu here: no GPU was seen on this machine ({said}); `loadpath check` says why")
    return cards


def _card(state: GpuState) -> Card | None:
    if not state.name or not state.total_bytes:
        return None
    gpu = by_name(state.name, state.total_bytes >> 20)
    known = card_of(gpu) if gpu else Card(name=state.name, total_bytes=state.total_bytes, assumed=True)
    free = None if state.used_bytes is None else max(0, known.total_bytes - state.used_bytes)
    return msgspec.structs.replace(known, free_bytes=free)
