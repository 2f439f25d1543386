"""A benchmark's figures against each other: rates, counts, latencies and concurrency are bound by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.traffic import Benchmark, Latency
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.traffic.floor import pace, request_seconds, tokens_a_step, tokens_made

CLOSE = 0.03
"""Two figures that are the same quantity differ by less: tools round, and count their duration a little differently."""
LOOSE = 0.15
"""The same for figures that are averages of different things (means of latencies, load that rises and falls)."""
PRINTED = 0.005
"""Half of the last digit of a rate as it is printed."""


class Contradiction(msgspec.Struct, frozen=True):
    """Two figures that cannot both be right: `sentence` has both, `off` their relative difference."""

    sentence: str
    off: float


def contradictions(bench: Benchmark) -> list[Contradiction]:
    """What does not add up, worst first."""
    found = [*_rates(bench), *_concurrency(bench), *_order(bench)]
    return sorted(found, key=lambda c: -c.off)


def _differ(first: float | None, second: float | None, most: float) -> float | None:
    """By how much two figures differ, where that is more than `most`."""
    if not first or not second:
        return None
    off = abs(first - second) / max(first, second)
    return off if off > most else None


def _rounding(rate: float) -> float:
    """How far a rate may be off by itself: tools print two decimals."""
    return PRINTED / rate


def _rates(bench: Benchmark) -> Iterator[Contradiction]:
    seconds, rate, out = bench.seconds, bench.request_rate, bench.output_rate
    if seconds and bench.completed and rate:
        own = bench.completed / seconds
        if off := _differ(own, rate, CLOSE + _rounding(rate)):
            yield Contradiction(
                f"{bench.completed} requests in {seconds:.4g} s are {own:.4g} requests/s, not {rate:.4g}", off
            )
    if seconds and bench.output_tokens and out:
        own = bench.output_tokens / seconds
        if off := _differ(own, out, CLOSE + _rounding(out)):
            said = f"{bench.output_tokens:,} output tokens in {seconds:.4g} s are {own:,.1f} tokens/s, not {out:,.1f}"
            yield Contradiction(said, off)
    if rate and out and bench.output_mean:
        made = rate * bench.output_mean
        if off := _differ(made, out, LOOSE + _rounding(rate)):
            said = f"{rate:.4g} requests/s of {bench.output_mean:.4g} output tokens make {made:,.1f} tokens/s, not {out:,.1f}"
            yield Contradiction(said, off)
    if bench.goodput_rate and rate and bench.goodput_rate > rate * (1 + CLOSE + _rounding(rate)):
        yield Contradiction(f"goodput of {bench.goodput_rate:.4g} requests/s is above all requests ({rate:.4g}/s)", 0.1)


def _concurrency(bench: Benchmark) -> Iterator[Contradiction]:
    """Little's law: requests at once = rate x time of a request; and a request gives one token a step."""
    rate, lasted, limit = bench.request_rate, _under_way(bench), bench.concurrency
    if rate and lasted:
        at_once, slack = rate * lasted, LOOSE + _rounding(rate)
        law = f"{rate:.4g} requests/s of {lasted:.4g} s each mean {at_once:.1f} at once (Little's law)"
        if limit and at_once > limit * (1 + slack):
            yield Contradiction(f"{law}, but no more than {limit} were let in", 1 - limit / at_once)
        if bench.in_flight and (off := _differ(at_once, bench.in_flight, LOOSE + slack)):
            yield Contradiction(f"{law}, not {bench.in_flight:.4g}", off)
    gap, most_at_once = pace(bench), limit or bench.most_in_flight
    if gap and most_at_once and bench.output_rate:
        most = most_at_once * tokens_a_step(bench) / gap
        if bench.output_rate > most * (1 + 2 * LOOSE):  # the mean of paces is no pace of means
            each = f"{most_at_once:.0f} requests with a token every {gap * 1e3:.4g} ms"
            said = f"{each} make at most {most:,.0f} tokens/s, not {bench.output_rate:,.0f}"
            yield Contradiction(said, 1 - most / bench.output_rate)


def _under_way(bench: Benchmark) -> float | None:
    """Mean time that a request was with the server. Ours counts latency from when it was due: its wait before is not."""
    lasted = request_seconds(bench)
    if lasted and bench.tool == "loadpath" and bench.delay and bench.delay.average:
        return max(lasted - bench.delay.average, 0.0)
    return lasted


def _order(bench: Benchmark) -> Iterator[Contradiction]:
    for name, spread in (("TTFT", bench.ttft), ("ITL", bench.itl), ("TPOT", bench.tpot), ("E2E", bench.e2e)):
        if spread and (said := _unordered(spread)):
            yield Contradiction(f"{name}: {said}", 0.05)
    first, whole, gap, made = bench.ttft, bench.e2e, pace(bench), tokens_made(bench)
    if first and whole and first.average and whole.average:
        if first.average > whole.average * (1 + CLOSE):
            said = f"the first token ({first.average * 1e3:.4g} ms) comes after the last ({whole.average * 1e3:.4g} ms)"
            yield Contradiction(said, 1 - whole.average / first.average)
        elif gap and made and made > 2 and bench.tpot:
            total = first.average + (made - 1) * gap
            if off := _differ(total, whole.average, 2 * LOOSE):
                parts = f"TTFT and {made - 1:.4g} further tokens of {gap * 1e3:.4g} ms"
                said = f"{parts} are {total:.4g} s, but requests took {whole.average:.4g} s"
                yield Contradiction(said, off)


def _unordered(spread: Latency) -> str:
    points = [
        (n, v) for n in ("minimum", "p50", "p90", "p95", "p99", "maximum") if (v := getattr(spread, n)) is not None
    ]
    for (low, less), (high, more) in pairwise(points):
        if less > more * 1.001:
            return f"{low} {less * 1e3:.4g} ms is above {high} {more * 1e3:.4g} ms"
    return ""


def judge(case: Case) -> Iterator[Finding]:
    for bench in case.all(Benchmark):
        if not (found := contradictions(bench)):
            continue
        said = ". ".join(c.sentence[:1].upper() + c.sentence[1:] for c in found[:3])
        yield finding(
            "bench-figures-contradict",
            (bench,),
            case=case,
            title="Figures of this benchmark contradict each other",
            cause=f"{said}. One of them is of another run, of another stretch of time (warm-up left out of one, not of the other), "
            "or counts something else; none of them is safe to quote until that is known.",
            figures={"largest_difference": round(found[0].off, 4)},
        )
        return


RULES = (Rule(judge, (Benchmark,), ("bench-figures-contradict",)),)
