"""The model and the cards that the user named, as a capture that the rules hold a benchmark against."""

from __future__ import annotations

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from loadpath.core.units import show_bytes
from loadpath.knowledge.gpus import by_id
from loadpath.knowledge.models import model as table_model
from loadpath.planning.cards import CardUnknown, cards_of
from loadpath.planning.step import step_of

SOURCE = "model and cards as named"
MIG = " MIG "


class PhysicsUnknown(ValueError):
    """The model or the card cannot be looked up; the message says which, and what would do."""


def work_of(model: str, gpu: str, count: int = 1, *, named: bool = True) -> bytes:
    """One line of JSON (`loadpath.step-work/1`) for `readers.step_work`. Raises PhysicsUnknown.

    `named`: the user named the checkpoint; False where `model` is the served name.
    A model of the bundled table is taken from there; others are opened: a folder, a file, a hub id.
    """
    try:
        cards = cards_of(gpu)
    except CardUnknown as error:
        raise PhysicsUnknown(str(error)) from error
    board = by_id(cards[0].id) if cards[0].id else None
    if board is None or MIG in cards[0].name or len(set(cards)) > 1:
        raise PhysicsUnknown(f"{gpu}: one card of the GPU table was expected, whole and of one sort")
    try:
        shape = table_model(model) or open_model(model).shape
    except ModelError as error:
        raise PhysicsUnknown(f"{error} (--checkpoint names what is served)") from error
    ranks = max(count, len(cards))
    step = step_of(shape, board, ranks)
    if step is None:
        raise PhysicsUnknown(f"{board.names[0]}: the GPU table holds no bandwidth or no rate for {shape.dtype}")
    if step.stored_bytes > cards[0].total_bytes * ranks:
        raise PhysicsUnknown(
            f"{show_bytes(step.stored_bytes)} of weights of {model} do not fit into {ranks} x {board.names[0]}: "
            "--gpus says how many cards there are, --checkpoint which weights"
        )
    told = {
        "schema": "loadpath.step-work/1",
        "model": model,
        "gpu": board.names[0],
        "gpus": ranks,
        "weight_bytes": step.load.weight_bytes,
        "expert_bytes": step.load.expert_bytes,
        "experts": step.load.experts,
        "experts_active": step.load.experts_active,
        "flops_per_token": step.load.flops_per_token,
        "head_flops": step.load.head_flops,
        "caches": msgspec.to_builtins(step.load.caches),
        "state_bytes": step.load.state_bytes,
        "bandwidth_bytes_per_s": step.cards.bandwidth_bytes_per_s,
        "flops_per_s": step.cards.flops_per_s,
        "cache_ways": step.cards.cache_ways,
        "dtype": step.dtype,
        "memory_bytes": cards[0].total_bytes,
        "stored_bytes": step.stored_bytes,
        "named": named,
    }
    return msgspec.json.encode(told) + b"\n"
