"""What is kept of a long log: its beginning, the first error behind that, and its end. What was left out is said in
its place, so nobody takes the rest for the whole."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

import msgspec

_ERROR = re.compile(
    rb"Traceback \(most recent|\b(?:ERROR|CRITICAL|FATAL|E\d{4} )|\b\w*Error: |\bCUDA error|out of memory|NVRM: Xid|"
    rb"Segmentation fault|core dumped|\bpanic(?:ked)?\b|\bKilled\b"
)
HEAD, ERROR, TAIL = 0.3, 0.2, 0.5
"""Shares of the room for the beginning, the first error, and the end."""
BEFORE = 0.25
"""Share of the error's window that lies before it."""
PIECE = 1 << 18


class Kept(msgspec.Struct, frozen=True):
    """`data`: what was kept, with a line in each gap; `total_bytes` were there, `left_out_bytes` of them are gone."""

    data: bytes
    total_bytes: int
    left_out_bytes: int = 0


class _Middle:
    """Everything behind the beginning, passing by: the newest bytes, and a window around the first error."""

    def __init__(self, start: int, tail: int, error: int) -> None:
        self.end = start
        self.tail, self.error = tail, error
        self.window: bytearray | None = None
        self.window_start = 0
        self._recent: deque[bytes] = deque()
        self._kept = 0

    def feed(self, chunk: bytes) -> None:
        if self.window is None:
            self._look(chunk)
        elif len(self.window) < self.error:
            self.window += chunk[: self.error - len(self.window)]
        self._recent.append(chunk)
        self._kept += len(chunk)
        self.end += len(chunk)
        while self._recent and self._kept - len(self._recent[0]) >= self.tail:
            self._kept -= len(self._recent.popleft())

    def _look(self, chunk: bytes) -> None:
        found = _ERROR.search(chunk)
        if found is None:
            return
        before = int(self.error * BEFORE)
        start = found.start() - before
        early = b"" if start >= 0 or not self._recent else self._recent[-1][start:]
        self.window = bytearray((early + chunk[max(0, start) :])[: self.error])
        self.window_start = self.end + max(start, -len(early))

    def newest(self) -> bytes:
        return b"".join(self._recent)[-self.tail :]


def keep(chunks: Iterable[bytes], room: int) -> Kept:
    """At most about `room` bytes of a log that comes in `chunks`. Cuts lie at line ends."""
    head_room = int(room * HEAD)
    head, waiting = b"", bytearray()
    middle: _Middle | None = None
    for chunk in chunks:
        if middle is None:
            waiting += chunk
            if len(waiting) <= room:
                continue
            cut = waiting.rfind(b"\n", 0, head_room) + 1 or head_room
            head = bytes(waiting[:cut])
            middle = _Middle(cut, int(room * TAIL), int(room * ERROR))
            for i in range(cut, len(waiting), PIECE):
                middle.feed(bytes(waiting[i : i + PIECE]))
            waiting.clear()
        else:
            middle.feed(chunk)
    if middle is None:
        return Kept(bytes(waiting), len(waiting))
    return _joined(head, middle)


def _joined(head: bytes, middle: _Middle) -> Kept:
    tail_start = middle.end - len(middle.newest())
    parts = [(0, head)]
    if middle.window is not None and middle.window_start < tail_start:
        parts.append((middle.window_start, bytes(middle.window)))
    parts.append((tail_start, middle.newest()))
    made, end, left_out = bytearray(), 0, 0
    for number, (start, data) in enumerate(parts):
        if start < end:  # the windows touch
            start, data = end, data[end - start :]
        elif start > end:
            data, start = _whole_lines(data, start, last=number == len(parts) - 1)
            left_out += start - end
            made += b"[loadpath: %d bytes of this log are left out here]\n" % (start - end)
        made += data
        end = start + len(data)
    return Kept(bytes(made), middle.end, left_out)


def _whole_lines(data: bytes, start: int, *, last: bool) -> tuple[bytes, int]:
    """`data` without the part of a line that it begins with, and (but for the newest) the one that it ends with."""
    first = data.find(b"\n") + 1
    end = len(data) if last else data.rfind(b"\n") + 1 or len(data)
    return (data[first:end], start + first) if first < end else (data, start)
