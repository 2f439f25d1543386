"""A whole benchmark: who answers, how to ask, the load level by level, and the result."""

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
from loadpath.core.traffic import BENCH_SCHEMA, BenchResult, BenchSettings, Exchange, ServerIdentity, WarmUp
from loadpath.traffic.approach import Approach, Refused, approach
from loadpath.traffic.connections import Pool, clock
from loadpath.traffic.identity import NotThere, identify
from loadpath.traffic.lag import LagProbe
from loadpath.traffic.levels import Levels, Told, seconds_alone
from loadpath.traffic.prompts import Listed
from loadpath.traffic.request import BenchRefused, Progress, Request
from loadpath.traffic.samples import GpuWatch, MetricsWatch, is_local
from loadpath.traffic.sender import Manner, Sender
from loadpath.traffic.texts import TextMaker
from loadpath.traffic.tokenizer import NoTokenizer, Tokenizer

_OPEN_FILES = 65_536


def bench(request: Request, told: Told) -> BenchResult:
    """Run it, on uvloop where that is installed. Raises BenchRefused."""
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(run(request, told))


async def run(request: Request, told: Told) -> BenchResult:
    """The same, in a loop that runs already. Raises BenchRefused."""
    started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    sender = _sender(request)
    told(Progress("asking the server"))
    identity, found = await _introduced(sender, request)
    lag, metrics, gpus = LagProbe(sender.epoch), MetricsWatch(sender, identity.metrics), GpuWatch(sender)
    levels = Levels(request, sender, TextMaker(request.salt, found.rate), lag, told)
    if request.watch_metrics and identity.metrics:
        metrics.start()
    if request.watch_gpus and is_local(sender.target):
        await gpus.start()
    with _quiet_collector(), _interruptible(levels, sender.pool):
        lag.start()
        await levels.run(seconds_alone(list(found.exchanges)))
        lag.stop()
    await metrics.stop()
    await gpus.stop()
    await sender.pool.drain()
    met = [level.rate for level in levels.levels if level.rate and level.meets_slo]
    return BenchResult(
        schema=BENCH_SCHEMA,
        target=sender.target.url,
        started=started,
        seconds=round(sender.now(), 3),
        loadpath=__version__,
        settings=_as_run(request.settings, sender.manner),
        server=identity,
        client=lag.load(sender.pool.opened, sender.pool.reused),
        levels=tuple(levels.levels),
        warm_up=(*_first_request(found), *levels.warm_up),
        intervals=tuple(levels.intervals),
        metrics=tuple(metrics.samples),
        gpus=tuple(gpus.samples),
        interrupted=levels.interrupted,
        best_rate=max(met, default=None) if request.settings.search else None,
        notes=(*found.notes, *_repeated(request, levels.talks_begun)),
        exchanges=(*_first_cold(found.exchanges), *levels.exchanges),
    )


def _sender(request: Request) -> Sender:
    try:
        tokenizer = Tokenizer(request.tokenizer) if request.tokenizer else None
    except NoTokenizer as error:
        raise BenchRefused(str(error)) from error
    pool = Pool(request.target, insecure=request.insecure)
    return Sender(
        pool, request.target, Manner(api=request.apis[0], model=""), key=request.key, headers=request.headers,
        timeout=request.settings.request_timeout, epoch=clock(), tokenizer=tokenizer,
    )  # fmt: skip


async def _introduced(sender: Sender, request: Request) -> tuple[ServerIdentity, Approach]:
    """Who answers, and how it wants to be asked. Raises BenchRefused."""
    try:
        identity = await identify(sender, request.model)
        if not identity.model:
            raise BenchRefused("the server lists no model at /v1/models: name one with --model")
        found = await approach(
            sender, identity, request.apis, stream=request.settings.stream, ignore_eos=request.settings.ignore_eos,
            fields=request.fields, calibrate=request.calibrate,
        )  # fmt: skip
    except (NotThere, Refused) as error:
        raise BenchRefused(str(error)) from error
    return identity, found


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


@contextlib.contextmanager
def _interruptible(levels: Levels, pool: Pool) -> Iterator[None]:
    """^C ends the load and keeps what was measured; a second one ends the program."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        levels.stop("interrupted")
        pool.cancel_all()
        loop.remove_signal_handler(signal.SIGINT)

    # No signals in a thread, nor with this loop on Windows: then ^C ends the program.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)


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


def _repeated(request: Request, begun: int) -> tuple[str, ...]:
    """Where a file had too few prompts, so that they came again."""
    if not isinstance(request.dataset, Listed) or begun <= len(request.dataset.all):
        return ()
    return (
        f"The file has {len(request.dataset.all):,} conversations and {begun:,} were asked: they repeat, and a prefix "
        "cache answers for the prefill of those that came before.",
    )


def _first_cold(exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
    """The requests that told how to ask: the first was the server's first of this run."""
    if not exchanges:
        return ()
    return (msgspec.structs.replace(exchanges[0], phase="cold"), *exchanges[1:])


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
