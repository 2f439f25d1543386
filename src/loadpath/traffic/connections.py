"""Connections to the target: opened when needed, reused while the server keeps them, drained at the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Literal, cast

from loadpath.traffic.wire import AnswerParser, Broken, Sink, Target

clock = time.perf_counter
Outcome = Literal["done", "timeout", "cut", "bad-answer", "stale", "cancelled"]
"""`stale`: a reused connection that the server had closed before it read the request; to be sent again."""
CONNECT_SECONDS = 10.0
AFTER_DONE = 1.0
"""Seconds for a stream to end after it said that it had; then the connection is dropped."""


class Inbox:
    """Bytes that came, with their times. They are parsed when all that is ready was read: where many streams get a chunk
    at once, the last one's time would otherwise hold the parsing of all the others."""

    def __init__(self) -> None:
        self._held: list[tuple[Connection, float, bytes]] = []

    def put(self, connection: Connection, now: float, data: bytes) -> None:
        if not self._held:
            asyncio.get_running_loop().call_soon(self.empty)
        self._held.append((connection, now, data))

    def empty(self) -> None:
        """Parse what is held, in the order of its coming."""
        held, self._held = self._held, []
        for connection, now, data in held:
            connection.parse(now, data)


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, inbox: Inbox, lost: Callable[[Connection], None]) -> None:
        self._inbox = inbox
        self._lost = lost
        self._parser = AnswerParser()
        self._waiter: asyncio.Future[Outcome] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.carried = 0
        self.open = False
        self.why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        self._inbox.put(self, clock(), data)

    def parse(self, now: float, data: bytes) -> None:
        """Bytes that came at `now`."""
        try:
            complete = self._parser.feed(now, data)
        except Broken as error:
            self.why = str(error)
            self._finish("bad-answer")
            self.abort()
            return
        if complete:
            if not self._parser.keep_alive:
                self.close()
            self._finish("done")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._inbox.empty()
        self.open = False
        self._lost(self)
        if self._waiter is None or self._waiter.done():
            return
        if self._parser.closed(clock()):
            self._finish("done")
        else:
            self.why = str(exc or "")
            self._finish("stale" if self.carried > 1 and self._parser.idle else "cut")

    async def request(self, data: bytes, sink: Sink, limit: float) -> Outcome:
        """Send a request and have its answer told to `sink`; how it ended, within `limit` seconds."""
        loop = asyncio.get_running_loop()
        self._parser.reset(sink)
        self.carried += 1
        self._waiter = loop.create_future()
        self._timer = loop.call_later(limit, self._late, "timeout")
        try:
            self._transport.write(data)
        except RuntimeError:  # uvloop: closed a moment ago, and not yet told
            self._finish("stale" if self.carried > 1 else "cut")
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._timer.cancel()

    def said_done(self) -> None:
        """The stream's own end mark came: the rest may take a moment, not longer."""
        if self._timer:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(AFTER_DONE, self._late, "done")

    def cancel(self) -> None:
        """End what is under way, as cancelled."""
        self._finish("cancelled")
        self.abort()

    def _late(self, outcome: Outcome) -> None:
        self._inbox.empty()
        if self._waiter is not None and not self._waiter.done():
            self._finish(outcome)
            self.abort()

    def _finish(self, outcome: Outcome) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)

    def close(self) -> None:
        self.open = False
        self._transport.close()

    def abort(self) -> None:
        self.open = False
        self._transport.abort()


class CannotConnect(Exception):
    """No connection; the message says why in plain words."""


class Pool:
    """Connections to one target. The last one given back is the first one used: the fewest stay open."""

    def __init__(self, target: Target, *, insecure: bool = False) -> None:
        self._target = target
        self._idle: list[Connection] = []
        self._inbox = Inbox()
        self._all: set[Connection] = set()
        self._address: tuple[str, int, int] | None = None
        self._tls = _tls(insecure) if target.tls else None
        self.opened = self.reused = 0

    async def take(self) -> Connection:
        """An open connection. Raises CannotConnect."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                self.reused += 1
                return connection
        return await self._open()

    def give_back(self, connection: Connection) -> None:
        if connection.open:
            self._idle.append(connection)

    async def drain(self) -> None:
        """Close every connection, and let the closing be seen."""
        for connection in list(self._all):
            connection.close()
        self._idle.clear()
        for _ in range(3):
            await asyncio.sleep(0)

    def cancel_all(self) -> None:
        """End every request that is under way."""
        for connection in list(self._all):
            connection.cancel()

    def _forget(self, connection: Connection) -> None:
        self._all.discard(connection)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        name = self._target.host if self._tls else None
        why = ""
        for host, port, family in [self._address] if self._address else await self._addresses():
            try:
                _, connection = await asyncio.wait_for(
                    loop.create_connection(
                        lambda: Connection(self._inbox, self._forget),
                        host,
                        port,
                        ssl=self._tls,
                        server_hostname=name,
                        family=family,
                    ),
                    CONNECT_SECONDS,
                )
            except TimeoutError:
                why = f"no connection to {self._target.authority} within {CONNECT_SECONDS:g} s"
            except (OSError, ssl.SSLError) as error:
                why = _words(error, self._target)
            else:
                self._address = (host, port, family)
                self._all.add(connection)
                self.opened += 1
                return connection
        raise CannotConnect(why)

    async def _addresses(self) -> list[tuple[str, int, int]]:
        """The host's addresses, asked once: a run measures the server, not its name server."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._target.host, self._target.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CannotConnect(f"the name {self._target.host} is not known: {error.strerror or error}") from error
        places: list[tuple[Any, ...]] = [(place[0], place[1], family) for family, _, _, _, place in found]
        return [(str(host), int(port), int(family)) for host, port, family in dict.fromkeys(places)]


def _tls(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(NotImplementedError):
        context.set_alpn_protocols(["http/1.1"])
    return context


def _words(error: OSError, target: Target) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{target.authority} refuses connections: nothing listens there"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{target.authority}: certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{target.authority}: no TLS: {error.reason or error}"
    return f"{target.authority}: {error.strerror or error}"
