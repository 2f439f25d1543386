"""A case: all the facts of one incident, indexed by type. Rules read it; nothing changes it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TypeVar

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import EngineStarted, Setting
from loadpath.core.facts.errors import Symptom
from loadpath.core.text import Capture

F = TypeVar("F", bound=Fact)


class Case:
    """Facts in the order of their sources and lines, with the captures they came from.

    Where a log holds several starts of a server, the case is about the last one; `earlier` has a case for each
    start before it, oldest first.
    """

    def __init__(
        self,
        facts: Iterable[Fact] = (),
        captures: Iterable[Capture] = (),
        earlier: Iterable[Case] = (),
        engines: Iterable[str] = (),
    ) -> None:
        """`engines`: whose logs the captures are by their kind, in order; known even where no start was seen."""
        self.facts = tuple(facts)
        self.captures = tuple(captures)
        self.earlier = tuple(earlier)
        self.engines = tuple(engines)

    @cached_property
    def _by_type(self) -> dict[type[Fact], list[Fact]]:
        index: dict[type[Fact], list[Fact]] = {}
        for fact in self.facts:
            index.setdefault(type(fact), []).append(fact)
        return index

    def all(self, kind: type[F]) -> list[F]:
        return self._by_type.get(kind, [])  # type: ignore[return-value]

    def first(self, kind: type[F]) -> F | None:
        facts = self.all(kind)
        return facts[0] if facts else None

    def last(self, kind: type[F]) -> F | None:
        facts = self.all(kind)
        return facts[-1] if facts else None

    def has(self, *kinds: type[Fact]) -> bool:
        return all(kind in self._by_type for kind in kinds)

    def symptoms(self, row: str) -> list[Symptom]:
        """The lines that match a row of the findings tables, in order."""
        return [s for s in self.all(Symptom) if s.finding == row]

    def capture_of(self, fact: Fact) -> Capture | None:
        """The capture that `fact` was read from: same source and run, and its first line lies inside."""
        line = fact.span.first_line
        inside = [
            c for c in self.captures
            if c.source == fact.span.source and c.first_line <= line <= c.last_line
        ]  # fmt: skip
        # A block cut out of a log lies inside the log's range: the narrowest is the owner.
        return min(inside, key=lambda c: c.last_line - c.first_line, default=None)

    @cached_property
    def engine(self) -> str | None:
        """The engine at hand: by the last start seen, a command line, or whose log it is; None where nothing tells."""
        started = self.last(EngineStarted)
        if started is not None:
            return started.engine
        told = next((s.engine for s in reversed(self.all(Setting)) if s.engine), None)
        return told or (self.engines[-1] if self.engines else None)

    @cached_property
    def version(self) -> tuple[int, ...] | None:
        """The engine's version as numbers, `(0, 10, 2)`; None where unknown."""
        started = next((s for s in reversed(self.all(EngineStarted)) if s.version), None)
        if started is None or started.version is None:
            return None
        return version_numbers(started.version)

    def setting(self, *names: str) -> str | None:
        """The value of the first of `names` (long-flag spelling) that is known; a command line beats a dump."""
        for name in names:
            found = [s for s in self.all(Setting) if s.name == name]
            if found:
                return next((s.value for s in reversed(found) if s.basis == "command"), found[-1].value)
        return None

    def only(self, keep: Iterable[Fact]) -> Case:
        return Case(keep, self.captures, self.earlier, self.engines)


def version_numbers(text: str) -> tuple[int, ...]:
    """`"0.10.1.1"` → (0, 10, 1, 1); `"0.15.0rc2.dev3+g1"` → (0, 15, 0): what comes before a non-number."""
    numbers: list[int] = []
    for part in text.lstrip("vV").split("+")[0].split("."):
        digits = ""
        for char in part:
            if not char.isdigit():
                break
            digits += char
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
