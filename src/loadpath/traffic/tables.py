"""The tables of a benchmark's report: latencies, the levels of a sweep, warm-up, errors."""

from __future__ import annotations

from loadpath.core.table import Cell, Column, Table
from loadpath.core.traffic import BenchResult, Figures, Level, Spread

_LATENCIES = (("TTFT", "ttft"), ("ITL", "itl"), ("gap between chunks", "gap"), ("TPOT", "tpot"), ("E2E", "e2e"),
              ("sent late by", "delay"))  # fmt: skip
_POINTS = ("mean", "p50", "p90", "p95", "p99")
_MOST_SHAPES = 8
_SHOWN_DELAY = 0.005  # seconds at p99 from which the client's own delay is worth a row


def tables_of(result: BenchResult) -> tuple[Table, ...]:
    """All that apply, the most wanted first."""
    measured = [level for level in result.levels if level.figures]
    made: list[Table] = []
    if len(measured) > 1:
        made.append(_sweep(result, measured))
    if measured:
        shown = _shown(result, measured)
        made += [_rates(shown), _latencies(shown)]
    if warm := _warm_up(result):
        made.append(warm)
    if errors := _errors(measured):
        made.append(errors)
    return tuple(made)


def level_name(level: Level) -> str:
    """`concurrency 24`, `3.5 requests/s`, `trace`."""
    if level.concurrency:
        return f"concurrency {level.concurrency}"
    return f"{level.rate:g} requests/s" if level.rate else "trace"


def _shown(result: BenchResult, measured: list[Level]) -> Level:
    """The level whose latencies are shown: the best of a search, else the last."""
    if result.best_rate is not None:
        return next(level for level in measured if level.rate == result.best_rate)
    return measured[-1]


def _known(level: Level) -> Figures:
    assert level.figures is not None
    return level.figures


def _rates(level: Level) -> Table:
    found = _known(level)
    rows: list[tuple[Cell, ...]] = [
        ("requests", f"{found.completed:,} of {found.requests:,} completed in {found.seconds:,.1f} s"),
        ("request rate", _with_ci(found, "request_rate", "requests/s", 3)),
    ]
    if found.output_rate is not None:
        rows.append(("output", _with_ci(found, "output_rate", "tokens/s", 1)))
    if found.input_rate is not None:
        rows.append(("input", _with_ci(found, "input_rate", "tokens/s", 1)))
    if found.goodput_rate is not None and found.good_share is not None:
        rows.append(
            ("goodput", f"{_with_ci(found, 'goodput_rate', 'requests/s', 3)}, {found.good_share:.1%} met the SLO")
        )
    if found.completed and found.input_tokens is not None:
        out = f" in, {found.output_tokens / found.completed:,.0f} out" if found.output_tokens else " in"
        rows.append(("tokens of a request", f"{found.input_tokens / found.completed:,.0f}{out}{_basis(found)}"))
    if found.cached_tokens is not None and found.input_tokens:
        rows.append(("from the prefix cache", f"{found.cached_tokens / found.input_tokens:.1%} of the prompt tokens"))
    rows.append(("under way", f"{found.mean_in_flight:.1f} on average, {found.most_in_flight} at most"))
    return Table("bench-rates", f"Throughput, {level_name(level)}", (Column("figure"), Column("value")), tuple(rows))


def _basis(found: Figures) -> str:
    words = {
        "usage": "the server's usage",
        "tokenizer": "a local tokenizer",
        "chunks": "one a chunk",
        "asked": "as asked",
    }
    told = [words[b] for b in (found.prompt_basis, found.output_basis) if b in words]
    return f" ({' and '.join(dict.fromkeys(told))})" if told else ""


def _with_ci(found: Figures, name: str, unit: str, digits: int) -> str:
    value, width = getattr(found, name), found.ci.get(name)
    return f"{value:,.{digits}f}{f' ±{width:,.{digits}f}' if width is not None else ''} {unit}"


