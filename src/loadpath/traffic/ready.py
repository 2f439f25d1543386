"""Whether a server answers real generations steadily: one stage after the other, each waited for while time is left."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from loadpath.core.readiness import STAGES, Readiness, Stage, StageName
from loadpath.core.traffic import ServerIdentity
from loadpath.knowledge.engine_health import engine_health
from loadpath.traffic.approach import Approach
from loadpath.traffic.connections import Pool
from loadpath.traffic.sender import Key, Manner, Sender
from loadpath.traffic.stages import (
    Look,
    Shape,
    Warmth,
    look_at_first_token,
    look_at_health,
    look_at_models,
    look_at_port,
    look_at_warmth,
)
from loadpath.traffic.state_file import forget_state, load_state, save_state
from loadpath.traffic.statistics import ttft
from loadpath.traffic.texts import TextMaker
from loadpath.traffic.wire import Target

SHAPES = (Shape(128, 16),)
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between two looks, the last one from there on."""
_LEAST = 0.05
_QUICK: tuple[StageName, ...] = ("port", "health")


class ReadyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`limit`: seconds for all of it; `wait` False: one look, no waiting; `warming`: send until it is steady.

    `steady` False: the first token is enough (a quick look at a server that was steady before).
    """

    target: Target
    limit: float
    shapes: tuple[Shape, ...] = SHAPES
    wait: bool = True
    warming: bool = False
    steady: bool = True
    model: str | None = None
    key: str = Key("")
    headers: dict[str, str] = {}
    insecure: bool = False


Told = Callable[[Stage], None]
"""Called when a stage holds, or fails for good."""


def ready(request: ReadyRequest, told: Told = lambda stage: None) -> Readiness:
    """Look, and wait where that is asked for. Never raises for what the server does."""
    return asyncio.run(Gate(request, told).run())


class Gate:
    """One passage through the stages. A server that goes away on the way is waited for from the first stage again."""

    def __init__(self, request: ReadyRequest, told: Told = lambda stage: None) -> None:
        self.request, self.told = request, told
        self._pool = Pool(request.target, insecure=request.insecure)
        self._sender = Sender(
            self._pool, request.target, Manner(api="chat", model=request.model or ""), key=request.key,
            headers=request.headers, timeout=request.limit,
        )  # fmt: skip
        self._stages: list[Stage] = []
        self._identity: ServerIdentity | None = None
        self._approach: Approach | None = None
        self._first: float | None = None
        self._restarts = 0
        self._went_away = ""
        self._warmths: dict[str, Warmth] = {}

    @property
    def _left(self) -> float:
        return self.request.limit - self._sender.now()

    async def run(self) -> Readiness:
        """Pass through the stages until one fails for good."""
        begun, at = self._sender.now(), time.time()
        try:
            await self._pass()
        finally:
            await self._pool.drain()
        return self._result(at, self._sender.now() - begun)

    async def _pass(self) -> None:
        """Stage after stage; back to the first when the server went away and time is left."""
        while True:
            begun = self._sender.now()
            self._stages = []
            for name, label in self._plan():
                look = await self._held(name, label)
                now = self._sender.now()
                self._note(name, label, look, now - begun)
                begun = now
                if not look.holds:
                    break
            else:
                return
            if look.kind == "gone":
                self._went_away = self._stages[-1].name
            if not (look.kind == "gone" and self.request.wait and self._left > _LEAST):
                return
            self._restarts += 1
            self._warmths.clear()

    async def quick(self, before: Readiness) -> Readiness:
        """Port and health page only; the other stages as they were `before`."""
        begun = self._sender.now()
        for name in _QUICK:
            look = await self._held(name, "")
            self._note(name, "", look, self._sender.now() - begun)
            if not look.holds:
                break
        await self._pool.drain()
        fails = self._stages[-1].state == "fails"
        kept = (*self._stages, *before.stages[len(self._stages) :])
        return msgspec.structs.replace(
            before, stages=kept, ready=not fails, cached=True, seconds=round(self._sender.now() - begun, 3)
        )

    def _plan(self) -> list[tuple[StageName, str]]:
        plan: list[tuple[StageName, str]] = [(name, "") for name in STAGES if name != "warm"]
        if self.request.steady:
            plan += [("warm", shape.label) for shape in self.request.shapes]
        return plan

    async def _held(self, name: StageName, label: str) -> Look:
        """Look again and again while waiting may help."""
        tries = 0
        while True:
            look = await self._look(name, label)
            if look.holds or look.final or not self.request.wait:
                return self._gone(name, look)
            if look.kind == "closed" and name != "port":
                return self._gone(name, look)
            rest = _PAUSES[min(tries, len(_PAUSES) - 1)]
            if self._left <= rest + _LEAST:
                return look
            tries += 1
            await asyncio.sleep(rest)

    def _gone(self, name: StageName, look: Look) -> Look:
        """No connection any more, after the port had been open: it died."""
        if look.kind != "closed" or name == "port":
            return look
        return msgspec.structs.replace(look, kind="gone")

    async def _look(self, name: StageName, label: str) -> Look:
        self._sender.timeout = max(_LEAST, round(self._left, 1))
        match name:
            case "port":
                return await look_at_port(self._sender)
            case "health":
                return await look_at_health(self._sender, self._sender.timeout)
            case "models":
                look, self._identity = await look_at_models(self._sender, self.request.model, self._sender.timeout)
                return look
            case "first-token":
                assert self._identity is not None
                look, self._approach, tried = await look_at_first_token(
                    self._sender, self._identity, calibrate=self.request.steady
                )
                if self._first is None:
                    self._first = next((value for x in tried if not x.error and (value := ttft(x)) is not None), None)
                return look
            case "warm":
                return await self._warm(label)

    async def _warm(self, label: str) -> Look:
        assert self._approach is not None
        if label not in self._warmths:
            shape = next(shape for shape in self.request.shapes if shape.label == label)
            maker = TextMaker(secrets.randbits(32), self._approach.rate)
            self._warmths[label] = Warmth(self._sender, maker, shape)
        return await look_at_warmth(self._warmths[label], warming=self.request.warming, until=self.request.limit)

    def _note(self, name: StageName, label: str, look: Look, seconds: float) -> None:
        warmth = self._warmths.get(label) if name == "warm" else None
        stage = Stage(
            name=name,
            state="skipped" if look.skipped else "holds" if look.holds else "fails",
            seconds=round(seconds, 4),
            label=label,
            kind=look.kind,
            why=look.why,
            requests=len(warmth.values) if warmth else 0,
            first=_rounded(warmth.first if warmth else self._first if name == "first-token" else None),
            steady=_rounded(warmth.middle) if warmth and look.holds else None,
        )
        self._stages.append(stage)
        self.told(stage)

    def _result(self, at: float, seconds: float) -> Readiness:
        known = self._identity
        seen = {(stage.name, stage.label) for stage in self._stages}
        unseen = [Stage(name, "unseen", label=label) for name, label in self._plan() if (name, label) not in seen]
        health = engine_health().get(known.engine) if known else None
        return Readiness(
            url=self.request.target.url,
            ready=bool(self._stages) and all(stage.state != "fails" for stage in self._stages) and not unseen,
            at=round(at, 3),
            seconds=round(seconds, 3),
            limit=self.request.limit,
            stages=(*self._stages, *unseen),
            engine=known.engine if known else "",
            version=known.version if known else "",
            model=known.model if known else "",
            health_says=health.words if health else "",
            restarts=self._restarts,
            went_away=self._went_away,
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


async def look_again(request: ReadyRequest, before: Readiness, most_age: float) -> Readiness:
    """A later look at a server that was ready `before`: port and health page; after `most_age` seconds a token as well.

    Whether it is steady is not asked again: other traffic is on it by now.
    """
    once = msgspec.structs.replace(request, wait=False)
    if time.time() - before.at <= most_age:
        return await Gate(once).quick(before)
    return await Gate(msgspec.structs.replace(once, steady=False)).run()


def probe(request: ReadyRequest, state: Path | None, most_age: float) -> Readiness:
    """One look without waiting, shortened by the state file of an earlier one. Raises OSError where it cannot be written."""
    before = load_state(state, request.target.url) if state else None
    if before is not None:
        result = asyncio.run(look_again(request, before, most_age))
    else:
        result = asyncio.run(Gate(msgspec.structs.replace(request, wait=False)).run())
    if state is not None:
        if not result.ready:
            forget_state(state)
        elif not result.cached:
            save_state(state, result)
    return result
