"""The kernel table, typed: what multiplies a stored format on which card, by engine and version."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from loadpath.knowledge.cache import cached

_TABLE = Path(__file__).parent / "kernels.toml"
Part = Literal["", "linear", "experts"]
Capability = tuple[int, int]


class Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One row; see the table's head. `multiply`, `activations` may hold `{dtype}`."""

    engines: tuple[str, ...]
    schemes: tuple[str, ...]
    capability: tuple[str, str]
    kernel: str
    part: Part = ""
    multiply: str = ""
    activations: str = ""
    accumulate: str = ""
    since: str = ""
    until: str = ""
    fallback: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: tuple[Kernel, ...]


@cache
def kernels() -> tuple[Kernel, ...]:
    """Every row, in the order in which they are tried."""
    files = (_TABLE, Path(__file__))
    return cached(
        "kernels", files, _File, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), _File)
    ).kernel


@cache
def kernel_for(
    engine: str, scheme: str, part: Part, capability: Capability, version: tuple[int, ...] | None
) -> Kernel | None:
    """The first row that holds for this card and version (None: the newest); None where the table knows nothing."""
    for row in kernels():
        if engine not in row.engines or scheme not in row.schemes or (row.part and row.part != part):
            continue
        low, high = (_numbers(text) for text in row.capability)
        if not low <= capability <= high:
            continue
        if version is not None and row.since and version < _numbers(row.since):
            continue
        if row.until and (version is None or version >= _numbers(row.until)):
            continue
        return row
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
