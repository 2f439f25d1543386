"""Two models on the same cards: what each is made of, and what it leaves; where both say "4-bit", what differs."""

from __future__ import annotations

import msgspec

from loadpath.core.plan import Identity, Plan
from loadpath.core.table import Cell, Column, Table
from loadpath.core.units import show_bytes, show_count
from loadpath.forecast.deploy import deployment
from loadpath.forecast.planned import planned
from loadpath.forecast.request import Request
from loadpath.planning.identity import differences


def beside(one: Plan, request: Request, model: str) -> Table:
    """The plan of `request` beside that of another model with the same cards and settings. Raises PlanRefused."""
    other = planned(deployment(msgspec.structs.replace(request, model=model)))
    rows: list[tuple[Cell, ...]] = [
        (name, getattr(one.identity, field, ""), getattr(other.identity, field, ""))
        for name, field in zip(_FIELDS, Identity.__struct_fields__, strict=True)
    ]
    rows = [row for row in rows if row[1] or row[2]]
    rows.append(("weights in memory", show_bytes(one.weights_bytes), show_bytes(other.weights_bytes)))
    rows.append(("KV cache", _room(one), _room(other)))
    columns = (Column(""), Column(one.model), Column(other.model))
    return Table("beside", "Side by side", columns, tuple(rows), _note(one, other))


_FIELDS = ("stored as", "activations", "cache elements", "multiply", "accumulate", "kernel", "not the native path")


def _room(made: Plan) -> str:
    return f"{show_bytes(made.kv_bytes)}, {show_count(made.kv_tokens)} tokens"


def _note(one: Plan, other: Plan) -> str:
    if one.identity is None or other.identity is None:
        return "The numbers of one of them are not known."
    found = differences(one.identity, other.identity)
    if not found:
        return "Numerically the same kind: what differs is the model."
    return f"They differ in {len(found)} points, so their answers and speed do: measure both before one replaces the other."
