"""Several processes on one card: what time-slicing, MPS and MIG isolate and cost, and what is left for each engine.

What each way isolates is NVIDIA's own description: time-slicing and MPS (Multi-Process Service documentation), MIG
(Multi-Instance GPU user guide).
"""

from __future__ import annotations

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.table import Cell, Column, Table
from loadpath.engines.registry import flag
from loadpath.forecast.commands import lever
from loadpath.forecast.deploy import deployment, with_settings
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused, Request
from loadpath.knowledge.gpus import by_id
from loadpath.planning.deployment import Deployment

COLUMNS = (Column("way"), Column("each may use", "bytes"), Column("fits"), Column("KV of all", "tokens"))
_EACH = "weights and a CUDA context for each"
WAYS = (
    ("one process, batching", "requests from each other, as the engine does", "nothing"),
    ("time-slicing", "nothing: no memory limit, one fault or OOM can take the others", f"{_EACH}; they take turns"),
    ("MPS", "shares of the SMs and a memory limit, where set; a fatal fault ends all clients", _EACH),
    ("MIG", "memory, cache, SMs and faults, in hardware", f"{_EACH}; the slices' fixed sizes"),
)
_SAYS = (Column("way"), Column("isolates"), Column("costs"))
SHARE = 0.9
"""Of the card, divided among the processes that share it without slices."""


def sharing(request: Request, processes: int) -> tuple[Table, Table]:
    """What each way isolates and costs, and what it leaves for the cache. Raises PlanRefused."""
    whole = deployment(request)
    if len(whole.cards) != 1:
        raise PlanRefused("--share divides one card: plan for one (--gpus 1)")
    if processes < 2:
        raise PlanRefused("--share K: two processes at least were expected")
    one = planned(whole)
    rows: list[tuple[Cell, ...]] = [("one process, batching", *_figures(one, 1))]
    part = _divided(whole, processes)
    if part is not None:
        rows.append((f"time-slicing, {processes}", *_figures(part, processes)))
        rows.append((f"MPS, {processes}", *_figures(part, processes)))
    rows += _slices(request, whole, processes)
    title = f"{processes} processes on one {whole.cards[0].name}"
    figures = Table("sharing", title, COLUMNS, tuple(rows), _why(one, rows))
    return Table("ways-to-share", "What each way isolates and costs", _SAYS, WAYS), figures


def _figures(made: Plan | None, processes: int) -> tuple[Cell, ...]:
    if made is None:
        return (None, False, None)
    return (made.budget_bytes, made.fits, made.kv_tokens * processes)


def _divided(whole: Deployment, processes: int) -> Plan | None:
    """The plan of one of several processes that divide the card by their memory share; None without such a flag."""
    share = round(SHARE / processes, 3)
    settings = lever(whole.engine, "memory-share", share)
    return planned(with_settings(whole, settings)) if settings and flag(whole.engine, "memory-share", share) else None


def _slices(request: Request, whole: Deployment, processes: int) -> list[tuple[Cell, ...]]:
    """A row for each MIG profile of the card that exists often enough."""
    gpu = by_id(whole.cards[0].id)
    rows: list[tuple[Cell, ...]] = []
    for profile in gpu.mig_profiles if gpu else ():
        name, _, most = profile.partition(":")
        if "+" in name or int(most or 1) < processes:
            continue
        try:
            made = planned(deployment(msgspec.structs.replace(request, gpus=(f"{request.gpus[0]} {name}",), count=1)))
        except PlanRefused:
            continue  # the profile's memory is not in the table
        rows.append((f"MIG {name}, {processes}", *_figures(made, processes)))
    return rows


def _why(one: Plan, rows: list[tuple[Cell, ...]]) -> str:
    best = max((row[3] for row in rows[1:] if row[2] and isinstance(row[3], int)), default=0)
    whole = f"One process holds {one.kv_tokens:,} tokens of KV cache for all users; "
    told = ""
    if not best:
        told = f"{whole}in no division does one request of {one.max_model_len:,} tokens fit. "
    elif best < one.kv_tokens:
        told = f"{whole}the best division holds {best:,} in all. "
    return (
        f"{told}For one model, one engine process with continuous batching is usually better: the weights are read once a "
        "step for every request, and the pool is shared. Divide for isolation, or for different models."
    )
