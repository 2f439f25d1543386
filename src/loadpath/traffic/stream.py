"""One answer as it arrives: server-sent events or one JSON document, with the time of every piece of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from loadpath.core.masking import mask

MOST_MESSAGE = 300
MOST_WHOLE = 64 << 20
"""Bytes of an answer that is not a stream."""


class _Message(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()
    refusal: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's own figures of a request."""

    prompt_n: int | None = None
    cache_n: int | None = None
    predicted_n: int | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None
    timings: _Timings | None = None
    data: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Event, strict=False).decode
_NOTHING = (b"", b"null", b"[]")


class Answer:
    """Collects one answer: a `Sink` of the connection. `done` is called when a stream says that it is at its end."""

    def __init__(self, done: Callable[[], None], *, keep_text: bool = False) -> None:
        self._done = done
        self._keep_text = keep_text
        self._rest = b""
        self.streamed = False
        """Whether it came as events, so that its pieces have times."""
        self._parts: list[bytes] = []
        self._size = 0
        self.texts: list[str] = []
        self.times: list[float] = []
        self.http_status: int | None = None
        self.headers: float | None = None
        self.ended: float | None = None
        self.finished = False
        """The answer's own end was seen: [DONE], or the whole document."""
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish = ""
        self.error = ""
        """The server's words of an error inside a stream, or of a refusal."""
        self.characters: list[int] = []
        """Of each chunk with text, beside `times`."""

    def status(self, now: float, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.http_status, self.headers = status, now
        self.streamed = status == 200 and b"event-stream" in headers.get(b"content-type", b"").lower()

    def body(self, now: float, piece: bytes) -> None:
        if not self.streamed:
            self._size += len(piece)
            if self._size <= MOST_WHOLE:
                self._parts.append(piece)
            return
        if not self._rest and piece.startswith(b"data: ") and piece.find(b"\n") == len(piece) - 2:
            self._event(now, piece[6:-2])  # the usual case: one event, whole
        else:
            self._lines(now, piece)

    def end(self, now: float) -> None:
        self.ended = now
        if self.streamed:
            if self._rest:
                self._line(now, self._rest)
            return
        self._whole(now, b"".join(self._parts))

    def _lines(self, now: float, piece: bytes) -> None:
        """Events in any framing: several at once, cut anywhere, CRLF, comments, other fields."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._line(now, line)

    def _line(self, now: float, line: bytes) -> None:
        field, _, value = line.rstrip(b"\r").partition(b":")
        if field == b"data":
            self._event(now, value.removeprefix(b" "))
        elif field == b"error":  # llama.cpp of 2023 to 2025: an error in a field of its own
            self._failed(value)

    def _event(self, now: float, payload: bytes) -> None:
        if payload == b"[DONE]":
            self.finished = True
            self._done()
            return
        try:
            event = _decode(payload)
        except msgspec.ValidationError:  # JSON of another shape: an error only where it says so
            if b'"error"' in payload:
                self._failed(payload)
            return
        except msgspec.MsgspecError:
            if payload.strip():
                self._failed(payload)
            return
        choices = event.choices
        if len(choices) == 1 and event.error is None:
            choice = choices[0]
            text = choice.text if choice.delta is None else choice.delta.content
            if usual := isinstance(text, str) and text != "" and not self._keep_text:  # without a call: it is the most
                self.characters.append(len(text))
            if usual or self._has_text(choice):
                self.times.append(now)
                self.finish = choice.finish_reason or self.finish
                if event.usage is not None:
                    self._counts(event)
                return
        for choice in choices:
            self.finish = choice.finish_reason or self.finish
            if (len(choices) > 1 or event.error is not None) and self._has_text(choice):
                self.times.append(now)
        self._counts(event)
        if event.error is not None or event.object == "error":
            self._failed(payload)

    def _has_text(self, choice: _Choice) -> bool:
        said = choice.delta or choice.message
        text = choice.text if said is None else said.content
        if not text:
            if said is None:
                return False
            text = said.reasoning_content or said.reasoning or said.refusal
            if not text and (calls := bytes(said.tool_calls)) not in _NOTHING:
                text = calls.decode("utf-8", "replace")
        if not text or not isinstance(text, str):
            return False
        self.characters.append(len(text))
        if self._keep_text:
            self.texts.append(text)
        return True

    def _counts(self, event: _Event) -> None:
        if event.usage is not None:
            self.prompt_tokens = event.usage.prompt_tokens
            self.output_tokens = event.usage.completion_tokens
            if event.usage.prompt_tokens_details is not None:
                self.cached_tokens = event.usage.prompt_tokens_details.cached_tokens
        if event.timings is not None and self.cached_tokens is None:
            self.cached_tokens = event.timings.cache_n

    def _whole(self, now: float, body: bytes) -> None:
        """An answer in one piece: a completion, embeddings, or an error."""
        if self.http_status != 200:
            self._failed(body)
            return
        try:
            event = _decode(body)
        except msgspec.MsgspecError:
            self._failed(body)
            return
        self.finished = True
        self._counts(event)
        for choice in event.choices:
            self.finish = choice.finish_reason or self.finish
            self._has_text(choice)
        if event.choices or bytes(event.data) not in _NOTHING:
            self.times.append(now)
        if event.error is not None or event.object == "error":
            self._failed(body)

    def _failed(self, body: bytes) -> None:
        self.error = self.error or _words(body) or f"HTTP {self.http_status}"


def _words(body: bytes) -> str:
    """The message of an error document, or its text; masked and cut."""
    text = body.decode("utf-8", "replace").strip()
    try:
        said: Any = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        said = None
    for name in ("error", "detail", "message"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    if isinstance(said, list) and said and isinstance(said[0], dict):
        said = said[0].get("msg", text)
    return mask(said if isinstance(said, str) else text)[:MOST_MESSAGE]
