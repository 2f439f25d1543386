"""Progress on standard error: a counter that overwrites itself on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
