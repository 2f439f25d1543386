"""A whole benchmark: who answers, how to ask, the load level by level, and the figures of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import msgspec

from loadpath import __version__
from loadpath.core.traffic import (
    BENCH_SCHEMA,
    BenchResult,
    BenchSettings,
    Exchange,
    Figures,
    Interval,
    Level,
    ServerIdentity,
    WarmUp,
)
from loadpath.traffic.approach import Approach, Refused, approach
from loadpath.traffic.arrivals import arrivals
from loadpath.traffic.connections import Pool, clock
from loadpath.traffic.goal import Goal, phased
from loadpath.traffic.identity import NotThere, identify
from loadpath.traffic.lag import LagProbe
from loadpath.traffic.load import Load
from loadpath.traffic.prompts import Replayed, Talk
from loadpath.traffic.request import BenchRefused, Progress, Request
from loadpath.traffic.samples import GpuWatch, MetricsWatch, is_local
from loadpath.traffic.search import rates_to_try
from loadpath.traffic.sender import Manner, Sender
from loadpath.traffic.statistics import across, e2e, figures
from loadpath.traffic.texts import Rate, TextMaker
from loadpath.traffic.timeline import intervals
from loadpath.traffic.tokenizer import NoTokenizer, Tokenizer

Told = Callable[[Progress], None]
_OPEN_FILES = 65_536


def bench(request: Request, told: Told) -> BenchResult:
    """Run it, on uvloop where that is installed. Raises BenchRefused."""
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(Run(request, told).whole())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        made: Any = import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = made.new_event_loop
    return factory


def _raise_file_limit() -> None:
    """Every request under way holds a connection: take as many as the system lets us."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        limits: Any = import_module("resource")
        soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
        wanted = _OPEN_FILES if hard == limits.RLIM_INFINITY else min(hard, _OPEN_FILES)
        if soft < wanted:
            limits.setrlimit(limits.RLIMIT_NOFILE, (wanted, hard))


