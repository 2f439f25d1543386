"""Many plans at once: one table over the values of one or more settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from loadpath.core.report import Verdict
from loadpath.core.table import Cell, Column, Table
from loadpath.forecast.deploy import deployment, with_settings
from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.service import planned
from loadpath.planning.deployment import Deployment

MOST_POINTS = 100_000
FIGURES = (
    Column("weights", "bytes"), Column("activation peak", "bytes"), Column("KV cache", "bytes"), Column("KV", "tokens"),
    Column("requests at once"), Column("fits"),
)  # fmt: skip
_RANGE = re.compile(r"^(\d+(?:\.\d+)?):(\d+(?:\.\d+)?):(\*?)(\d+(?:\.\d+)?)$")


def parse_field(text: str) -> tuple[str, tuple[str, ...]]:
    """`"max-model-len=4096,8192"` or `"max-num-seqs=64:512:64"` (from:to:step) or `…=1024:65536:*2` (doubling).

    Raises PlanRefused with what was expected.
    """
    name, equals, values = text.partition("=")
    if not equals or not values or not name:
        raise PlanRefused(f"--sweep {text}: FIELD=V1,V2,… or FIELD=FROM:TO:STEP (or FROM:TO:*FACTOR) was expected")
    name = name.strip().lstrip("-").replace("_", "-")
    if (run := _RANGE.match(values)) is None:
        return name, _listed(text, values)
    first, last, times, step = float(run[1]), float(run[2]), bool(run[3]), float(run[4])
    if (times and (step <= 1 or first == 0)) or (not times and step == 0):
        raise PlanRefused(f"--sweep {text}: the step leads nowhere")
    found = tuple(_range(first, last, times, step))
    if not found:
        raise PlanRefused(f"--sweep {text}: FROM is above TO, so there is no point to plan")
    return name, found


def _listed(text: str, values: str) -> tuple[str, ...]:
    found = tuple(value.strip() for value in values.split(",") if value.strip())
    if not found:
        raise PlanRefused(f"--sweep {text}: no value is named")
    return found


def _range(first: float, last: float, times: bool, step: float) -> Iterator[str]:
    for i in range(MOST_POINTS + 1):
        value = first * step**i if times else first + i * step
        if value > last * (1 + 1e-12):
            return
        yield f"{value:.10g}"


def sweep(
    request: Request, fields: Sequence[tuple[str, tuple[str, ...]]], progress: Callable[[int, int], None] | None = None
) -> tuple[Table, Verdict]:
    """A row for each combination of values; `gpu` and `gpus` are fields too. Raises PlanRefused, naming the point."""
    points = 1
    for _, values in fields:
        points *= len(values)
    if points > MOST_POINTS:
        raise PlanRefused(f"--sweep: {points:,} points are more than {MOST_POINTS:,}")
    names = [name for name, _ in fields]
    outer = [(n, v) for n, v in fields if n in ("gpu", "gpus")]
    inner = [(n, v) for n, v in fields if n not in ("gpu", "gpus")]
    rows: list[tuple[Cell, ...]] = []
    for cards in itertools.product(*(values for _, values in outer)):
        chosen = dict(zip((n for n, _ in outer), cards, strict=True))
        deployed = deployment(_on(request, chosen))
        for values in itertools.product(*(v for _, v in inner)):
            settings = dict(zip((n for n, _ in inner), values, strict=True))
            point = chosen | settings
            rows.append((*(_number(point[name]) for name in names), *_figures(deployed, settings)))
            if progress and len(rows) % 500 == 0:
                progress(len(rows), points)
    fitting = sum(1 for row in rows if row[-1])
    verdict = Verdict("healthy" if fitting else "failed", f"{fitting:,} of {len(rows):,} settings fit.")
    table = Table(
        "sweep", f"{request.model}: {' x '.join(names)}", (*(Column(n) for n in names), *FIGURES), tuple(rows)
    )
    return table, verdict


def _on(request: Request, chosen: dict[str, str]) -> Request:
    count = chosen.get("gpus")
    if count is not None and (not count.isdigit() or count == "0"):
        raise PlanRefused(f"--sweep gpus={count}: whole numbers from 1 were expected")
    return msgspec.structs.replace(
        request,
        gpus=(chosen["gpu"],) if "gpu" in chosen else request.gpus,
        count=int(count) if count else request.count,
    )


def _figures(deployed: Deployment, settings: dict[str, str]) -> tuple[Cell, ...]:
    made = planned(with_settings(deployed, settings) if settings else deployed)
    return (
        made.weights_bytes, made.activation_peak_bytes, made.kv_bytes, made.kv_tokens,
        round(made.max_concurrency, 3), made.fits,
    )  # fmt: skip


def _number(text: str) -> Cell:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value
