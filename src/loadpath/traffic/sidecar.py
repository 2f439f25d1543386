"""A small HTTP server beside the model's: it checks again and again, and tells /livez, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from loadpath.core.readiness import Readiness, Stage, to_bytes
from loadpath.traffic.ready import Gate, ReadyRequest, look_again
from loadpath.traffic.ready_report import line

MOST_HEAD = 16 << 10
HEAD_SECONDS = 5.0
DEAD_AFTER = 3
"""Failed checks in a row, of a server that was ready once, after which /livez says so."""
RECHECK_SECONDS = 30.0
"""A look at a server that was ready may take so long; the first passage has the whole limit."""
STARTS_ANEW = ("closed", "gone", "loading")
"""Kinds of failure of a server that was restarted: it is waited for again, and must not be killed while it loads."""
STALE_AFTER = 3
"""Periods without a finished check after which the last one counts no more."""
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Watch:
    """What is known of the server, from check to check."""

    def __init__(self, request: ReadyRequest, every: float) -> None:
        self.request, self.every = request, every
        self.again = msgspec.structs.replace(request, wait=False, limit=min(request.limit, max(RECHECK_SECONDS, every)))
        self.last: Readiness | None = None
        self.ready_once: Readiness | None = None
        self.checks = 0
        self.failures: Counter[str] = Counter()
        self.failed_in_a_row = 0
        self.begun = self.finished_at = time.monotonic()
        self.underway: list[Stage] = []

    async def run(self) -> None:
        """Check for ever. A server that is not ready is waited for; one that was is looked at every so often."""
        while True:
            if self.ready_once is None:
                self.underway = []
                result = await Gate(self.request, self.underway.append).run()
                self.note(result)
                if not result.ready:
                    await asyncio.sleep(min(1.0, self.every))
                continue
            await asyncio.sleep(self.every)
            if self.failed_in_a_row:
                self.note(await Gate(self.again).run())
            else:
                self.note(await look_again(self.again, self.ready_once, 0.0))

    def note(self, result: Readiness) -> None:
        """A check ended."""
        self.checks += 1
        self.finished_at = time.monotonic()
        if result.ready:
            self.ready_once, self.failed_in_a_row = self._whole(result), 0
            self.last = self.ready_once
            return
        self.last = result
        failed = result.failed
        self.failures[failed.name if failed else "unknown"] += 1
        self.failed_in_a_row += 1
        if failed and failed.kind in STARTS_ANEW:
            self.ready_once, self.failed_in_a_row = None, 0

    def _whole(self, result: Readiness) -> Readiness:
        """With the stages that a quick look left out, as they were."""
        before = self.ready_once.stages if self.ready_once else ()
        kept = {(s.name, s.label): s for s in before} | {(s.name, s.label): s for s in result.stages}
        return msgspec.structs.replace(result, stages=tuple(kept.values()))

    @property
    def ready(self) -> bool:
        """Now: the last check held and is not old."""
        return self.last is not None and self.last.ready and self.age <= STALE_AFTER * self.every + self.again.limit

    @property
    def alive(self) -> bool:
        """False only for a server that was ready, still listens, and generates no more: no start is ever cut short by it."""
        return self.ready_once is None or self.failed_in_a_row < DEAD_AFTER

    @property
    def age(self) -> float:
        """Seconds since the last check ended."""
        return time.monotonic() - self.finished_at

    def words(self) -> str:
        if self.last is not None:
            return line(self.last)
        where = self.underway[-1].name if self.underway else "port"
        return f"Not ready: checked for {time.monotonic() - self.begun:.0f} s, at the stage after {where}"


def answer(watch: Watch, path: str) -> tuple[int, str, bytes]:
    """Status, content type and body of a page."""
    text = "text/plain; charset=utf-8"
    match path:
        case "/livez":
            return (200 if watch.alive else 503), text, f"{watch.words()}\n".encode()
        case "/readyz":
            return (200 if watch.ready else 503), text, f"{watch.words()}\n".encode()
        case "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics(watch).encode()
        case "/":
            return 200, "application/json", to_bytes(watch.last) if watch.last else b"{}\n"
    return 404, text, b"/livez, /readyz, /metrics, / (the last check as JSON)\n"


def metrics(watch: Watch) -> str:
    """Prometheus' text format."""
    rows: list[str] = []

    def add(name: str, kind: str, about: str, values: list[tuple[str, float]]) -> None:
        rows.extend((f"# HELP loadpath_{name} {about}", f"# TYPE loadpath_{name} {kind}"))
        rows.extend(f"loadpath_{name}{labels} {value:.10g}" for labels, value in values)

    add("ready", "gauge", "1: answers real generations steadily.", [("", float(watch.ready))])
    add("alive", "gauge", "0: was ready, and failed several checks since.", [("", float(watch.alive))])
    add("checks_total", "counter", "Checks that ended.", [("", watch.checks)])
    failures = [(f'{{stage="{stage}"}}', float(count)) for stage, count in sorted(watch.failures.items())]
    add("check_failures_total", "counter", "Checks that failed, by stage.", failures)
    add("last_check_age_seconds", "gauge", "Since the last check ended.", [("", round(watch.age, 3))])
    stages = watch.last.stages if watch.last else ()
    for name, about, field in (
        ("stage_seconds", "How long a stage took in the last check that had it.", "seconds"),
        ("first_token_seconds", "Time to the first token of the stage's first request.", "first"),
        ("steady_seconds", "Time to the first token when steady.", "steady"),
    ):
        values = [
            (_labels(s), float(v)) for s in stages if s.state != "unseen" and (v := getattr(s, field)) is not None
        ]
        add(name, "gauge", about, values)
    return "\n".join(rows) + "\n"


def _labels(stage: Stage) -> str:
    shape = f',shape="{stage.label}"' if stage.label else ""
    return f'{{stage="{stage.name}"{shape}}}'


async def _serve_one(watch: Watch, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, then the connection ends: probes come seconds apart."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        if method not in ("GET", "HEAD"):
            status, kind, body = 405, "text/plain", b"GET or HEAD\n"
        else:
            status, kind, body = answer(watch, target.partition("?")[0])
        reply = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        ).encode()
        writer.write(reply if method == "HEAD" else reply + body)
        await writer.drain()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def serve(
    request: ReadyRequest, host: str, port: int, every: float, listening: Callable[[int], None] = lambda port: None
) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is taken. `listening` is told the port."""
    watch = Watch(request, every)
    server = await asyncio.start_server(lambda r, w: _serve_one(watch, r, w), host, port, limit=MOST_HEAD)
    listening(server.sockets[0].getsockname()[1])
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.set)
    checking = asyncio.create_task(watch.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({checking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        checking.cancel()
        stopping.cancel()
        server.close()
        await asyncio.gather(checking, stopping, return_exceptions=True)
