"""What the benchmark tools call the same things: from their names and units to the fields of `Benchmark`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from loadpath.core.facts.base import at
from loadpath.core.facts.traffic import Benchmark, Latency, Tool
from loadpath.core.text import Capture, Line

LATENCIES = ("ttft", "itl", "tpot", "e2e", "delay")
_STATISTICS = {
    "mean": "mean", "avg": "mean", "average": "mean", "median": "p50", "mdn": "p50", "p50": "p50", "p90": "p90", "p95": "p95",
    "p99": "p99", "min": "minimum", "max": "maximum",
}  # fmt: skip
_LATENCY_NAMES = {
    "ttft": "ttft", "time to first token": "ttft", "time_to_first_token": "ttft",
    "itl": "itl", "inter-token latency": "itl", "inter token latency": "itl", "inter_token_latency": "itl",
    "tpot": "tpot", "time per output token": "tpot", "time_per_output_token": "tpot",
    "e2e": "e2e", "e2el": "e2e", "e2e latency": "e2e", "e2e_latency": "e2e", "request latency": "e2e", "request_latency": "e2e",
    "end-to-end latency": "e2e",
}  # fmt: skip
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def statistic(name: str) -> str | None:
    """The field of `Latency` that a column or a prefix names (`Mean`, `mdn`, `P99`); None for others (`std`, `p75`)."""
    return _STATISTICS.get(name.strip().lower())


def latency_of(name: str) -> str | None:
    """The field of `Benchmark` that a latency's name means (`Inter Token Latency`, `E2EL`)."""
    return _LATENCY_NAMES.get(name.strip().lower())


def unit(text: str, default: str = "ms") -> float:
    """Seconds in the unit `text`."""
    return _UNITS.get(text.strip().lower(), _UNITS[default])


def number(value: Any) -> float | None:
    """A finite figure of a cell or a JSON value; None for texts, N/A, booleans and the -1 of what was not measured."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        found = _figure().fullmatch(value.strip())
        value = float(found[0].replace(",", "")) if found else None
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


@cache
def _figure() -> re.Pattern[str]:
    return re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def latency(values: Mapping[str, Any], factor: float = 1.0) -> Latency | None:
    """A distribution of named statistics (any spelling), times `factor`; None where it holds none above zero."""
    found: dict[str, float] = {}
    for name, value in values.items():
        field, figure = statistic(name), number(value)
        if field and figure is not None:
            found.setdefault(field, figure * factor)
    return Latency(**found) if any(found.values()) else None


def whole(value: Any) -> int | None:
    """A count."""
    figure = number(value)
    return None if figure is None else round(figure)


def benchmark(capture: Capture, first: Line, last: Line, tool: Tool, told: Mapping[str, Any], shown: str) -> Benchmark:
    """The fact of what was told: fields of `Benchmark`, unknown ones (None, "") left out. `shown`: for the evidence."""
    fields = {name: value for name, value in told.items() if value not in (None, "", {})}
    mean_of(fields, "input_tokens", "input_mean")
    mean_of(fields, "output_tokens", "output_mean")
    return Benchmark(**{**at(capture, first, last), "text": shown or first.raw.strip()}, tool=tool, **fields)


def mean_of(fields: dict[str, Any], total: str, mean: str) -> None:
    """Fill in the mean per completed request from the total, or the total from the mean."""
    done = fields.get("completed") or fields.get("requests")
    if done and fields.get(total) and mean not in fields:
        fields[mean] = fields[total] / done


def columns(text: str) -> list[str]:
    """The cells of a table's line: of Markdown, of a box, or of CSV."""
    for bar in ("┃", "│", "|"):
        if bar in text:
            return [cell.strip() for cell in text.strip().strip(bar).split(bar)]
    return list(_csv(text))


def _csv(text: str) -> Iterator[str]:
    import csv

    yield from (cell.strip() for row in csv.reader([text]) for cell in row)
