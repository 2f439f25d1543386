"""Published measurements of what a power limit does to inference, typed. Watts; sources stand in `power.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from loadpath.knowledge.cache import cached

_TABLE = Path(__file__).parent / "power.toml"
Kind = Literal["decode", "compute", "speculative"]


class Sweep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One card under several limits: `points` are (limit in watts, speed relative to that at `full_w`)."""

    gpu: str
    work: Kind
    full_w: float
    points: tuple[tuple[float, float], ...]
    setup: str
    source: str
    draw: tuple[float, float] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    sweep: tuple[Sweep, ...]


@cache
def sweeps() -> tuple[Sweep, ...]:
    """Every published sweep."""
    files = (_TABLE, Path(__file__))
    return cached("power", files, _File, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), _File)).sweep