def _latencies(level: Level) -> Table:
    found = _known(level)
    rows: list[tuple[Cell, ...]] = []
    for label, name in _LATENCIES:
        own: Spread | None = getattr(found, name)
        if own is None or (name == "delay" and own.p99 < _SHOWN_DELAY):
            continue
        if name == "gap" and (found.tokens_per_chunk or 1.0) < 1.02 and found.itl and own.p99 <= found.itl.p99 * 1.05:
            continue  # one token a chunk: the gap is the ITL
        rows.append((label, *(getattr(own, point) for point in _POINTS), own.maximum))
    columns = (Column("latency"), *(Column(point, "seconds") for point in _POINTS), Column("most", "seconds"))
    note = "Latencies count from the intended send time."
    if found.tokens_per_chunk and found.tokens_per_chunk >= 1.02:
        note += f" Chunks carried {found.tokens_per_chunk:.2f} tokens on average: ITL is each gap over its tokens."
    if found.ci:
        shown = [("TTFT p50", "ttft.p50"), ("TTFT p99", "ttft.p99"), ("ITL p50", "itl.p50"), ("ITL p99", "itl.p99")]
        told = [f"{label} ±{found.ci[name] * 1e3:.3g} ms" for label, name in shown if name in found.ci]
        note += f" 95 % confidence across {len(level.repeats)} repeats: {', '.join(told)}."
    return Table("bench-latency", f"Latency, {level_name(level)}", columns, tuple(rows), note)


def _sweep(result: BenchResult, measured: list[Level]) -> Table:
    slo = bool(result.settings.slo)
    columns = [
        Column("load"),
        Column("req/s"),
        Column("output", "tokens/s"),
        Column("TTFT p50", "seconds"),
        Column("TTFT p99", "seconds"),
        Column("ITL p50", "seconds"),
        Column("ITL p99", "seconds"),
        Column("errors"),
    ]
    if slo:
        columns += [Column("met SLO", "share"), Column("goodput")]
    rows = []
    for level in measured:
        found = _known(level)
        row: list[Cell] = [
            level_name(level).replace("concurrency ", "x").replace("requests/s", "req/s"),
            round(found.request_rate, 3),
            found.output_rate,
            found.ttft.p50 if found.ttft else None,
            found.ttft.p99 if found.ttft else None,
            found.itl.p50 if found.itl else None,
            found.itl.p99 if found.itl else None,
            sum(found.errors.values()),
        ]
        rows.append(tuple(row + ([found.good_share, found.goodput_rate] if slo else [])))
    note = ""
    if result.settings.search:
        limits = ", ".join(f"{name} {limit * 1e3:g} ms" for name, limit in result.settings.slo.items())
        best = result.best_rate
        note = (
            f"The highest rate at which {result.settings.slo_share:.0%} of the requests kept {limits}: {best:g} requests/s."
            if best is not None
            else f"No rate was found at which {result.settings.slo_share:.0%} of the requests kept {limits}."
        )
    return Table("bench-sweep", "Levels of load", tuple(columns), tuple(rows), note)


def _warm_up(result: BenchResult) -> Table | None:
    shown = [w for w in result.warm_up if w.requests or not w.steady]
    quiet = sorted((w for w in result.warm_up if w.steady and not w.requests), key=lambda w: -w.seen)
    shown = (shown + quiet)[:_MOST_SHAPES]
    rows: list[tuple[Cell, ...]] = [
        (w.bucket or "all", w.seen, w.requests, w.cold_ttft, w.steady_ttft, "as asked" if w.given else w.steady)
        for w in sorted(shown, key=result.warm_up.index)
    ]
    if not rows:
        return None
    columns = (
        Column("shape"),
        Column("seen", "requests"),
        Column("left out", "requests"),
        Column("the first", "seconds"),
        Column("once steady", "seconds"),
        Column("steady"),
    )
    whys = list(dict.fromkeys(f"{w.bucket}: {w.why}" for w in result.warm_up if not w.steady))
    return Table("bench-warm-up", "Warm-up", columns, tuple(rows), ". ".join(whys[:3]))


def _errors(measured: list[Level]) -> Table | None:
    rows = tuple((level_name(level), kind, count) for level in measured for kind, count in _known(level).errors.items())
    if not rows:
        return None
    columns = (Column("load"), Column("error"), Column("requests"))
    return Table("bench-errors", "Errors of measured requests", columns, rows)
