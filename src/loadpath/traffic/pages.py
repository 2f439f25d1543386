"""Pages of the server, asked over the run's own connections: models, version, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from loadpath.traffic.connections import CannotConnect
from loadpath.traffic.sender import Sender

PAGE_SECONDS = 5.0
MOST_PAGE = 8 << 20


class Page(msgspec.Struct, frozen=True):
    """A whole answer. `status` None: there was none, `why` says why."""

    status: int | None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    why: str = ""

    def json(self) -> Any:
        """The document, or None."""
        try:
            return msgspec.json.decode(self.body) if self.status == 200 else None
        except msgspec.MsgspecError:
            return None

    def document(self) -> dict[str, Any]:
        found = self.json()
        return found if isinstance(found, dict) else {}


class _Whole:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.size = 0

    def status(self, now: float, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.code = status
        self.headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items()}

    def body(self, now: float, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= MOST_PAGE:
            self.parts.append(piece)

    def end(self, now: float) -> None:
        pass


async def page(sender: Sender, path: str, body: bytes | None = None, seconds: float = PAGE_SECONDS) -> Page:
    """GET a page of the target, or POST `body` to it. Never raises; nothing is followed."""
    data = sender.head("POST" if body is not None else "GET", path, len(body or b"")) + (body or b"")
    for _ in range(2):
        try:
            connection = await sender.pool.take()
        except CannotConnect as error:
            return Page(None, why=str(error))
        sink = _Whole()
        outcome = await connection.request(data, sink, seconds)
        if outcome != "stale":
            break
    sender.pool.give_back(connection)
    if outcome != "done":
        why = (
            f"no answer within {seconds:g} s"
            if outcome == "timeout"
            else connection.why or "the connection ended before an answer"
        )
        return Page(None, sink.headers, why=why)
    return Page(sink.code, sink.headers, b"".join(sink.parts))
