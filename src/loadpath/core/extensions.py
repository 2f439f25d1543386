"""Readers, engines and rules from other packages, announced by entry points.

Loading importlib.metadata costs more than a whole short run, so the installed packages' entry-point files are first
looked through for our groups; nearly always there is none.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

GROUPS = ("loadpath.readers", "loadpath.engines", "loadpath.rules")


@cache
def _announced() -> frozenset[str]:
    """The groups that some installed package announces."""
    found: set[str] = set()
    for folder in {p for p in sys.path if p}:
        for file in Path(folder).glob("*.dist-info/entry_points.txt"):
            try:
                text = file.read_text("utf-8", "replace")
            except OSError:
                continue
            found.update(group for group in GROUPS if f"[{group}]" in text)
    return frozenset(found)


def extensions(group: str) -> list[Any]:
    """The objects that other packages announce under `group`, in the order of their names.

    An extension that cannot be loaded is told on standard error and left out: it must not take the report with it.
    """
    if group not in _announced():
        return []
    from importlib.metadata import entry_points

    loaded: list[Any] = []
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        try:
            loaded.append(point.load())
        except Exception as error:
            print(f"loadpath: extension {point.name} ({point.value}) left out: {error}", file=sys.stderr)
    return loaded
