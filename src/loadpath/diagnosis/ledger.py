"""The memory ledger: where each GPU's memory went, as the engine printed it, and what follows from its figures.

    budget = total × utilisation
    KV pool = budget − weights − non-torch − activation peak (− graphs where the release takes their estimate away)

A part is `read` from the log or `computed` from figures in it; what its parts do not explain is `unaccounted`.
"""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.engine import GraphsCaptured, KvPool, MemoryBreakdown, WeightsLoaded
from loadpath.core.facts.errors import FreeBelowDesired
from loadpath.core.report import MemoryLedger, MemoryPart
from loadpath.core.units import MIB
from loadpath.planning.kv import budget, default_utilisation, subtracts_graphs

_FIELDS = (
    "total_bytes", "utilisation", "budget_bytes", "weights_bytes", "non_torch_bytes", "activation_bytes", "graph_bytes",
    "consumed_bytes", "kv_bytes",
)  # fmt: skip
SMALLEST_REST = 64 * MIB  # figures are printed to 0.01 GiB, so a few of them leave rests of this size
Figures = dict[str, float]


def ledger(case: Case) -> tuple[MemoryLedger, ...]:
    """One ledger for each rank that told of its memory; GPU 0 where no rank is named. () for CPU backends."""
    if any(pool.device == "CPU" for pool in case.all(KvPool)):
        return ()
    ranks = _ranks(case)
    made = (_of(case, rank, figures) for rank, figures in sorted(ranks.items()))
    return tuple(one for one in made if one is not None)


def _ranks(case: Case) -> dict[int, Figures]:
    """The figures of each rank: what a rank prints is its own, what no rank is named for holds for all."""
    common: Figures = {}
    ranks: dict[int, Figures] = {}
    for fact in case.all(MemoryBreakdown):
        own = common if fact.rank is None else ranks.setdefault(fact.rank, {})
        own.update({name: value for name in _FIELDS if (value := getattr(fact, name)) is not None})
    for loaded in case.all(WeightsLoaded):
        if loaded.bytes is not None:
            own = common if loaded.rank is None else ranks.setdefault(loaded.rank, {})
            own.setdefault("weights_bytes", loaded.bytes)
    for pool in case.all(KvPool):
        if pool.bytes is not None:
            common.setdefault("kv_bytes", pool.bytes)
    return {rank: common | own for rank, own in ranks.items()} or ({0: common} if common else {})


def _of(case: Case, rank: int, figures: Figures) -> MemoryLedger | None:
    total = _total(case, figures)
    share = figures.get("utilisation") or _share(case)
    if share is None and total is not None and case.engine == "vllm":
        share = default_utilisation(case.version)
    allowed = figures.get("budget_bytes")
    if allowed is None and total is not None and share is not None:
        allowed = budget(total, share, case.version)
    parts = _parts(case, figures)
    if not parts:
        return None
    if allowed is not None and "kv_bytes" in figures and _complete(figures):
        parts += _rest(case, allowed, parts)
    return MemoryLedger(
        rank, round(total) if total is not None else None, tuple(parts),
        budget_bytes=round(allowed) if allowed is not None else None, utilisation=share,
    )  # fmt: skip


def _complete(figures: Figures) -> bool:
    """Whether weights and activations are known, so that a rest means something."""
    return "weights_bytes" in figures or "consumed_bytes" in figures


def _parts(case: Case, figures: Figures) -> list[MemoryPart]:
    parts: list[MemoryPart] = []
    weights, consumed = figures.get("weights_bytes"), figures.get("consumed_bytes")
    if weights is not None:
        parts.append(MemoryPart("weights", round(weights)))
    if consumed is not None and weights is None:
        parts.append(MemoryPart("weights and non-torch", round(consumed)))
    elif consumed is not None and weights is not None:
        parts.append(MemoryPart("non-torch", max(0, round(consumed - weights)), "computed"))
    if (other := figures.get("non_torch_bytes")) is not None and consumed is None:
        parts.append(MemoryPart("non-torch", round(other)))
    if (peak := figures.get("activation_bytes")) is not None:
        parts.append(MemoryPart("activation peak", round(peak)))
    if (graphs := _graphs(case, figures)) is not None:
        parts.append(MemoryPart("CUDA graphs", graphs))
    if (pool := figures.get("kv_bytes")) is not None:
        parts.append(MemoryPart("KV cache", max(0, round(pool))))
    return parts


def _graphs(case: Case, figures: Figures) -> int | None:
    """What the capture took; its estimate where it was not reached."""
    took = next((g.bytes for g in reversed(case.all(GraphsCaptured)) if g.bytes is not None), None)
    value = took if took is not None and took > 0 else figures.get("graph_bytes")
    return round(value) if value is not None and value > 0 else None


def _rest(case: Case, allowed: float, parts: list[MemoryPart]) -> list[MemoryPart]:
    """What the budget holds beyond the parts: the activation peak and non-torch memory where they are not printed."""
    inside = sum(p.bytes for p in parts if p.name != "CUDA graphs" or subtracts_graphs(case.version))
    left = round(allowed - inside)
    if abs(left) < SMALLEST_REST:
        return []
    names = {p.name for p in parts}
    if left > 0 and "activation peak" not in names:
        return [MemoryPart("activation peak and non-torch", left, "computed")]
    return [MemoryPart("unaccounted", left, "computed")]


def _total(case: Case, figures: Figures) -> float | None:
    if (total := figures.get("total_bytes")) is not None:
        return total
    seen = next((f.total_bytes for f in case.all(FreeBelowDesired) if f.total_bytes), None)
    return float(seen) if seen is not None else None


def _share(case: Case) -> float | None:
    value = case.setting("gpu-memory-utilization", "mem-fraction-static")
    try:
        return float(value) if value else None
    except ValueError:
        return None
