"""What an engine's health page means and what it does not: data in engine_health.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec


class EngineHealth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`paths`: pages that tell it; `seconds`: that the page itself may take; `log`: the line of the log that says ready."""

    id: str
    paths: tuple[str, ...]
    means: str
    means_not: str = msgspec.field(name="not")
    loading: str
    log: str
    source: str
    seconds: float = 5.0

    @property
    def words(self) -> str:
        """As one sentence."""
        return f"200 on {self.paths[0]} of {self.id} says that {self.means}; {self.means_not}"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    engine: tuple[EngineHealth, ...]


@cache
def engine_health() -> dict[str, EngineHealth]:
    """By engine."""
    text = Path(__file__).with_name("engine_health.toml").read_text("utf-8")
    return {row.id: row for row in msgspec.convert(tomllib.loads(text), _File).engine}


PAGES = ("/health", "/v2/health/ready", "/api/version")
"""Health pages, to be asked before the engine is known: the first that is there counts."""
