"""What the prefixes of one line have told so far."""

from __future__ import annotations

from typing import Any

from loadpath.core.text import NO_ORIGIN, Origin

_FIRST_WINS = frozenset({"time", "year", "host", "container", "pod", "stream"})
"""The outermost tells these: one clock for every line of a stream, also for lines whose program prints no time."""


class Notes:
    """Collects an `Origin`. Of process, pid, rank, level, location the innermost prefix is right."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}

    def note(self, **told: Any) -> None:
        for name, value in told.items():
            if value is None or (name in _FIRST_WINS and name in self._told):
                continue
            self._told[name] = value

    def stamp(self, time: float | None, year: int | str | None = None) -> None:
        """A time and its year, unless an outer prefix gave one."""
        if time is not None and "time" not in self._told:
            self._told["time"] = time
            if year is not None:
                self._told["year"] = int(year)

    @property
    def timed(self) -> bool:
        return "time" in self._told

    def origin(self) -> Origin:
        return Origin(**self._told) if self._told else NO_ORIGIN


_LEVELS = {
    "D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "N": "INFO", "T": "TRACE",
    "WARN": "WARNING", "FATAL": "CRITICAL", "ERR": "ERROR", "CRIT": "CRITICAL", "EMERG": "CRITICAL",
    "ALERT": "CRITICAL", "NOTICE": "INFO", "PANIC": "CRITICAL",
}  # fmt: skip


def level_name(printed: str) -> str:
    """`warn`, `W`, `WARNING` → `WARNING`: Python's names."""
    upper = printed.strip().upper()
    return _LEVELS.get(upper, upper)
