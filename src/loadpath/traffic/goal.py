"""How much load is enough: when warm-up is over, and when enough was measured after it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.traffic import Exchange, Phase, WarmUp
from loadpath.traffic.statistics import e2e, tpot, ttft
from loadpath.traffic.steady import LEAST, steady_start

MOST_JUDGED = 600
"""Requests of a shape that are looked at; a warm-up does not last longer."""

MOST_LOOKED_AT = 1000
"""Requests until which a load under way is judged again and again: a judgement takes milliseconds, and streams wait."""


class Goal:
    """Decides whether to send another request, from what came back. One per repeat of a level."""

    def __init__(self, *, requests: int | None, seconds: float | None, warmup: int | None, at_once: int) -> None:
        """`warmup`: None judges by evidence. `at_once`: requests that the load keeps under way, where it says so."""
        self._requests, self._seconds, self._given = requests, seconds, warmup
        self._at_once = at_once
        self._most_extra = max(30, 3 * at_once, requests or 0)
        self.done: list[Exchange] = []
        self.sent = 0
        self.warm_after = warmup or 0
        """Requests (by order of sending) that do not count, as far as is known."""
        self._judge_at = LEAST
        self._measured_since: float | None = None
        self.stop = ""
        """Why the load has to end before its goal; "": it has not."""

    def wants_more(self, now: float) -> bool:
        """`now`: seconds from the epoch."""
        if self.stop:
            return False
        extra = min(self.warm_after, self._most_extra)
        if self._requests is not None and self.sent >= self._requests + extra:
            return False
        if self._seconds is None:
            return True
        begun = self._measured_from()
        return begun is None or now - begun < self._seconds

    def note(self, exchange: Exchange) -> None:
        """A request ended."""
        self.done.append(exchange)
        if self._given is None and len(self.done) >= self._judge_at:
            self.judge()
            self._judge_at = len(self.done) + max(4, len(self.done) // 5)

    def judge(self) -> None:
        """Look again at how many requests it took to be steady; after the first thousand that is known."""
        if self._given is None and len(self.done) <= MOST_LOOKED_AT:
            ordered = sorted(self.done, key=_sent)
            self.warm_after = sum(warm.requests for warm, _, _ in _shapes(ordered, self._at_once))
            self._measured_since = None

    def _measured_from(self) -> float | None:
        """When the first request after the warm-up was intended; None while it is not over."""
        if self.sent <= self.warm_after or len(self.done) <= self.warm_after:
            return None
        if self._measured_since is None:
            self._measured_since = sorted(x.intended for x in self.done)[self.warm_after]
        return self._measured_since


def phased(exchanges: Sequence[Exchange], warmup: int | None, at_once: int = 1) -> tuple[list[Exchange], list[WarmUp]]:
    """The exchanges in order of sending, each with its phase, and how each shape warmed up. `warmup`: as given.

    `at_once`: of a closed loop; the last so many requests meet a server that empties, and are not judged.
    """
    ordered = sorted(exchanges, key=_sent)
    if warmup is not None:
        return _given(ordered, warmup)
    told: list[WarmUp] = []
    phases: dict[int, Phase] = {}
    seen = Counter(x.bucket for x in ordered if not x.error)
    for warm, cold, own in _shapes(ordered, at_once):
        told.append(msgspec.structs.replace(warm, seen=seen[warm.bucket]))
        for number, place in enumerate(own[: warm.requests]):
            phases[place] = "cold" if cold and not number else "warm-up"
    # What failed while the server warmed up belongs to the warm-up as well.
    last = max((p for p, phase in phases.items()), default=-1)
    made = []
    for place, exchange in enumerate(ordered):
        phase = phases.get(place, "warm-up" if exchange.error and place < last else "measured")
        made.append(msgspec.structs.replace(exchange, phase=phase))
    return made, told


def _shapes(ordered: Sequence[Exchange], at_once: int) -> Iterator[tuple[WarmUp, bool, list[int]]]:
    """Of each shape: how it warmed up, whether its first request was cold, and the places of its requests."""
    places: dict[str, list[int]] = defaultdict(list)
    judged = len(ordered) - at_once if len(ordered) >= 3 * at_once else len(ordered)
    for place, exchange in enumerate(ordered[:judged]):
        if not exchange.error:
            places[exchange.bucket].append(place)
    for bucket, own in places.items():
        yield *_judged(bucket, [ordered[p] for p in own]), own


def _judged(bucket: str, own: Sequence[Exchange]) -> tuple[WarmUp, bool]:
    """How one shape warmed up, and whether its first request was cold."""
    judged = own[:MOST_JUDGED]
    firsts = [value for x in judged if (value := _beginning(x)) is not None]
    paces = [value for x in judged if (value := tpot(x)) is not None]
    first = steady_start(firsts)
    pace = steady_start(paces) if len(paces) == len(firsts) else None
    start = max(first.start, pace.start if pace else 0)
    unsteady = [
        f"{name}: {one.why}"
        for name, one in (("TTFT" if own[0].first is not None else "E2E", first), ("ITL", pace))
        if one and not one.steady
    ]
    rest_firsts, rest_paces = sorted(firsts[start:]), sorted(paces[start:]) if pace else []
    middle = rest_firsts[len(rest_firsts) // 2] if rest_firsts else None
    cold = start > 0 and bool(firsts) and (middle is None or firsts[0] > 1.2 * middle)
    warm = WarmUp(
        bucket=bucket,
        seen=len(own),
        requests=start,
        steady=not unsteady,
        cold_ttft=firsts[0] if firsts else None,
        cold_e2e=own[0].end - own[0].intended if own[0].end is not None else None,
        steady_ttft=middle,
        steady_itl=rest_paces[len(rest_paces) // 2] if rest_paces else None,
        why="; ".join(unsteady) or first.why,
    )
    return warm, cold


def _sent(exchange: Exchange) -> float:
    return exchange.intended if exchange.sent is None else exchange.sent


def _beginning(exchange: Exchange) -> float | None:
    """TTFT; of an answer in one piece, the whole latency."""
    first = ttft(exchange)
    return e2e(exchange) if first is None else first


def _given(ordered: Sequence[Exchange], warmup: int) -> tuple[list[Exchange], list[WarmUp]]:
    made = [
        msgspec.structs.replace(x, phase="warm-up" if place < warmup else "measured") for place, x in enumerate(ordered)
    ]
    first = next((x for x in ordered if x.first is not None), None)
    told = WarmUp(
        bucket="", seen=len(made), requests=min(warmup, len(made)), steady=True, given=True,
        cold_ttft=ttft(first) if first else None,
    )  # fmt: skip
    return made, [told]


def bucket_of(prompt_tokens: int | None, output_tokens: int | None) -> str:
    """Powers of two that hold both: `"2048x512"`."""
    return "x".join("?" if not n else str(1 << (n - 1).bit_length()) for n in (prompt_tokens, output_tokens))
