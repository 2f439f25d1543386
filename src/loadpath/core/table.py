"""A table of figures in a report: columns that know their unit, rows of plain values."""

from __future__ import annotations

from typing import Literal

import msgspec

Unit = Literal["", "bytes", "tokens", "seconds", "tokens/s", "requests", "share", "watts", "FLOP/s", "bytes/s"]
Cell = str | int | float | bool | None


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """`share` figures are parts of one (0.05 is 5 %)."""

    name: str
    unit: Unit = ""


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """`id` is stable for programs (`which-gpu`, `sweep`, `against`, …); `title` is for people. None: not known."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.id}: a row has not {len(self.columns)} cells")
