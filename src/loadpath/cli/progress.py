"""Progress on standard error: a counter that overwrites itself on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadpath.traffic.request import Progress


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback for (done, total); None where standard error is no terminal. The line is wiped at the end."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, total: int) -> None:
        sys.stderr.write(f"\r{what} {done:,} of {total:,} ")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextmanager
def run_progress() -> Iterator[Callable[[Progress], None]]:
    """A line about a benchmark under way: overwritten four times a second on a terminal, else one each ten seconds."""
    terminal = sys.stderr.isatty()
    last, what = 0.0, ""

    def show(now: Progress) -> None:
        nonlocal last, what
        at = time.monotonic()
        if at - last < (0.25 if terminal else 10.0) and now.what == what:
            return
        last, what = at, now.what
        sys.stderr.write(f"\r\x1b[K{_line(now)}" if terminal else f"{_line(now)}\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _line(now: Progress) -> str:
    if not now.sent:
        return f"{now.what} …"
    wanted = f" of {now.wanted + now.warm_after:,}" if now.wanted else ""
    rate = f", {now.done / now.seconds:.3g} req/s, {now.output_tokens / now.seconds:,.0f} tok/s" if now.seconds else ""
    errors = f", {now.errors:,} errors" if now.errors else ""
    warm = f", {now.warm_after} to warm up" if now.warm_after else ""
    return f"{now.what}: {now.done:,}{wanted} done, {now.in_flight} under way{rate}{errors}{warm}"
