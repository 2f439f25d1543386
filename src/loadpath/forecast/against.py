"""A plan beside the log of a real start: predicted and logged, part by part, with the error."""

from __future__ import annotations

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.engine import Concurrency, GraphsCaptured, KvPool, MemoryBreakdown, WeightsLoaded
from loadpath.core.facts.placement import BufferPlaced
from loadpath.core.plan import Plan
from loadpath.core.table import Cell, Column, Table, Unit
from loadpath.forecast.commands import from_case
from loadpath.forecast.request import Request

COLUMNS = (Column("part"), Column("predicted"), Column("logged"), Column("error", "share"))


def logged_case(path: str) -> Case:
    """The case of a log. Raises OSError where it cannot be read."""
    from loadpath.reading.lines import named_lines
    from loadpath.reading.service import captures_of, case_of

    captures = [c for name, lines in named_lines([path], []) for c in captures_of(name, lines)]
    return case_of(captures, [])


def from_log(case: Case, source: str, asked: Request) -> Request:
    """What the log's own settings ask for, with what the person typed on top."""
    logged = from_case(case, source)
    return msgspec.structs.replace(
        asked,
        model=asked.model or logged.model,
        engine=logged.engine,
        count=asked.count or logged.count,
        settings={**logged.settings, **asked.settings},
        version=asked.version or logged.version,
    )


def against(plan: Plan, case: Case, source: str) -> Table:
    """Predicted beside logged: a row for each figure that either has."""
    rows = tuple(
        _row(name, getattr(plan, field), value, unit) for name, field, value, unit in _logged(case) if value is not None
    )
    note = (
        ""
        if rows
        else "The log prints none of these figures (weights, profile, KV cache): send one with the start in it."
    )
    return Table("against", f"Predicted and logged ({source})", COLUMNS, rows, note)


def _row(name: str, predicted: float, logged: float, unit: Unit) -> tuple[Cell, ...]:
    from loadpath.core.units import show_bytes, show_count

    show = show_bytes if unit == "bytes" else show_count if unit == "tokens" else "{:.2f}".format
    error = round(predicted / logged - 1, 5) if logged else None
    return (name, show(predicted), show(logged), error)


def _logged(case: Case) -> list[tuple[str, str, float | None, Unit]]:
    """(part, the plan's field, logged value, unit); of several ranks the one with the least room."""
    weights = max((w.bytes for w in case.all(WeightsLoaded) if w.bytes and not w.what), default=None)
    profile = case.all(MemoryBreakdown)
    graphs = case.last(GraphsCaptured)
    room = min((c.ratio for c in case.all(Concurrency)), default=None)
    return [
        ("weights", "weights_bytes", weights, "bytes"),
        ("activation peak", "activation_peak_bytes", _most(profile, "activation_bytes"), "bytes"),
        ("compute buffer", "activation_peak_bytes", _buffer(case, "compute"), "bytes"),
        ("non-torch", "non_torch_bytes", _most(profile, "non_torch_bytes"), "bytes"),
        ("CUDA graphs", "graph_bytes", graphs.bytes if graphs else None, "bytes"),
        ("KV cache", "kv_bytes", _cache(case, profile), "bytes"),
        ("KV tokens", "kv_tokens", min((p.tokens for p in case.all(KvPool) if p.tokens), default=None), "tokens"),
        ("concurrency", "max_concurrency", room, ""),
    ]


def _cache(case: Case, profile: list[MemoryBreakdown]) -> float | None:
    """The cache of one GPU: as profiled, as a ggml buffer, or the pool that was allocated."""
    profiled = min((b.kv_bytes for b in profile if b.kv_bytes), default=None)
    pool = min((p.bytes for p in case.all(KvPool) if p.bytes and p.device != "all"), default=None)
    return profiled or _buffer(case, "kv", "state") or pool


def _buffer(case: Case, *parts: str) -> int | None:
    """Bytes of ggml's buffers of these parts on one GPU: the most that any has."""
    sizes: dict[tuple[str, str], int] = {}
    for placed in case.all(BufferPlaced):
        if placed.part in parts and placed.on_gpu and not placed.planned:
            sizes[placed.device, placed.part] = placed.bytes
    devices = {device for device, _ in sizes}
    return max((sum(size for (on, _), size in sizes.items() if on == device) for device in devices), default=None)


def _most(profile: list[MemoryBreakdown], field: str) -> int | None:
    return max((value for b in profile if (value := getattr(b, field)) is not None), default=None)
