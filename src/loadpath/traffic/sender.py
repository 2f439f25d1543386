"""One request from its body to its `Exchange`: built as this server takes it, sent, timed, counted."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from loadpath.core.traffic import Api, CountBasis, ErrorKind, Exchange
from loadpath.traffic.connections import CannotConnect, Outcome, Pool, clock
from loadpath.traffic.prompts import Message, Prompt
from loadpath.traffic.statistics import MANY_PER_CHUNK
from loadpath.traffic.stream import Answer
from loadpath.traffic.tokenizer import Tokenizer
from loadpath.traffic.wire import Target

PATHS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
_ERRORS: dict[Outcome, ErrorKind] = {
    "timeout": "timeout",
    "cut": "cut",
    "bad-answer": "bad-answer",
    "stale": "cut",
    "cancelled": "cancelled",
}


class Manner(msgspec.Struct, frozen=True):
    """How this server wants to be asked. `limit`: its name of the limit of output tokens."""

    api: Api
    model: str
    stream: bool = True
    usage_in_stream: bool = True
    ignore_eos: bool = True
    limit: str = "max_tokens"
    temperature: bool = True
    """Whether it takes a temperature (of 0)."""
    fields: dict[str, Any] = {}
    """Further fields of every body."""


class Key(str):
    """A secret that neither prints nor lands in a result."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "***"


