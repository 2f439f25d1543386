"""Big sources: one pass over the raw bytes keeps the lines that may matter, with their numbers, in bounded memory.

All signs (literals of findings, readers and engines) are looked for at once by hyperscan as pure literals: 1,600 of
them compile in 30 ms, so nothing is cached, and are found at about 2 GB/s. A sign that stands in every line would
make every line a candidate, so each is kept a number of times from the first and a number of times from the last,
and one that floods is no longer looked for. What was not kept is counted and said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from loadpath.core.report import Skipped
from loadpath.intake.decode import encoding_of
from loadpath.intake.scan import Matcher, matcher

BLOCK = 1 << 20
FIRST_BLOCK = 256 << 10  # small, so that signs that stand in every line are known before they cost anything
EDGE_LINES, EDGE_BYTES = 1500, 512 << 10  # of the head and of the tail of a source are always kept
FIRST, LAST = 60, 40  # so many times each sign is kept, from the first and from the last
FLOOD, FLOOD_SHARE = 3000, 200  # found so often and in one of so many lines, a sign is looked for no more
LONGEST_LINE = 64 << 10  # bytes of a kept line; of a longer one the part around the sign
LONGEST_OPEN = 4 << 20  # bytes without a line end are then looked at as they are
MOST_BYTES = 24 << 20  # of all windows kept from the first; as much again of those kept from the last


class Sign(msgspec.Struct, frozen=True):
    """A literal (any case) that makes a line a candidate, and how many lines around it are kept with it."""

    literal: str
    before: int = 1
    after: int = 3


class Sifted(msgspec.Struct, frozen=True):
    """What was kept of a source: lines with their numbers (an empty one stands in each gap), and what was not."""

    lines: list[tuple[int, str]]
    skipped: tuple[Skipped, ...]


class _Window:
    """Lines around a candidate, of which some may still be to come."""

    __slots__ = ("due", "lines")

    def __init__(self, lines: list[tuple[int, int, bytes]], due: int) -> None:
        self.lines = lines
        self.due = due


class Sieve:
    """Feed it chunks of a source; `sifted` tells at any time what was kept so far."""

    def __init__(self, name: str, signs: Sequence[Sign]) -> None:
        self.name = name
        self.lines = 0  # complete lines seen
        self._signs = signs
        self._counts = [0] * len(signs)
        self._matcher: Matcher = matcher([sign.literal for sign in signs])
        self._pieces: list[bytes] = []
        self._held = 0
        self._rest = b""
        self._first: list[_Window] = []
        self._first_bytes = 0
        self._last: dict[int, deque[_Window]] = {}
        self._last_bytes = 0
        self._open: list[_Window] = []
        self._covered = 0  # the last line that windows kept from the first hold or will hold
        self._head: list[tuple[int, int, bytes]] = []
        self._head_bytes = 0
        self._tail: deque[tuple[int, bytes]] = deque()
        self._flooding: list[int] = []

    def feed(self, chunk: bytes) -> None:
        """The next bytes (UTF-8 or the like), cut anywhere."""
        self._pieces.append(chunk)
        self._held += len(chunk)
        if self._held >= BLOCK:
            self._gather()

    def _gather(self) -> None:
        """Take what has come in, but for the beginning of a line at its end."""
        self._rest = b"".join([self._rest, *self._pieces])
        self._pieces, self._held = [], 0
        while len(self._rest) >= (FIRST_BLOCK if not self.lines else BLOCK):
            end = self._rest.rfind(b"\n", 0, 2 * BLOCK if self.lines else FIRST_BLOCK) + 1
            end = end or self._rest.rfind(b"\n", 0, 2 * BLOCK) + 1
            if not end:
                if len(self._rest) < LONGEST_OPEN:
                    return
                end = LONGEST_OPEN
            block, self._rest = self._rest[:end], self._rest[end:]
            self._take(block)

    def sifted(self) -> Sifted:
        """Everything kept so far, the unfinished last line included."""
        self._gather()
        if end := self._rest.rfind(b"\n") + 1:
            block, self._rest = self._rest[:end], self._rest[end:]
            self._take(block)
        kept = {(number, at): line for number, at, line in self._head}
        kept.update({(number, at): line for window in self._windows() for number, at, line in window.lines})
        kept.update(self._tail_lines())
        lines: list[tuple[int, str]] = []
        for (number, _), line in sorted(kept.items()):
            if lines and number > lines[-1][0] + 1:
                lines.append((lines[-1][0] + 1, ""))
            lines.append((number, line.decode("utf-8", "replace")))
        return Sifted(lines, self._skipped(len(kept)))

    def _windows(self) -> Iterator[_Window]:
        yield from self._first
        for ring in self._last.values():
            yield from ring

    def _take(self, block: bytes) -> None:
        base = self.lines + 1
        self._feed_head(base, block)
        self._feed_open(base, block)
        self.lines += self._candidates(base, block)
        self._tail.append((base, block))
        while len(self._tail) > 1 and sum(len(b) for _, b in self._tail) - len(self._tail[0][1]) > EDGE_BYTES:
            self._tail.popleft()
        if self._flooding:
            self._matcher.drop(self._flooding)
            self._flooding = []

    def _candidates(self, base: int, block: bytes) -> int:
        """Keep what bears a sign; returns the number of lines in the block."""
        counts = self._counts
        start, number, line_end = 0, base, -1
        hits = self._matcher.find(block)
        ids: list[int] = []
        where = 0
        for end, sign in hits:
            if end <= line_end:
                counts[sign] += 1
                ids.append(sign)
                continue
            if ids:
                self._keep(block, start, line_end, number, where, ids)
            counts[sign] += 1
            line_start = block.rfind(b"\n", 0, end) + 1
            number += block.count(b"\n", start, line_start)
            start, where, ids = line_start, end, [sign]
            line_end = block.find(b"\n", end)
            line_end = len(block) if line_end < 0 else line_end
        if ids:
            self._keep(block, start, line_end, number, where, ids)
        in_block = number - base + block.count(b"\n", start)
        seen = self.lines + in_block
        for sign in {sign for _, sign in hits}:
            early = not self.lines and counts[sign] > FIRST + seen // (FLOOD_SHARE // 10)
            if early or (counts[sign] > FLOOD and counts[sign] * FLOOD_SHARE > seen):
                self._flooding.append(sign)
        return in_block

    def _keep(self, block: bytes, start: int, end: int, number: int, where: int, ids: list[int]) -> None:
        counts, signs = self._counts, self._signs
        fresh = [sign for sign in ids if counts[sign] <= FIRST]
        after = max(signs[sign].after for sign in fresh or ids)
        if fresh and self._first_bytes < MOST_BYTES:
            if number + after <= self._covered:
                return
            window = self._cut(block, start, end, number, where, max(signs[s].before for s in fresh), after)
            self._covered = max(self._covered, number + after)
            self._first.append(window)
            self._first_bytes += sum(len(line) for _, _, line in window.lines)
            return
        if number <= self._covered:
            return
        rarest = min(ids, key=counts.__getitem__)
        ring = self._last.setdefault(rarest, deque())
        if ring and ring[-1].lines[-1][0] >= number and not ring[-1].due:
            return
        window = self._cut(block, start, end, number, where, signs[rarest].before, min(after, 12))
        ring.append(window)
        self._last_bytes += sum(len(line) for _, _, line in window.lines)
        while len(ring) > LAST or (self._last_bytes > MOST_BYTES and len(ring) > 1):
            self._last_bytes -= sum(len(line) for _, _, line in ring.popleft().lines)

    def _cut(self, block: bytes, start: int, end: int, number: int, where: int, before: int, after: int) -> _Window:
        """The line from `start` to `end` in `block`, and its neighbours."""
        lines: list[tuple[int, int, bytes]] = []
        at = start
        for step in range(1, before + 1):
            if at <= 0:
                break
            previous = block.rfind(b"\n", 0, at - 1) + 1
            lines.insert(0, (number - step, 0, _short(block[previous : at - 1], 0)))
            at = previous
        offset = where if end - start > LONGEST_LINE else 0
        lines.append((number, offset, _short(block[start:end], where - start)))
        due = after
        while due and end + 1 < len(block):
            following = block.find(b"\n", end + 1)
            following = len(block) if following < 0 else following
            number, due = number + 1, due - 1
            lines.append((number, 0, _short(block[end + 1 : following], 0)))
            end = following
        window = _Window(lines, due)
        if due:
            self._open.append(window)
        return window

    def _feed_head(self, base: int, block: bytes) -> None:
        if len(self._head) >= EDGE_LINES or self._head_bytes >= EDGE_BYTES or base > EDGE_LINES:
            return
        lines = block[: 2 * EDGE_BYTES].split(b"\n")
        if len(lines) > 1:
            lines.pop()  # nothing, or the beginning of a line
        for number, line in enumerate(lines[:EDGE_LINES], base):
            line = _short(line, 0)
            self._head.append((number, 0, line))
            self._head_bytes += len(line)
            if self._head_bytes > EDGE_BYTES or len(self._head) >= EDGE_LINES:
                break

    def _feed_open(self, base: int, block: bytes) -> None:
        """Give windows that reached the end of the block before the lines that they still want."""
        if not self._open:
            return
        wanted = max(window.due for window in self._open)
        following = block.split(b"\n", wanted)[:-1]
        for window in self._open:
            for number, line in enumerate(following[: window.due], base):
                window.lines.append((number, 0, _short(line, 0)))
            window.due -= min(window.due, len(following))
        self._open = [window for window in self._open if window.due]

    def _tail_lines(self) -> dict[tuple[int, int], bytes]:
        if not self._tail and not self._rest:
            return {}
        base = self._tail[0][0] if self._tail else 1
        data = b"".join([b for _, b in self._tail] + [self._rest])
        number = base + data.count(b"\n")
        lines = data[-EDGE_BYTES:].split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
            number -= 1
        if len(data) > EDGE_BYTES and len(lines) > 1:
            lines = lines[1:]  # its beginning was cut off
        lines = lines[-EDGE_LINES:]
        return {(number - len(lines) + 1 + i, 0): _short(line, len(line)) for i, line in enumerate(lines)}

    def _skipped(self, kept: int) -> tuple[Skipped, ...]:
        total = self.lines + (1 if self._rest else 0)
        if total <= kept:
            return ()
        notes = [Skipped(
            f"{self.name}: {total - kept:,} of {total:,} lines",
            "a big source is sifted: its head, its tail and the lines around known signs were read",
        )]  # fmt: skip
        often = sorted((-c, self._signs[s].literal) for s, c in enumerate(self._counts) if c > FIRST + LAST)
        for count, literal in often[:5]:
            notes.append(Skipped(
                f"{self.name}: most of {-count:,} lines with “{literal}”", f"the first {FIRST} and last {LAST} were read"
            ))  # fmt: skip
        return tuple(notes)


def _short(line: bytes, where: int) -> bytes:
    """A line for keeping; of a very long one the part around `where`."""
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(where - LONGEST_LINE // 2, len(line) - LONGEST_LINE))
    return line[start : start + LONGEST_LINE]


def as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text as UTF-8, where its first bytes say that it is something else."""
    import codecs

    decoder: codecs.IncrementalDecoder | None = None
    begun = False
    for chunk in chunks:
        if not begun:
            begun = True
            encoding, mark = encoding_of(chunk)
            chunk = chunk[mark:]
            decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(chunk).encode("utf-8", "replace") if decoder else chunk
