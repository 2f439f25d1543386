"""A server of completions with programmable delays and faults, for tests. Runs as a process of its own:

    python tests/sse_server.py '{"ttft": 0.05, "itl": 0.01}'     prints its port, then serves

Delays are kept on an absolute schedule (a late wake-up does not push later chunks), with timers of microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


class Behaviour(msgspec.Struct, frozen=True):
    """How the server answers. Times in seconds."""

    ttft: float = 0.02
    ttft_spread: float = 0.0
    """Uniform, plus or minus."""
    itl: float = 0.005
    itl_spread: float = 0.0
    tokens: int = 0
    """Of an answer; 0: what the request asks for, 16 without a limit."""
    tokens_per_chunk: int = 1
    chunks_per_write: int = 1
    usage: bool = True
    cached_tokens: int = 0
    cold: float = 0.0
    """Added to the first request's TTFT."""
    warm_after: int = 0
    """So many requests have `slow` times the TTFT."""
    slow: float = 3.0
    stall_at: float = -1.0
    """From so many seconds after the first request on nothing is served …"""
    stall: float = 0.0
    """… for so long."""
    slots: int = 0
    """Requests served at once; others wait. 0: all."""
    error_every: int = 0
    """Each n-th stream carries an error chunk, then [DONE]."""
    status_every: int = 0
    """Each n-th request is refused with `status`."""
    status: int = 400
    hang_every: int = 0
    """Each n-th stream stops in the middle and stays open."""
    cut_every: int = 0
    """Each n-th connection is closed in the middle of its answer."""
    close: bool = False
    """Ends the connection after each answer."""
    die_after: int = 0
    """The process exits when this many requests have begun."""
    split: int = 0
    """Bytes of a write; 0: whole events. For parsers."""
    chat: bool = True
    completions: bool = True
    embeddings: bool = False
    models: bool = True
    key: str = ""
    """Asked for on every page under /v1."""
    health_after: float = 0.0
    """/health answers 503 for so long after the start."""
    engine: str = "vllm"
    metrics: bool = True
    words_per_token: float = 1.0
    template_tokens: int = 8
    seed: int = 1


class Served:
    """What all connections share."""

    def __init__(self, behaviour: Behaviour, loop: asyncio.AbstractEventLoop) -> None:
        self.behaviour, self.loop = behaviour, loop
        self.random = random.Random(behaviour.seed)
        self.numbers = itertools.count(1)
        self.first_at: float | None = None
        self.born = loop.time()
        self.running = self.waiting = 0
        self.generated = 0
        self.truth: dict[str, list[float]] = {"ttft": [], "gap": []}
        """The delays as they came to be, as /truth tells them."""
        self.slots = asyncio.Semaphore(behaviour.slots) if behaviour.slots else None

    def after_stall(self, when: float) -> float:
        """`when`, or the end of the stall that it falls into."""
        b = self.behaviour
        if b.stall and self.first_at is not None:
            begin = self.first_at + b.stall_at
            if begin <= when < begin + b.stall:
                return begin + b.stall
        return when

    async def until(self, when: float) -> None:
        while (left := self.after_stall(when) - self.loop.time()) > 0:
            await asyncio.sleep(left)


