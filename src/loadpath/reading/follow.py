"""Following a log while it grows: a file as `tail -F` would (rotation, truncation), or a pipe.

A report on all lines so far is made again at most every `interval` seconds and only after new lines came; beyond
1 MiB the lines are those that the sieve kept, so the work of one report does not grow with the log.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from loadpath.core.report import Report, Skipped
from loadpath.core.text import Line
from loadpath.intake.clean import clean, clean_numbered
from loadpath.intake.sieve import Sieve
from loadpath.intake.sources import Unreadable, standard_input
from loadpath.reading.lines import SMALL
from loadpath.reading.service import read_lines
from loadpath.reading.signs import signs

PIECE = 1 << 16
SILENT = 20.0  # seconds without a line from which on silence is a fact to judge by
QUIET_AFTER = 2.0  # times the last report's own cost are waited before the next: at most a third of one core


class Snapshot(msgspec.Struct, frozen=True):
    """The report on what was read so far. `grown`: new lines since the last one; `ended`: nothing more will come."""

    report: Report
    lines: int
    grown: bool
    ended: bool = False


def follow(source: str, interval: float = 0.5, idle: float = 5.0) -> Iterator[Snapshot]:
    """Snapshots of `source` (a file's name, or `-` for standard input) while it grows.

    One comes at once for what is there, then one at most every `interval` seconds when lines came, and one at least
    every `idle` seconds when none did, so that a stall can be seen. The last has `ended` (a pipe was closed).
    A file never ends: stop iterating. Raises `intake.sources.Unreadable`.
    """
    growing = Growing("stdin" if source == "-" else source)
    reader: _Pipe | _File = _Pipe() if source == "-" else _File(source)
    report: Report | None = None
    made, cost, new = time.monotonic(), 0.0, False
    came = made
    with reader:
        while True:
            # What is there already is read without waiting; the first report comes when it has been, or after a while.
            pause = interval if report is None else max(interval, QUIET_AFTER * cost)
            left = made + (pause if new else idle) - time.monotonic()
            piece = reader.read(0.0 if report is None else max(0.0, left))
            if piece:
                growing.feed(piece, fresh=reader.restarted())
                new, came = True, time.monotonic()
            since = time.monotonic() - made
            waiting = since < (pause if new else idle) if report else bool(piece) and since < pause
            if waiting and not reader.ended:
                continue
            begun = time.monotonic()
            silent = begun - came
            if new or report is None or silent > SILENT:
                report = growing.report(silent if silent > SILENT else 0.0)
            made = time.monotonic()
            cost = made - begun
            yield Snapshot(report, growing.lines, new, reader.ended)
            new = False
            if reader.ended:
                return


class Growing:
    """A source that grows: what it holds, and the report on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self._small: bytearray | None = bytearray()
        self._sieve: Sieve | None = None
        self._notes: tuple[Skipped, ...] = ()

    def feed(self, piece: bytes, *, fresh: bool = False) -> None:
        """More bytes; `fresh` where they begin the file anew (it was rotated or cut)."""
        if fresh:
            self._small, self._sieve, self.lines = bytearray(), None, 0
        self.lines += piece.count(b"\n")
        if self._small is not None:
            self._small += piece
            if len(self._small) <= SMALL:
                return
            self._sieve = Sieve(self.name, signs())
            piece, self._small = bytes(self._small), None
        if self._sieve is not None:
            self._sieve.feed(piece)

    def report(self, silent_seconds: float = 0.0) -> Report:
        """The report on everything so far, nothing having come for `silent_seconds`."""
        report = read_lines([(self.name, self._now())], silent_seconds)
        return msgspec.structs.replace(report, skipped=(*report.skipped, *self._notes))

    def _now(self) -> list[Line]:
        if self._small is not None:
            return clean(bytes(self._small))
        assert self._sieve is not None
        sifted = self._sieve.sifted()
        self._notes = sifted.skipped
        return clean_numbered(sifted.lines)


class _Pipe:
    """Standard input, read as it comes."""

    def __init__(self) -> None:
        self._stream = standard_input()
        self.ended = False

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def restarted(self) -> bool:
        return False

    def read(self, timeout: float) -> bytes:
        """What has come within `timeout` seconds; empty where nothing did."""
        if self.ended:
            return b""
        try:
            ready, _, _ = select.select([self._stream], [], [], timeout)
        except (OSError, ValueError):
            ready = [self._stream]  # no descriptor to wait on (a test, or Windows): read and block
        if not ready:
            return b""
        piece = self._stream.read(PIECE) or b""
        self.ended = not piece
        return piece


class _File:
    """A file by its name: when another file takes the name, or it shrinks, reading begins anew."""

    ended = False

    def __init__(self, name: str) -> None:
        self._path = Path(name)
        self._fresh = False
        try:
            if self._path.is_dir():
                raise Unreadable(f"cannot follow {name}: it is a folder; a file was expected")
            self._stream: IO[bytes] = self._path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise Unreadable(
                f"cannot follow {name}: no such file; start the server first, or check the name"
            ) from error
        except OSError as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(
                f"cannot follow {name}: {error.strerror or error}; a readable file was expected"
            ) from error

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def restarted(self) -> bool:
        """Do the bytes just read begin the file anew? Asked once after each read."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def read(self, timeout: float) -> bytes:
        """What was appended, waiting `timeout` seconds for it at most."""
        until = time.monotonic() + timeout
        while True:
            if piece := self._stream.read(PIECE):
                return piece
            if self._replaced():
                continue
            left = until - time.monotonic()
            if left <= 0:
                return b""
            time.sleep(min(0.1, left))

    def _replaced(self) -> bool:
        """Was the file cut, or did a new one take its name? Then that is what is read from now on."""
        try:
            named = self._path.stat()
            held = os.fstat(self._stream.fileno())
            if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
                stream: IO[bytes] = self._path.open("rb", buffering=0)
                self._stream.close()
                self._stream = stream
            elif held.st_size < self._stream.tell():
                self._stream.seek(0)
            else:
                return False
        except OSError:
            return False  # between two names, as rotation leaves it for a moment
        self._fresh = True
        return True
