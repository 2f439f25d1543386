"""A run cut into intervals of time: what was sent, what came, how fast, how late the client was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadpath.core.traffic import Exchange, Interval
from loadpath.traffic.statistics import quantile, ttft

WIDTHS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
MOST = 120
"""Intervals of one repeat of a level."""


class _Slot:
    """One interval while it is filled."""

    __slots__ = ("completed", "errors", "first", "gaps", "held", "lag", "output", "prompt", "sent", "ttfts")

    def __init__(self) -> None:
        self.sent = self.first = self.completed = self.errors = 0
        self.held = self.output = self.prompt = self.lag = 0.0
        self.ttfts: list[float] = []
        self.gaps: list[float] = []


def intervals(
    exchanges: Sequence[Exchange], late: Sequence[tuple[float, float]], level: int, repeat: int
) -> tuple[Interval, ...]:
    """Of the exchanges of one repeat of a level, whatever their phase. `late`: (time, lateness) of the client's loop."""
    ends = [x.end for x in exchanges if x.end is not None]
    if not ends:
        return ()
    begin, end = min(x.intended for x in exchanges), max(ends)
    width = next((w for w in WIDTHS if (end - begin) / w <= MOST), WIDTHS[-1])
    slots = [_Slot() for _ in range(int((end - begin) / width) + 1)]

    def slot(time: float) -> _Slot:
        return slots[min(len(slots) - 1, max(0, int((time - begin) / width)))]

    for exchange in exchanges:
        _fill(exchange, slot)
        _hold(exchange, slots, begin, width)
    for time, lateness in late:
        if begin <= time <= end:
            own = slot(time)
            own.lag = max(own.lag, lateness)
    return tuple(_interval(own, begin + n * width, width, level, repeat) for n, own in enumerate(slots))


def _fill(exchange: Exchange, at: Callable[[float], _Slot]) -> None:
    """What happened at points of time."""
    if exchange.sent is not None:
        at(exchange.sent).sent += 1
    first = ttft(exchange)
    if exchange.first is not None and first is not None:
        own = at(exchange.first)
        own.first += 1
        own.ttfts.append(first)
        own.prompt += exchange.prompt_tokens or 0
    tokens = exchange.chunk_tokens or (1,) * len(exchange.chunk_times)
    before = None
    for time, count in zip(exchange.chunk_times, tokens, strict=True):
        if time != before:
            own = at(time)
            if before is not None:
                own.gaps.append(time - before)
            before = time
        own.output += count
    if exchange.end is not None:
        own = at(exchange.end)
        own.completed += not exchange.error
        own.errors += bool(exchange.error) and exchange.error != "cancelled"


def _hold(exchange: Exchange, slots: list[_Slot], begin: float, width: float) -> None:
    """Seconds that the request was under way in each interval."""
    if exchange.sent is None or exchange.end is None:
        return
    first, last = int((exchange.sent - begin) / width), int((exchange.end - begin) / width)
    for n in range(max(0, first), min(last, len(slots) - 1) + 1):
        left, right = begin + n * width, begin + (n + 1) * width
        slots[n].held += max(0.0, min(right, exchange.end) - max(left, exchange.sent))


def _interval(own: _Slot, begin: float, width: float, level: int, repeat: int) -> Interval:
    ttfts, gaps = sorted(own.ttfts), sorted(own.gaps)
    return Interval(
        begin=round(begin, 6),
        end=round(begin + width, 6),
        level=level,
        repeat=repeat,
        sent=own.sent,
        first_tokens=own.first,
        completed=own.completed,
        errors=own.errors,
        in_flight=round(own.held / width, 3),
        output_tokens=own.output,
        prompt_tokens=own.prompt,
        ttft_p50=quantile(ttfts, 0.5) if ttfts else None,
        itl_p50=quantile(gaps, 0.5) if gaps else None,
        itl_p99=quantile(gaps, 0.99) if gaps else None,
        itl_max=gaps[-1] if gaps else None,
        lag_max=own.lag or None,
    )
