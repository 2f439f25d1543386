"""From exchanges to figures: exact quantiles, rates, goodput, confidence across repeats. No judgement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from loadpath.core.traffic import CountBasis, Exchange, Figures, Spread

MANY_PER_CHUNK = 1.02
"""Tokens a chunk above which ITL is spread over the tokens of a chunk."""
# Student's t for 95 %, two-sided, by degrees of freedom; beyond, the normal's.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
      2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
_RATES = ("request_rate", "input_rate", "output_rate", "goodput_rate")
_SPREADS = ("ttft", "itl", "gap", "tpot", "e2e")
_POINTS = ("mean", "p50", "p90", "p95", "p99")


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values: exact order statistics, linear between two of them."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Iterable[float]) -> Spread | None:
    """None where there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    count = len(ordered)
    mean = math.fsum(ordered) / count
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in ordered) / (count - 1)) if count > 1 else 0.0
    p50, p90, p95, p99 = (quantile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99))
    return Spread(count, mean, p50, p90, p95, p99, ordered[0], ordered[-1], deviation)


def ttft(exchange: Exchange) -> float | None:
    """From the intended time, so that waiting in the client or for a connection counts."""
    return None if exchange.first is None else exchange.first - exchange.intended


def e2e(exchange: Exchange) -> float | None:
    return None if exchange.end is None or exchange.error else exchange.end - exchange.intended


def gaps(exchange: Exchange) -> list[float]:
    """Seconds between arrivals of text. Chunks of one read came together: that is one arrival."""
    arrivals = sorted(set(exchange.chunk_times))
    return [b - a for a, b in pairwise(arrivals)]


def tpot(exchange: Exchange) -> float | None:
    """Seconds per output token after the first (after those of the first chunk, where it carried several)."""
    first, last, tokens = exchange.first, exchange.last, exchange.output_tokens
    if first is None or last is None or not tokens or last <= first:
        return None
    after = tokens - (exchange.chunk_tokens[0] if exchange.chunk_tokens else 1)
    return (last - first) / after if after > 0 else None


def tokens_per_chunk(exchange: Exchange) -> float:
    """Tokens that each chunk carried, on average; 1 where nobody counted."""
    chunks = len(exchange.chunk_times)
    if not chunks or not exchange.output_tokens or exchange.output_basis == "chunks":
        return 1.0
    return max(1.0, exchange.output_tokens / chunks)


def itls(exchange: Exchange) -> list[float]:
    """Seconds per output token after the first: each arrival's gap spread over the tokens that came with it."""
    tokens = exchange.chunk_tokens or (1,) * len(exchange.chunk_times)
    arrived: dict[float, int] = {}
    for time, count in zip(exchange.chunk_times, tokens, strict=True):
        arrived[time] = arrived.get(time, 0) + count
    made: list[float] = []
    for (before, _), (now, count) in pairwise(sorted(arrived.items())):
        made += [(now - before) / count] * count
    return made


def meets(exchange: Exchange, slo: dict[str, float]) -> bool:
    """Whether an answer came and kept every limit (seconds): ttft, itl (its mean), tpot, e2e."""
    if exchange.error:
        return False
    for name, limit in slo.items():
        match name:
            case "ttft":
                value = ttft(exchange)
            case "e2e":
                value = e2e(exchange)
            case _:
                value = tpot(exchange)
        if value is not None and value > limit:
            return False
    return True


def error_name(exchange: Exchange) -> str:
    return f"http {exchange.status}" if exchange.error == "http" else exchange.error