class Run:
    """One benchmark under way."""

    def __init__(self, request: Request, told: Told) -> None:
        self.request, self.settings, self._told = request, request.settings, told
        self.epoch = clock()
        self.interrupted = ""
        self._goal: Goal | None = None
        self._levels: list[Level] = []
        self._warm: list[WarmUp] = []
        self._intervals: list[Interval] = []
        self._exchanges: list[Exchange] = []
        self._talks: Iterator[Talk] | None = None

    async def whole(self) -> BenchResult:
        """Raises BenchRefused."""
        started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        sender = self._sender()
        self._told(Progress("asking the server"))
        try:
            identity = await identify(sender, self.request.model)
            found = await self._approach(sender, identity)
        except (NotThere, Refused) as error:
            raise BenchRefused(str(error)) from error
        if found.exchanges:
            self._exchanges += [msgspec.structs.replace(found.exchanges[0], phase="cold"), *found.exchanges[1:]]
        lag, metrics, gpus = LagProbe(self.epoch), MetricsWatch(sender, identity.metrics), GpuWatch(sender)
        if self.request.watch_metrics and identity.metrics:
            metrics.start()
        if self.request.watch_gpus and is_local(sender.target):
            await gpus.start()
        with _quiet_collector(), self._interruptible(sender.pool):
            lag.start()
            await self._all_levels(sender, found.rate, lag)
            lag.stop()
        await metrics.stop()
        await gpus.stop()
        await sender.pool.drain()
        return BenchResult(
            schema=BENCH_SCHEMA,
            target=sender.target.url,
            started=started,
            seconds=round(sender.now(), 3),
            loadpath=__version__,
            settings=_as_run(self.settings, sender.manner),
            server=identity,
            client=lag.load(sender.pool.opened, sender.pool.reused),
            levels=tuple(self._levels),
            warm_up=(*_first_request(found), *self._warm),
            intervals=tuple(self._intervals),
            metrics=tuple(metrics.samples),
            gpus=tuple(gpus.samples),
            interrupted=self.interrupted,
            best_rate=self._best_rate(),
            notes=found.notes,
            exchanges=tuple(self._exchanges),
        )

    def _sender(self) -> Sender:
        asked = self.request
        try:
            tokenizer = Tokenizer(asked.tokenizer) if asked.tokenizer else None
        except NoTokenizer as error:
            raise BenchRefused(str(error)) from error
        pool = Pool(asked.target, insecure=asked.insecure)
        return Sender(
            pool, asked.target, Manner(api=asked.apis[0], model=""), key=asked.key, headers=asked.headers,
            timeout=self.settings.request_timeout, epoch=self.epoch, tokenizer=tokenizer,
        )  # fmt: skip

    async def _approach(self, sender: Sender, identity: ServerIdentity) -> Approach:
        if not identity.model:
            raise BenchRefused("the server lists no model at /v1/models: name one with --model")
        return await approach(
            sender, identity, self.request.apis, stream=self.settings.stream, ignore_eos=self.settings.ignore_eos,
            fields=self.request.fields, calibrate=self.request.calibrate,
        )  # fmt: skip

    async def _all_levels(self, sender: Sender, rate: Rate, lag: LagProbe) -> None:
        maker = TextMaker(self.request.salt, rate)
        if self.settings.search:
            for level in rates_to_try(self._levels, self._alone):
                await self._level(sender, maker, lag, rate=level)
                if self.interrupted:
                    return
            return
        if self.settings.loop == "closed":
            for concurrency in self.settings.concurrency:
                if not self.interrupted:
                    await self._level(sender, maker, lag, concurrency=concurrency)
        elif self.settings.arrivals == "trace":
            await self._level(sender, maker, lag)
        else:
            for level in self.settings.rates:
                if not self.interrupted:
                    await self._level(sender, maker, lag, rate=level)

    def _alone(self) -> float:
        """Seconds of a request that the server served so far, for a first rate to try."""
        seen = [v for x in self._exchanges if (v := e2e(x)) is not None]
        return sum(seen) / len(seen) if seen else 1.0

    async def _level(
        self, sender: Sender, maker: TextMaker, lag: LagProbe, *, concurrency: int | None = None, rate: float | None = None
    ) -> None:  # fmt: skip
        number = len(self._levels)
        repeats: list[Figures] = []
        measured: list[Exchange] = []
        for repeat in range(self.settings.repeat):
            goal = Goal(
                requests=self.settings.requests, seconds=self.settings.seconds, warmup=self.settings.warmup,
                at_once=concurrency or 1,
            )  # fmt: skip
            await self._load(sender, maker, goal, number, concurrency, rate)
            own, warm = phased(goal.done, self.settings.warmup, concurrency or 1)
            own = [msgspec.structs.replace(x, level=number, repeat=repeat) for x in own]
            self._warm += warm
            self._exchanges += own
            self._intervals += intervals(own, lag.late, number, repeat)
            counted = [x for x in own if x.phase == "measured"]
            measured += counted
            if (made := figures(counted, self.settings.slo)) is not None:
                repeats.append(made)
            if goal.stop:
                self.interrupted = self.interrupted or goal.stop
                break
        together = across(repeats, figures(measured, self.settings.slo))
        self._levels.append(
            Level(
                number=number,
                concurrency=concurrency,
                rate=rate,
                figures=together,
                repeats=tuple(repeats),
                meets_slo=_meets(together, self.settings),
            )
        )

    async def _load(
        self, sender: Sender, maker: TextMaker, goal: Goal, number: int, concurrency: int | None, rate: float | None
    ) -> None:
        """The load of one repeat, with its progress told."""
        self._goal = goal
        what = f"concurrency {concurrency}" if concurrency else f"{rate:g} requests/s" if rate else "trace"
        began, tokens, errors = sender.now(), 0, 0

        def ended(exchange: Exchange) -> None:
            nonlocal tokens, errors
            tokens += exchange.output_tokens or 0
            errors += bool(exchange.error)
            self._told(
                Progress(what, goal.sent, len(goal.done), self.settings.requests, errors, sender.in_flight,
                         sender.now() - began, tokens, goal.warm_after)
            )  # fmt: skip

        keep = self.settings.turns > 1 or sender.tokenizer is not None or self.settings.dataset == "file"
        load = Load(sender, self._prompts(maker), goal, ended, keep_text=keep)
        if concurrency:
            await load.closed(concurrency)
            return
        seed = self.settings.seed + 7919 * number
        times = arrivals(self.settings.arrivals, rate, seed, self.settings.burstiness) if rate else None
        await load.open(times, self.settings.max_in_flight)

    def _prompts(self, maker: TextMaker) -> Iterator[Talk]:
        """One stream of prompts for all levels, so that none comes twice; a trace begins anew for each."""
        if self._talks is None or isinstance(self.request.dataset, Replayed):
            self._talks = self.request.dataset.talks(maker)
        return self._talks

    @contextlib.contextmanager
    def _interruptible(self, pool: Pool) -> Iterator[None]:
        """^C ends the load and keeps what was measured; a second one ends the program."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.interrupted = "interrupted"
            if self._goal:
                self._goal.stop = "interrupted"
            pool.cancel_all()
            loop.remove_signal_handler(signal.SIGINT)

        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGINT)

    def _best_rate(self) -> float | None:
        met = [level.rate for level in self._levels if level.rate and level.meets_slo]
        return max(met, default=None) if self.settings.search else None


def _meets(made: Figures | None, settings: BenchSettings) -> bool | None:
    """Whether so many requests kept the SLO as were asked for."""
    if not settings.slo or made is None or made.good_share is None:
        return None
    return made.good_share >= settings.slo_share


def _as_run(settings: BenchSettings, manner: Manner) -> BenchSettings:
    """The settings with what the server took of them."""
    return msgspec.structs.replace(settings, api=manner.api, stream=manner.stream, ignore_eos=manner.ignore_eos)


def _first_request(found: Approach) -> tuple[WarmUp, ...]:
    """The very first request of the run beside the second: what a cold server costs."""
    served = [x for x in found.exchanges if x.first is not None and not x.error]
    if not served:
        return ()
    first, rest = served[0], served[1:]
    return (
        WarmUp(
            bucket="first request",
            seen=len(served),
            requests=1,
            steady=True,
            cold_ttft=None if first.first is None else first.first - first.intended,
            cold_e2e=None if first.end is None else first.end - first.intended,
            steady_ttft=rest[-1].first - rest[-1].intended if rest and rest[-1].first is not None else None,
        ),
    )


@contextlib.contextmanager
def _quiet_collector() -> Iterator[None]:
    """No pauses of the garbage collector in the middle of a measurement: what is there now is left alone."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
