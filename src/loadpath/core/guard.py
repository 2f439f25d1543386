"""One reader or rule that breaks must not take the whole report with it: it is named, and the rest goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from loadpath.core.report import Skipped

T = TypeVar("T")


def guarded(name: str, make: Callable[[], Iterable[T]], broken: list[Skipped]) -> list[T]:
    """What `make` gives. A fault of ours ends it early and is noted in `broken`; with LOADPATH_STRICT set (as in the
    tests) it is raised instead."""
    made: list[T] = []
    try:
        made.extend(make())
    except Exception as error:
        if os.environ.get("LOADPATH_STRICT"):
            raise
        broken.append(Skipped(name, f"broke off ({type(error).__name__}: {error}); this is a fault of loadpath"))
    return made
