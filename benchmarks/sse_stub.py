"""A trivial server of streamed completions, for measuring clients: it does next to nothing, and says when it did it.

    python benchmarks/sse_stub.py [SECONDS_PER_STEP]     prints its port, then serves

Without a step, a whole answer is one write, made once for each length: the client is what takes time. With a step it
is like an engine: every so many seconds all running streams get their next chunk, each in a write of its own, and
`/truth` tells the time of every write on the machine's monotonic clock, by the number of the request, which the
answer's `usage` carries as its cached tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from functools import cache

MODEL = "stub"
_LIMIT = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d+)')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.I)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


@cache
def chunk(chat: bool) -> bytes:
    """One token, as vLLM sends it."""
    said = {"delta": {"content": " word"}} if chat else {"text": " word"}
    kind = "chat.completion.chunk" if chat else "text_completion"
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": None}
    return framed({"id": "cmpl-0123456789abcdef", "object": kind, "created": 1, "model": MODEL, "choices": [choice]})


def framed(payload: object) -> bytes:
    """An event in a chunk of its own of the chunked body."""
    data = b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def ending(chat: bool, tokens: int, prompt: int, number: int = 0) -> bytes:
    """The last chunk, usage, the end mark and the end of the body."""
    choice = {"index": 0, "finish_reason": "length", **({"delta": {}} if chat else {"text": ""})}
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens,
             "prompt_tokens_details": {"cached_tokens": number}}  # fmt: skip
    base = {"id": "cmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    events = ({**base, "choices": [choice]}, {**base, "choices": [], "usage": usage}, b"[DONE]")
    return b"".join(framed(event) for event in events) + b"0\r\n\r\n"


@cache
def whole(chat: bool, tokens: int, prompt: int) -> bytes:
    return _HEAD + chunk(chat) * tokens + ending(chat, tokens, prompt)


class Streams:
    """The streams under way, and the step that serves them all."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.running: dict[Handler, int] = {}
        self.count = 0
        self.truth: dict[int, list[float]] = {}

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due += self.step
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for handler, left in list(self.running.items()):
                self.truth[handler.number].append(time.monotonic())
                handler.transport.write(chunk(handler.chat))
                if left == 1:
                    del self.running[handler]
                    handler.transport.write(handler.end)
                else:
                    self.running[handler] = left - 1


class Handler(asyncio.Protocol):
    """One connection."""

    def __init__(self, streams: Streams) -> None:
        self.streams, self.rest = streams, b""
        self.chat, self.number, self.end = True, 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.streams.running.pop(self, None)

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        head, found, body = data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if found else None
        if not found or (length and len(body) < int(length[1])):
            self.rest = data
            return
        self.rest = b""
        path = head.partition(b" ")[2].partition(b" ")[0]
        if head.startswith(b"POST") and b"completions" in path:
            limit = _LIMIT.search(body)
            self.answer(b"chat" in path, int(limit[1]) if limit else 16, body.count(b" "))  # about a token a word
        else:
            self.page(path)

    def answer(self, chat: bool, tokens: int, prompt: int) -> None:
        if not self.streams.step:
            self.transport.write(whole(chat, tokens, prompt))
            return
        self.streams.count += 1
        self.chat, self.number = chat, self.streams.count
        self.end = ending(chat, tokens, prompt, self.number)
        self.streams.truth[self.number] = []
        self.streams.running[self] = tokens
        self.transport.write(_HEAD)

    def page(self, path: bytes) -> None:
        pages = {
            b"/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "stub"}]},
            b"/truth": self.streams.truth,
            b"/health": {},
        }
        status = "200 OK" if path in pages else "404 Not Found"
        body = json.dumps(pages.get(path, {})).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve(step: float) -> None:
    streams = Streams(step)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Handler(streams), "127.0.0.1", 0, backlog=1024)
    stepping = loop.create_task(streams.run()) if step else None
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
    del stepping


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
