"""HTTP/1.1 as a client reads it: bytes in as they come, events out, without a copy more than needed.

A body piece of a chunked answer is handed on as one call, so that a stream's event usually arrives whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

MOST_HEAD = 64 << 10
"""Bytes of a head; a longer one is no HTTP."""


class Broken(Exception):
    """The bytes are not HTTP/1.1; the message says in what."""


class Sink(Protocol):
    """Who is told of an answer. `now`: when the bytes were here, on the caller's clock."""

    def status(self, now: float, status: int, headers: Mapping[bytes, bytes]) -> None: ...
    def body(self, now: float, piece: bytes) -> None: ...
    def end(self, now: float) -> None: ...


class Target(msgspec.Struct, frozen=True):
    """Where requests go. `base`: the path before `/v1`, without a slash at its end; `credentials`: of the URL."""

    host: str
    port: int
    tls: bool
    base: str = ""
    credentials: str = ""

    @property
    def url(self) -> str:
        """Without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.tls else 80)
        return f"http{'s' if self.tls else ''}://{host}{'' if usual else f':{self.port}'}{self.base}"

    @property
    def authority(self) -> str:
        return self.url.split("://")[1].removesuffix(self.base)


def target_of(url: str) -> Target:
    """The target of what a person types: `http://host:8000`, `host:8000`, `…/v1`, `…/v1/chat/completions`.

    Raises ValueError with what is wrong.
    """
    text = url if "://" in url else f"http://{url}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{parts.scheme}:// is not asked; give http:// or https://")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host; give a URL such as http://127.0.0.1:8000")
    tls = parts.scheme == "https"
    base = parts.path.partition("/v1")[0].rstrip("/")
    credentials = f"{parts.username or ''}:{parts.password or ''}" if parts.username or parts.password else ""
    return Target(parts.hostname, parts.port or (443 if tls else 80), tls, base, credentials)


class AnswerParser:
    """Parses answers of one connection, one after the other. `reset` before each request."""

    def __init__(self) -> None:
        self.reset(None)

    def reset(self, sink: Sink | None) -> None:
        self._sink = sink
        self._rest = b""
        self._state = "head"
        self._left = 0
        self._need = 0
        self.keep_alive = True
        """Whether the connection may carry another request, known once the head was read."""

    @property
    def idle(self) -> bool:
        """No byte of an answer has come."""
        return self._state == "head" and not self._rest

    def feed(self, now: float, data: bytes) -> bool:
        """Take bytes; True when the answer is complete. Raises Broken."""
        if self._state == "chunked" and not self._rest:
            return self._chunks(now, data)
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._state == "head":
            found = self._head(now, data)
            if found is None:
                return False
            data = found
        match self._state:
            case "chunked":
                return self._chunks(now, data)
            case "length":
                return self._length(now, data)
            case "until-close":
                if data:
                    self._told().body(now, data)
                return False
        return True

    def closed(self, now: float) -> bool:
        """The connection ended: whether the answer was complete by that."""
        if self._state == "until-close":
            self._told().end(now)
            return True
        return False

    def _told(self) -> Sink:
        if self._sink is None:
            raise Broken("an answer that nobody asked for")
        return self._sink

    def _head(self, now: float, data: bytes) -> bytes | None:
        """Read the head; the bytes after it, or None where it is not whole."""
        head, found, rest = data.partition(b"\r\n\r\n")
        if not found:
            if len(data) > MOST_HEAD or not b"HTTP/1.".startswith(data[:7]):
                raise Broken("the answer is not HTTP/1.1")
            self._rest = data
            return None
        line, _, fields = head.partition(b"\r\n")
        words = line.split(b" ", 2)
        if not line.startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise Broken("the answer is not HTTP/1.1")
        status = int(words[1])
        if 100 <= status < 200:
            return self._head(now, rest)
        headers = _fields(fields)
        self.keep_alive = _keeps(line, headers)
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            self._state = "chunked"
        elif status in (204, 304):
            self._state, self._left = "length", 0
        elif b"content-length" in headers:
            self._state, self._left = "length", _number(headers[b"content-length"], 10)
        else:
            self._state, self.keep_alive = "until-close", False
        self._told().status(now, status, headers)
        return rest

    def _chunks(self, now: float, data: bytes) -> bool:
        """Hand on every whole chunk of a chunked body; what is cut waits for the rest."""
        if len(data) < self._need:
            self._rest = data
            return False
        self._need = 0
        begin, size, sink = 0, len(data), self._told()
        while True:
            line_end = data.find(b"\r\n", begin)
            if line_end < 0:
                if size - begin > MOST_HEAD:
                    raise Broken("a chunk without its length")
                break
            try:
                length = int(data[begin:line_end], 16)
            except ValueError:  # an extension, or nonsense
                length = _number(data[begin:line_end].partition(b";")[0], 16)
            first = line_end + 2
            if length < 0:
                raise Broken("a negative length")
            if not length:
                return self._trailer(now, data, first, begin)
            last = first + length
            if size < last + 2:
                self._rest, self._need = data[begin:], last + 2 - begin
                return False
            sink.body(now, data[first:last])
            begin = last + 2
            if begin == size:
                return False
        self._rest = data[begin:]
        return False

    def _trailer(self, now: float, data: bytes, first: int, begin: int) -> bool:
        """After the last chunk: an empty line, or trailers up to one."""
        if data[first : first + 2] == b"\r\n" or b"\r\n\r\n" in data[first:]:
            self._state = "done"
            self._told().end(now)
            return True
        self._rest = data[begin:]
        return False

    def _length(self, now: float, data: bytes) -> bool:
        piece = data[: self._left]
        self._left -= len(piece)
        if piece:
            self._told().body(now, piece)
        if self._left:
            return False
        self._state = "done"
        self._told().end(now)
        return True


def _fields(text: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in text.split(b"\r\n") if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _keeps(line: bytes, headers: Mapping[bytes, bytes]) -> bool:
    said = headers.get(b"connection", b"").lower()
    return b"keep-alive" in said if line.startswith(b"HTTP/1.0") else b"close" not in said


def _number(text: bytes, base: int) -> int:
    try:
        value = int(text, base)
    except ValueError:
        raise Broken(f"a length that is no number: {text[:20]!r}") from None
    if value < 0:
        raise Broken("a negative length")
    return value
