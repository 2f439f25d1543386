"""Every reader by name: what its captures are called, what gives them away, and the module that reads them.

A module is imported only when one of its sniffs is in the text. Block readers claim whole stretches of lines:

    extent(lines: Sequence[Line], i: int) -> int    # index after the block that begins at lines[i]; i where none does
    read(capture: Capture) -> Iterable[Fact]

Line readers look at every capture and claim nothing:

    read(capture: Capture) -> Iterable[Fact]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Literal, Protocol, cast

import msgspec

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line


class ReaderEntry(msgspec.Struct, frozen=True):
    """`sniffs`: literals (any case), one of which is in every capture of this kind (in its first line for blocks);
    () for a reader that must be asked always."""

    kind: str
    module: str
    sniffs: tuple[str, ...]
    where: Literal["block", "anywhere"] = "block"


class ReaderModule(Protocol):
    extent: Callable[[Sequence[Line], int], int]
    read: Callable[[Capture], Iterable[Fact]]


READERS: tuple[ReaderEntry, ...] = (ReaderEntry("symptoms", "symptoms", (), "anywhere"),)


def load(entry: ReaderEntry) -> ReaderModule:
    return cast(ReaderModule, import_module(f"loadpath.readers.{entry.module}"))


def present(text_lower: str, where: Literal["block", "anywhere"]) -> list[ReaderEntry]:
    """The readers of that sort, one of whose sniffs is in the (lower-cased) text."""
    return [
        entry for entry in READERS
        if entry.where == where and (not entry.sniffs or any(s.lower() in text_lower for s in entry.sniffs))
    ]  # fmt: skip


def by_kind(kind: str) -> ReaderEntry | None:
    return next((entry for entry in READERS if entry.kind == kind and entry.where == "block"), None)
