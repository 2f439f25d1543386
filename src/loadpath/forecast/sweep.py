"""Many plans at once: one table over the values of one or more settings."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from loadpath.core.report import Verdict
from loadpath.core.table import Cell, Column, Table
from loadpath.forecast.deploy import deployment, with_settings
from loadpath.forecast.flags import COUNTED, meant
from loadpath.forecast.planned import planned
from loadpath.forecast.request import PlanRefused, Request
from loadpath.planning.deployment import Deployment

MOST_POINTS = 100_000
FIGURES = (
    Column("weights", "bytes"), Column("activation peak", "bytes"), Column("KV cache", "bytes"), Column("KV", "tokens"),
    Column("requests at once"), Column("fits"),
)  # fmt: skip
REFUSED = "refused: "
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
        deployed, refusal = _deployed(_on(request, chosen))
        for values in itertools.product(*(v for _, v in inner)):
            settings = dict(zip((n for n, _ in inner), values, strict=True))
            point = chosen | settings
            figures = refusal if deployed is None else _figures(deployed, settings)
            rows.append((*(_number(point[name]) for name in names), *figures))
            if progress and len(rows) % 500 == 0:
                progress(len(rows), points)
    if rows and all(isinstance(row[-1], str) for row in rows):
        raise PlanRefused(str(rows[-1][-1]).removeprefix(REFUSED))
    if inner and len(rows) > 1:
        _refuse_idle(request, inner, rows, names)
    fitting = sum(1 for row in rows if row[-1] is True)
    verdict = Verdict("healthy" if fitting else "failed", f"{fitting:,} of {len(rows):,} settings fit.")
    table = Table(
        "sweep", f"{request.model}: {' x '.join(names)}", (*(Column(n) for n in names), *FIGURES), tuple(rows)
    )
    return table, verdict


def _deployed(request: Request) -> tuple[Deployment | None, tuple[Cell, ...]]:
    """The deployment; or, where the engine refuses so many cards, a row's figures that say why."""
    try:
        return deployment(request), ()
    except PlanRefused as error:
        return None, _refused(error)


def _refused(error: Exception) -> tuple[Cell, ...]:
    return (*(None for _ in FIGURES[:-1]), f"{REFUSED}{error}")


def _refuse_idle(
    request: Request, inner: Sequence[tuple[str, tuple[str, ...]]], rows: list[tuple[Cell, ...]], names: list[str]
) -> None:
    """Raises PlanRefused for a field that changes no figure and is no known setting: it is most likely misspelt."""
    for name, values in inner:
        known = COUNTED.get(request.engine, ())
        if len(values) < 2 or not known or name in known:
            continue
        at = names.index(name)
        seen: dict[tuple[Cell, ...], set[tuple[Cell, ...]]] = {}
        for row in rows:
            seen.setdefault((*row[:at], *row[at + 1 : len(names)]), set()).add(row[len(names) :])
        if all(len(figures) == 1 for figures in seen.values()):
            near = meant(request.engine, name) or next(iter(difflib.get_close_matches(name, known, 1)), "")
            hint = f": did you mean {near}?" if near else ""
            raise PlanRefused(f"--sweep {name}: no figure of the plan depends on it{hint}")


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
    try:
        made = planned(with_settings(deployed, settings) if settings else deployed)
    except PlanRefused as error:
        return _refused(error)
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
