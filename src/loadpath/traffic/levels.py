"""The levels of a run: each load with its repeats, its warm-up told apart, its figures and its timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from loadpath.core.traffic import BenchSettings, Exchange, Figures, Interval, Level, WarmUp
from loadpath.traffic.arrivals import arrivals
from loadpath.traffic.goal import Goal, phased
from loadpath.traffic.lag import LagProbe
from loadpath.traffic.load import Load
from loadpath.traffic.prompts import Replayed, Talk
from loadpath.traffic.request import Progress, Request
from loadpath.traffic.search import rates_to_try
from loadpath.traffic.sender import Sender
from loadpath.traffic.statistics import across, e2e, figures
from loadpath.traffic.texts import TextMaker
from loadpath.traffic.timeline import intervals

Told = Callable[[Progress], None]


class Levels:
    """Runs them one after the other, and keeps what came of each."""

    def __init__(self, request: Request, sender: Sender, maker: TextMaker, lag: LagProbe, told: Told) -> None:
        self.request, self.settings = request, request.settings
        self._sender, self._maker, self._lag, self._told = sender, maker, lag, told
        self._goal: Goal | None = None
        self._talks: Iterator[Talk] | None = None
        self.talks_begun = 0
        self.interrupted = ""
        """Why the run ended before its plan; "": it did not."""
        self.levels: list[Level] = []
        self.warm_up: list[WarmUp] = []
        self.intervals: list[Interval] = []
        self.exchanges: list[Exchange] = []

    def stop(self, why: str) -> None:
        """End the load that is under way, and begin no other."""
        self.interrupted = self.interrupted or why
        if self._goal:
            self._goal.stop = self._goal.stop or why

    async def run(self, alone: float) -> None:
        """All levels. `alone`: seconds of one small request, where a search begins."""
        for concurrency, rate in self._loads(alone):
            await self._level(concurrency, rate)
            if self.interrupted:
                return

    def _loads(self, alone: float) -> Iterator[tuple[int | None, float | None]]:
        """(concurrency, rate) of each level; of a search, chosen from the levels before it."""
        settings = self.settings
        if settings.search:
            yield from ((None, rate) for rate in rates_to_try(self.levels, alone))
        elif settings.loop == "closed":
            yield from ((concurrency, None) for concurrency in settings.concurrency)
        elif settings.arrivals == "trace":
            yield None, None
        else:
            yield from ((None, rate) for rate in settings.rates)

    async def _level(self, concurrency: int | None, rate: float | None) -> None:
        number = len(self.levels)
        repeats: list[Figures] = []
        measured: list[Exchange] = []
        for repeat in range(self.settings.repeat):
            own = await self._repeat(number, repeat, concurrency, rate)
            measured += own
            if (made := figures(own, self.settings.slo)) is not None:
                repeats.append(made)
            if self.interrupted:
                break
        together = across(repeats, figures(measured, self.settings.slo))
        self.levels.append(
            Level(
                number=number,
                concurrency=concurrency,
                rate=rate,
                figures=together,
                repeats=tuple(repeats),
                meets_slo=_meets(together, self.settings),
            )
        )

    async def _repeat(self, number: int, repeat: int, concurrency: int | None, rate: float | None) -> list[Exchange]:
        """One repeat of a level; its measured exchanges."""
        settings = self.settings
        at_once = concurrency or 1
        goal = Goal(requests=settings.requests, seconds=settings.seconds, warmup=settings.warmup, at_once=at_once)
        await self._load(goal, number, concurrency, rate)
        own, warm = phased(goal.done, settings.warmup, at_once)
        own = [msgspec.structs.replace(x, level=number, repeat=repeat) for x in own]
        self.warm_up += warm
        self.exchanges += own
        self.intervals += intervals(own, self._lag.late, number, repeat)
        self.interrupted = self.interrupted or goal.stop
        return [x for x in own if x.phase == "measured"]

    async def _load(self, goal: Goal, number: int, concurrency: int | None, rate: float | None) -> None:
        """The load of one repeat, with its progress told."""
        self._goal = goal
        sender, settings = self._sender, self.settings
        what = f"concurrency {concurrency}" if concurrency else f"{rate:g} requests/s" if rate else "trace"
        began, tokens, errors = sender.now(), 0, 0

        def ended(exchange: Exchange) -> None:
            nonlocal tokens, errors
            tokens += exchange.output_tokens or 0
            errors += bool(exchange.error)
            self._told(
                Progress(
                    what, goal.sent, len(goal.done), settings.requests, errors, sender.in_flight,
                    sender.now() - began, tokens, goal.warm_after,
                )
            )  # fmt: skip

        keep = settings.turns > 1 or sender.tokenizer is not None or settings.dataset == "file"
        load = Load(sender, self._prompts(), goal, ended, keep_text=keep)
        if concurrency:
            await load.closed(concurrency)
            return
        seed = settings.seed + 7919 * number
        times = arrivals(settings.arrivals, rate, seed, settings.burstiness) if rate else None
        await load.open(times, settings.max_in_flight)

    def _prompts(self) -> Iterator[Talk]:
        """One stream of prompts for all levels, so that none comes twice; a trace begins anew for each."""
        if self._talks is None or isinstance(self.request.dataset, Replayed):
            self._talks = self._counted(self.request.dataset.talks(self._maker))
        return self._talks

    def _counted(self, talks: Iterator[Talk]) -> Iterator[Talk]:
        for talk in talks:
            self.talks_begun += 1
            yield talk


def seconds_alone(exchanges: list[Exchange]) -> float:
    """Of a small request by itself, as far as some were answered."""
    seen = [v for x in exchanges if (v := e2e(x)) is not None]
    return sum(seen) / len(seen) if seen else 1.0


def _meets(made: Figures | None, settings: BenchSettings) -> bool | None:
    """Whether so many requests kept the SLO as were asked for."""
    if not settings.slo or made is None or made.good_share is None:
        return None
    return made.good_share >= settings.slo_share
