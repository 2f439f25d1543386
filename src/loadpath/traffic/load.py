"""The load itself: a closed loop keeps so many requests under way, an open loop sends when the plan says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from loadpath.core.traffic import Exchange
from loadpath.traffic.goal import Goal, bucket_of
from loadpath.traffic.prompts import Message, Talk
from loadpath.traffic.sender import Sender

GONE_SECONDS = 3.0
"""For so long nothing but failed connections: the server is gone."""
GONE_REQUESTS = 5
_PAUSE = 0.5  # seconds after a failed connection, so that a dead server is not asked in a tight loop
_POLL = 0.02

Told = Callable[[Exchange], None]


class Load:
    """Sends talks until the goal has enough, or there are none left."""

    def __init__(
        self, sender: Sender, talks: Iterator[Talk], goal: Goal, told: Told, *, keep_text: bool = False
    ) -> None:
        self._sender, self._talks, self._goal, self._told = sender, talks, goal, told
        self._keep_text = keep_text
        self._failing_since: float | None = None
        self._failures = 0
        self._under_way = 0

    async def closed(self, concurrency: int) -> None:
        """Keep `concurrency` conversations under way. What is sent is intended when its place is free."""
        workers = [asyncio.create_task(self._worker()) for _ in range(concurrency)]
        await asyncio.gather(*workers)

    async def _worker(self) -> None:
        while True:
            if self._goal.wants_more(self._sender.now()):
                talk = next(self._talks, None)
                if talk is None:
                    return
                await self._talk(talk, self._sender.now())
            elif self._under_way and not self._goal.stop:
                await asyncio.sleep(_POLL)  # what is under way may show that the warm-up was longer
            else:
                self._goal.judge()
                if not self._goal.wants_more(self._sender.now()):
                    return

    async def open(self, times: Iterator[float] | None, most: int | None = None) -> None:
        """Send at `times` (seconds from now), or when the prompts of a trace say. `most`: limit of requests under way;
        what waits for a place still counts from its intended time."""
        start = self._sender.now()
        room = asyncio.Semaphore(most) if most else None
        tasks: set[asyncio.Task[None]] = set()
        while self._goal.wants_more(self._sender.now()):
            talk = next(self._talks, None)
            if talk is None:
                break
            traced = talk.turns[0].at
            due = start + (traced if traced is not None else next(times) if times else 0.0)
            while (left := due - self._sender.now()) > 0 and not self._goal.stop:
                await asyncio.sleep(min(left, 0.2))
            if self._goal.stop:
                break
            task = asyncio.create_task(self._talk(talk, due, room))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(tasks)

    async def _talk(self, talk: Talk, intended: float, room: asyncio.Semaphore | None = None) -> None:
        """All turns of a conversation; it ends where a turn fails."""
        self._goal.sent += 1
        self._under_way += 1
        try:
            history: tuple[Message, ...] = ()
            for number, prompt in enumerate(talk.turns):
                if number:
                    if not self._goal.wants_more(self._sender.now()):
                        return
                    self._goal.sent += 1
                    intended = self._sender.now()
                if room:
                    await room.acquire()
                try:
                    exchange, answer = await self._sender.send(
                        prompt, intended, history=history, keep_text=self._keep_text
                    )
                finally:
                    if room:
                        room.release()
                bucket = bucket_of(prompt.tokens or exchange.prompt_tokens, prompt.output)
                await self._note(msgspec.structs.replace(exchange, bucket=bucket))
                if exchange.error or answer is None:
                    return
                reply: Message = {"role": "assistant", "content": "".join(answer.texts)}
                history = (*history, *prompt.messages, reply)
        finally:
            self._under_way -= 1

    async def _note(self, exchange: Exchange) -> None:
        self._goal.note(exchange)
        self._told(exchange)
        if exchange.error != "connect":
            if not exchange.error:
                self._failing_since, self._failures = None, 0
            return
        now = self._sender.now()
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._failures += 1
        if self._failures >= GONE_REQUESTS and now - self._failing_since >= GONE_SECONDS:
            self._goal.stop = self._goal.stop or f"server gone: {exchange.message}"
        await asyncio.sleep(_PAUSE)
