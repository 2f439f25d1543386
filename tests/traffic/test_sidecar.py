"""The HTTP server beside a model's server: what probes and Prometheus see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.error import HTTPError
from urllib.request import urlopen

from loadpath.core.readiness import FailureKind, Readiness, Stage
from loadpath.traffic.ready import ReadyRequest
from loadpath.traffic.sidecar import Watch, answer, serve
from loadpath.traffic.wire import target_of
from sse_server import running


def request(url: str = "http://127.0.0.1:9", limit: float = 3.0) -> ReadyRequest:
    return ReadyRequest(target=target_of(url), limit=limit)


def checked(ready: bool, kind: FailureKind = "closed") -> Readiness:
    stage = Stage("port", "holds" if ready else "fails", kind="" if ready else kind, why="refused")
    return Readiness(url="http://127.0.0.1:9", ready=ready, at=1.0, seconds=0.1, limit=3.0, stages=(stage,))


def status(watch: Watch, path: str) -> int:
    return answer(watch, path)[0]


def test_a_server_that_still_starts_is_alive_and_not_ready() -> None:
    watch = Watch(request(), 5.0)
    assert (status(watch, "/livez"), status(watch, "/readyz")) == (200, 503)
    for _ in range(10):
        watch.note(checked(False))
    assert status(watch, "/livez") == 200


def test_a_server_that_generates_no_more_is_dead_after_three_failures() -> None:
    watch = Watch(request(), 5.0)
    watch.note(checked(True))
    seen = []
    for _ in range(3):
        watch.note(checked(False, "no-token"))
        seen.append((status(watch, "/livez"), status(watch, "/readyz")))
    assert seen == [(200, 503), (200, 503), (503, 503)]
    watch.note(checked(True))
    assert (status(watch, "/livez"), status(watch, "/readyz")) == (200, 200)


def test_a_server_that_was_restarted_is_not_killed_while_it_loads() -> None:
    watch = Watch(request(), 5.0)
    watch.note(checked(True))
    for kind in ("closed", "loading", "loading", "loading", "loading"):
        watch.note(checked(False, kind))
    assert (status(watch, "/livez"), status(watch, "/readyz")) == (200, 503)


def test_an_old_check_counts_no_more() -> None:
    watch = Watch(request(limit=1.0), 1.0)
    watch.note(checked(True))
    watch.finished_at -= 60.0
    assert status(watch, "/readyz") == 503


def test_metrics_are_in_prometheus_format() -> None:
    watch = Watch(request(), 5.0)
    watch.note(checked(False))
    text = answer(watch, "/metrics")[2].decode()
    assert 'loadpath_check_failures_total{stage="port"} 1' in text and "\nloadpath_ready 0\n" in text
    assert all(line.startswith(("#", "loadpath_")) for line in text.splitlines())


def test_it_serves_a_whole_life() -> None:
    def get(at: int, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{at}{path}", timeout=5) as page:
                return page.status, page.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    async def until(true: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(10):
            while not await true():
                await asyncio.sleep(0.05)

    async def life() -> None:
        ports: list[int] = []
        with running(ttft=0.005, itl=0.0005, health_after=0.4) as url:
            task = asyncio.create_task(serve(request(url), "127.0.0.1", 0, 0.1, ports.append))
            while not ports:
                await asyncio.sleep(0.01)

            async def code(path: str) -> int:
                return (await asyncio.to_thread(get, ports[0], path))[0]

            async def is_ready() -> bool:
                return await code("/readyz") == 200

            async def is_out() -> bool:
                return await code("/readyz") == 503

            assert await code("/readyz") == 503 and await code("/livez") == 200
            await until(is_ready)
            assert "loadpath_ready 1" in (await asyncio.to_thread(get, ports[0], "/metrics"))[1]
            assert await code("/elsewhere") == 404
        await until(is_out)
        assert not task.done() and await code("/livez") == 200
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(life())
