"""A result as a file: JSON with one exchange a line (so that it can be read line by line), or CSV of the exchanges."""

from __future__ import annotations

import csv
import io

import msgspec

from loadpath.core.traffic import BENCH_SCHEMA, BenchResult, Exchange
from loadpath.traffic.statistics import e2e, tokens_per_chunk, tpot, ttft

_COLUMNS = ("level", "repeat", "phase", "bucket", "intended", "sent", "first", "last", "end", "ttft", "tpot", "e2e", "chunks",
            "tokens_per_chunk", "prompt_tokens", "output_tokens", "cached_tokens", "status", "error", "finish")  # fmt: skip


def to_json(result: BenchResult, *, chunks: bool = True) -> bytes:
    """The whole result. `chunks` False leaves out the time of every chunk, by far the most of it.

    Every list of records has one record a line.
    """
    kept = result.exchanges
    if not chunks:
        kept = tuple(msgspec.structs.replace(x, chunk_times=()) for x in kept)
    fields = msgspec.structs.asdict(msgspec.structs.replace(result, exchanges=kept))
    parts = []
    for name, value in fields.items():
        if value in ((), "", None):
            continue
        if isinstance(value, tuple) and isinstance(value[0], msgspec.Struct):
            rows = b",\n".join(msgspec.json.encode(row) for row in value)
            parts.append(b'"%b": [\n%b\n]' % (name.encode(), rows))
        else:
            parts.append(b'"%b": %b' % (name.encode(), msgspec.json.encode(value)))
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


def from_json(data: bytes) -> BenchResult:
    """Raises msgspec.MsgspecError for what is no result of ours."""
    result = msgspec.json.decode(data, type=BenchResult)
    if result.schema != BENCH_SCHEMA:
        raise msgspec.ValidationError(f"the schema is {result.schema!r}, not {BENCH_SCHEMA!r}")
    return result


def to_csv(result: BenchResult) -> str:
    """One row a request, times in seconds; empty where a point was not reached."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for exchange in result.exchanges:
        writer.writerow(_row(exchange))
    return out.getvalue()


def _row(x: Exchange) -> list[object]:
    made: dict[str, object] = {
        "ttft": _rounded(ttft(x)), "tpot": _rounded(tpot(x)), "e2e": _rounded(e2e(x)),
        "chunks": len(x.chunk_times), "tokens_per_chunk": round(tokens_per_chunk(x), 3),
    }  # fmt: skip
    return [made[name] if name in made else getattr(x, name) for name in _COLUMNS]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