class Sender:
    """Sends requests to one server. Times of its exchanges count from `epoch`, on `connections.clock`."""

    def __init__(
        self, pool: Pool, target: Target, manner: Manner, *, key: str = "", timeout: float = 600.0,
        headers: dict[str, str] | None = None, epoch: float | None = None, tokenizer: Tokenizer | None = None,
    ) -> None:  # fmt: skip
        self.pool, self.target, self.manner = pool, target, manner
        self.timeout = timeout
        self.epoch = clock() if epoch is None else epoch
        self.tokenizer = tokenizer
        self.in_flight = 0
        self._key, self._headers = Key(key), dict(headers or {})

    def now(self) -> float:
        """Seconds from the epoch."""
        return clock() - self.epoch

    def with_manner(self, manner: Manner) -> None:
        self.manner = manner

    def body(self, prompt: Prompt, history: tuple[Message, ...] = ()) -> bytes:
        """The JSON body of a request."""
        manner = self.manner
        fields: dict[str, Any] = {"model": manner.model, **manner.fields}
        if manner.api == "embeddings":
            return msgspec.json.encode({**fields, "input": prompt.text})
        messages = (*history, *prompt.messages)
        if manner.api == "chat":
            fields["messages"] = messages
        else:
            fields["prompt"] = prompt.text if not history else "\n\n".join(m["content"] for m in messages)
        if prompt.output is not None:
            fields.setdefault(manner.limit, prompt.output)
            if manner.ignore_eos:
                fields.setdefault("ignore_eos", True)
        if manner.temperature:
            fields.setdefault("temperature", 0)
        if manner.stream:
            fields["stream"] = True
            if manner.usage_in_stream:
                fields["stream_options"] = {"include_usage": True}
        return msgspec.json.encode(fields)

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        """The head of a request."""
        lines = [
            f"{method} {self.target.base}{path} HTTP/1.1",
            f"Host: {self.target.authority}",
            "User-Agent: loadpath",
        ]
        if method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        if self._key:
            lines.append(f"Authorization: Bearer {str.__str__(self._key)}")
        elif self.target.credentials:
            lines.append(f"Authorization: Basic {base64.b64encode(self.target.credentials.encode()).decode()}")
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def send(
        self, prompt: Prompt, intended: float, *, history: tuple[Message, ...] = (), keep_text: bool = False
    ) -> tuple[Exchange, Answer | None]:
        """Send one request, and have its exchange whatever comes of it. `intended`: seconds from the epoch."""
        body = self.body(prompt, history)
        data = self.head("POST", PATHS[self.manner.api], len(body)) + body
        self.in_flight += 1
        try:
            return await self._sent(data, prompt, intended, keep_text)
        finally:
            self.in_flight -= 1

    async def _sent(
        self, data: bytes, prompt: Prompt, intended: float, keep_text: bool
    ) -> tuple[Exchange, Answer | None]:
        limit_at = clock() + self.timeout
        answer: Answer | None = None
        while True:
            try:
                connection = await self.pool.take()
            except CannotConnect as error:
                kind: ErrorKind = "cut" if answer is not None else "connect"  # sent before, and lost
                failed = Exchange(intended, end=self.now(), error=kind, message=str(error), asked_output=prompt.output)
                return failed, None
            reused = connection.carried > 0
            sent = self.now()
            answer = Answer(connection.said_done, keep_text=keep_text)
            outcome = await connection.request(data, answer, max(0.001, limit_at - clock()))
            if outcome != "stale":
                break
        self.pool.give_back(connection)
        made = self._exchange(answer, outcome, prompt, intended, sent, connection.why)
        return msgspec.structs.replace(made, reused=reused), answer

    def _exchange(
        self, answer: Answer, outcome: Outcome, prompt: Prompt, intended: float, sent: float, why: str
    ) -> Exchange:
        end = self.now() if answer.ended is None else round(answer.ended - self.epoch, 6)
        error, message = self._error(answer, outcome, why)
        epoch = self.epoch  # whole microseconds, made faster than round() does: other streams wait meanwhile
        times = tuple([int((time - epoch) * 1e6) / 1e6 for time in answer.times]) if answer.streamed else ()
        prompt_tokens, prompt_basis, output_tokens, output_basis = self._counted(answer, prompt)
        return Exchange(
            intended=round(intended, 6),
            sent=round(sent, 6),
            headers=None if answer.headers is None else round(answer.headers - self.epoch, 6),
            first=times[0] if times else None,
            last=times[-1] if times else None,
            end=round(end, 6),
            chunk_times=times,
            chunk_tokens=shared_out(output_tokens, answer.characters) if times and output_basis == "usage" else (),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=answer.cached_tokens,
            prompt_basis=prompt_basis,
            output_basis=output_basis,
            asked_output=prompt.output,
            status=answer.http_status,
            error=error,
            message=message,
            finish=answer.finish,
        )

    def _error(self, answer: Answer, outcome: Outcome, why: str) -> tuple[ErrorKind, str]:
        """What went wrong: an error that the server told counts even where the stream went on to its end mark."""
        if answer.http_status is not None and answer.http_status != 200:
            return "http", answer.error
        if answer.error:
            return ("error-chunk" if self.manner.stream else "bad-answer"), answer.error
        if outcome == "timeout":
            told = f"{len(answer.times)} chunks" if answer.times else "no token"
            return "timeout", f"no end within {self.timeout:g} s ({told} until then)"
        if outcome != "done":
            return _ERRORS[outcome], why or "the connection ended before the answer"
        if not answer.finished and self.manner.stream and not answer.finish:
            return "cut", "the stream ended without its end mark"
        if not answer.times:
            return "empty", "an answer without one token"
        return "", ""

    def _counted(self, answer: Answer, prompt: Prompt) -> tuple[int | None, CountBasis, int | None, CountBasis]:
        """Prompt and output tokens: by usage, else a local tokenizer, else what was asked and the number of chunks."""
        prompts: tuple[int | None, CountBasis] = (prompt.tokens, "asked" if prompt.tokens else "none")
        outputs: tuple[int | None, CountBasis] = (None, "none")
        if answer.times and answer.streamed:
            outputs = (len(answer.times), "chunks")
        if self.tokenizer is not None and answer.prompt_tokens is None:
            prompts = (self.tokenizer.count(prompt.text), "tokenizer")
        if self.tokenizer is not None and answer.output_tokens is None and answer.texts:
            outputs = (self.tokenizer.count("".join(answer.texts)), "tokenizer")
        if answer.prompt_tokens is not None:
            prompts = (answer.prompt_tokens, "usage")
        if answer.output_tokens is not None and self.manner.api != "embeddings":
            outputs = (answer.output_tokens, "usage")
        return *prompts, *outputs


def shared_out(tokens: int | None, characters: list[int]) -> tuple[int, ...]:
    """`tokens` over chunks by their characters, each at least one; empty where each chunk is about one token."""
    chunks = len(characters)
    if not tokens or chunks < 2 or tokens < chunks * MANY_PER_CHUNK:
        return ()
    whole = sum(characters)
    made, given, before = [], 0, 0
    for left, count in zip(range(chunks - 1, -1, -1), characters, strict=True):
        before += count
        upto = max(given + 1, min(tokens - left, round(tokens * before / whole)))
        made.append(upto - given)
        given = upto
    return tuple(made)