class Handler(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.buffer = b""
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
        )
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        key = self.served.behaviour.key
        if key and b" /v1" in head.split(b"\r\n")[0] and f"authorization: bearer {key}".encode() not in head.lower():
            self.json({"error": {"message": "Unauthorized"}}, 401)
            return
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        if method == "GET":
            self.page(path)
        else:
            self.task = self.served.loop.create_task(self.answer(path, json.loads(rest[:length] or b"{}")))

    def page(self, path: str) -> None:
        b, served = self.served.behaviour, self.served
        if path == "/health":
            self.whole(503 if served.loop.time() - served.born < b.health_after else 200, b"")
        elif path == "/v1/models" and b.models:
            owner = {"llama.cpp": "llamacpp"}.get(b.engine, b.engine)
            self.json({"object": "list", "data": [{"id": "test/model", "owned_by": owner, "max_model_len": 8192}]})
        elif path == "/version" and b.engine == "vllm":
            self.json({"version": "0.12.0"})
        elif path == "/truth":
            self.json(self.served.truth)
        elif path == "/metrics" and b.metrics:
            self.whole(200, self.metrics().encode(), "text/plain")
        else:
            self.whole(404, b'{"detail":"Not Found"}')

    def metrics(self) -> str:
        labels = '{engine="0",model_name="test/model"}'
        s = self.served
        return (
            f"vllm:num_requests_running{labels} {s.running}\nvllm:num_requests_waiting{labels} {s.waiting}\n"
            f"vllm:kv_cache_usage_perc{labels} {min(1.0, s.running / 100)}\nvllm:generation_tokens_total{labels} {s.generated}\n"
        )

    def json(self, value: Any, status: int = 200) -> None:
        self.whole(status, json.dumps(value).encode())

    def whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )

    def write(self, data: bytes) -> None:
        size = self.served.behaviour.split
        if self.transport.is_closing():
            return
        for begin in range(0, len(data), size or len(data) or 1):
            self.transport.write(data[begin : begin + size] if size else data)

    async def answer(self, path: str, body: dict[str, Any]) -> None:
        served, b = self.served, self.served.behaviour
        number, began = next(served.numbers), served.loop.time()
        served.first_at = began if served.first_at is None else served.first_at
        if b.die_after and number > b.die_after:
            sys.stdout.flush()
            import os

            os._exit(9)
        if "embeddings" in path and b.embeddings:
            await served.until(began + b.ttft)
            self.json(
                {
                    "object": "list",
                    "data": [{"index": 0, "embedding": [0.1]}],
                    "usage": {"prompt_tokens": 32, "total_tokens": 32},
                }
            )
            return
        if "embeddings" in path or not (b.chat if "chat" in path else b.completions):
            self.json({"error": {"message": "not supported", "code": 404}}, 404)
            return
        if b.status_every and number % b.status_every == 0:
            self.json({"error": {"message": "maximum context length is 8192 tokens", "code": b.status}}, b.status)
            return
        served.waiting += 1
        async with served.slots or contextlib.nullcontext():
            served.waiting -= 1
            served.running += 1
            try:
                await self.generate(path, body, number, began if not served.slots else served.loop.time())
            finally:
                served.running -= 1

    async def generate(self, path: str, body: dict[str, Any], number: int, began: float) -> None:
        served, b = self.served, self.served.behaviour
        text = " ".join(m["content"] for m in body["messages"]) if "messages" in body else str(body.get("prompt", ""))
        prompt = round(len(text.split()) * b.words_per_token) + b.template_tokens
        tokens = b.tokens or body.get("max_completion_tokens") or body.get("max_tokens") or 16
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        if b.cached_tokens:
            usage["prompt_tokens_details"] = {"cached_tokens": b.cached_tokens}
        due = began + b.ttft + served.random.uniform(-b.ttft_spread, b.ttft_spread)
        if number == 1:
            due += b.cold
        if number <= b.warm_after:
            due += (b.slow - 1) * b.ttft
        due = served.after_stall(due)
        if not body.get("stream"):
            await served.until(due + (tokens - 1) * b.itl)
            served.generated += tokens
            choice = {
                "index": 0,
                "finish_reason": "length",
                "message": {"content": "a " * tokens},
                "text": "a " * tokens,
            }
            self.json({"choices": [choice], "usage": usage})
            return
        await served.until(due)
        closing = "connection: close\r\n" if b.close else ""
        self.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{closing}transfer-encoding: chunked\r\n\r\n".encode()
        )
        if "chat" in path:
            self.event(json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        await self.stream(path, number, tokens, began, due)
        finish = {"index": 0, "finish_reason": "length", "delta": {}, "text": ""}
        self.event(json.dumps({"choices": [finish]}))
        if b.usage and (body.get("stream_options") or {}).get("include_usage"):
            self.event(json.dumps({"choices": [], "usage": usage}))
        self.event("[DONE]")
        self.write(b"0\r\n\r\n")
        if b.close:
            self.transport.close()

    async def stream(self, path: str, number: int, tokens: int, began: float, due: float) -> None:
        served, b = self.served, self.served.behaviour
        held: list[str] = []
        before = 0.0
        for at in range(0, tokens, b.tokens_per_chunk):
            count = min(b.tokens_per_chunk, tokens - at)
            if at:
                step = count * (b.itl + served.random.uniform(-b.itl_spread, b.itl_spread))
                due = served.after_stall(due + step)
            half = at >= tokens // 2
            if half and b.hang_every and number % b.hang_every == 0:
                await asyncio.sleep(3600)
            if half and b.cut_every and number % b.cut_every == 0:
                self.transport.close()
                return
            if half and b.error_every and number % b.error_every == 0:
                self.event(json.dumps({"error": {"message": "EngineCore encountered an issue", "code": 500}}))
                return
            text = "a " * count
            choice = {"index": 0, "delta": {"content": text}} if "chat" in path else {"index": 0, "text": text}
            held.append(json.dumps({"id": "x", "choices": [{**choice, "finish_reason": None}]}))
            if len(held) == b.chunks_per_write or at + count >= tokens:
                await served.until(due)
                now = served.loop.time()
                served.truth["gap" if before else "ttft"].append(now - (before or began))
                before = now
                served.generated += count * len(held)
                self.write(b"".join(self.framed(one) for one in held))
                held.clear()

    @staticmethod
    def framed(payload: str) -> bytes:
        data = b"data: " + payload.encode() + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(data), data)

    def event(self, payload: str) -> None:
        self.write(self.framed(payload))


async def serve(behaviour: Behaviour) -> None:
    served = Served(behaviour, asyncio.get_running_loop())
    server = await served.loop.create_server(lambda: Handler(served), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def running(**behaviour: Any) -> Iterator[str]:
    """The server in a process of its own; the URL of its root. `running.process` is not needed: it ends with the test."""
    text = json.dumps(behaviour)
    with subprocess.Popen([sys.executable, str(Path(__file__)), text], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())  # epoll rounds time-outs up to whole milliseconds
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(serve(msgspec.json.decode(sys.argv[1] if len(sys.argv) > 1 else "{}", type=Behaviour)))