def figures(exchanges: Sequence[Exchange], slo: dict[str, float], seconds: float | None = None) -> Figures | None:
    """Of measured exchanges; None where there are none. `seconds`: the time that they took, where known better."""
    counted = [x for x in exchanges if x.error != "cancelled"]
    if not counted:
        return None
    good = [x for x in counted if not x.error]
    begin = min(x.intended for x in counted)
    # Knocking at a server that is gone is no part of the time in which it served.
    reached = [x for x in counted if x.error != "connect"] or counted
    took = seconds or max(1e-9, max(x.end if x.end is not None else x.intended for x in reached) - begin)
    chunked = [tokens_per_chunk(x) for x in good if x.chunk_times]
    inputs, outputs = _total(good, "prompt_tokens"), _total(good, "output_tokens")
    cached = _total(good, "cached_tokens")
    met = sum(meets(x, slo) for x in counted) if slo else None
    most, mean = _in_flight(counted, took)
    return Figures(
        seconds=took,
        requests=len(counted),
        completed=len(good),
        errors=dict(Counter(error_name(x) for x in counted if x.error)),
        request_rate=len(good) / took,
        input_rate=None if inputs is None else inputs / took,
        output_rate=None if outputs is None else outputs / took,
        input_tokens=inputs,
        output_tokens=outputs,
        cached_tokens=cached,
        prompt_basis=_basis(x.prompt_basis for x in good),
        output_basis=_basis(x.output_basis for x in good),
        tokens_per_chunk=sum(chunked) / len(chunked) if chunked else None,
        ttft=spread(v for x in good if (v := ttft(x)) is not None),
        itl=spread(v for x in good for v in itls(x)),
        gap=spread(v for x in good for v in gaps(x)),
        tpot=spread(v for x in good if (v := tpot(x)) is not None),
        e2e=spread(v for x in good if (v := e2e(x)) is not None),
        delay=spread(x.sent - x.intended for x in counted if x.sent is not None),
        mean_in_flight=mean,
        most_in_flight=most,
        goodput_rate=None if met is None else met / took,
        good_share=None if met is None else met / len(counted),
    )


def across(repeats: Sequence[Figures], together: Figures | None) -> Figures | None:
    """All repeats as one, with half-widths of 95 % confidence of what varied between them."""
    if together is None or len(repeats) < 2:
        return together
    seconds = sum(r.seconds for r in repeats)
    found: dict[str, float] = {}
    changed: dict[str, float] = {"seconds": seconds}
    for name in _RATES:
        values = [v for r in repeats if (v := getattr(r, name)) is not None]
        if len(values) == len(repeats):
            changed[name] = sum(values) / len(values)
            found[name] = half_width(values)
    for name in _SPREADS:
        own = [s for r in repeats if (s := getattr(r, name)) is not None]
        if len(own) == len(repeats):
            found |= {f"{name}.{point}": half_width([getattr(s, point) for s in own]) for point in _POINTS}
    return msgspec.structs.replace(together, **changed, ci=found)


def half_width(values: Sequence[float]) -> float:
    """Of the 95 % confidence interval of the mean (Student's t)."""
    count = len(values)
    mean = sum(values) / count
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1))
    return (_T[count - 2] if count - 2 < len(_T) else 1.96) * deviation / math.sqrt(count)


def _total(good: Sequence[Exchange], name: str) -> int | None:
    known = [v for x in good if (v := getattr(x, name)) is not None]
    return sum(known) if known else None


def _basis(all_of: Iterable[CountBasis]) -> CountBasis:
    """The weakest that any used: a sum is as good as its worst part."""
    order: tuple[CountBasis, ...] = ("none", "asked", "chunks", "tokenizer", "usage")
    return min(all_of, key=order.index, default="none")


def _in_flight(counted: Sequence[Exchange], seconds: float) -> tuple[int, float]:
    """The most requests at once, and the mean number over the time."""
    events = sorted(
        [(x.sent, 1) for x in counted if x.sent is not None]
        + [(x.end, -1) for x in counted if x.sent is not None and x.end is not None],
        key=lambda event: (event[0], event[1]),
    )
    now = most = 0
    for _, step in events:
        now += step
        most = max(most, now)
    held = math.fsum(x.end - x.sent for x in counted if x.sent is not None and x.end is not None)
    return most, held / seconds
