"""A pattern with what gives it away: most lines of a log hold nothing to mask, and a word is found faster than a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

SMALL = 4096
"""Characters up to which looking line by line costs more than it saves."""


class Sought(msgspec.Struct, frozen=True):
    """`hints` (lower case): one of them is in every line that `pattern` matches in; without any, every line may."""

    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        low = text.lower()
        if not self._hinted(low):
            return
        if not self.hints or len(text) < SMALL:
            yield from self.pattern.finditer(text)
            return
        for line, lowered in zip(text.split("\n"), low.split("\n"), strict=True):
            if self._hinted(lowered):
                yield from self.pattern.finditer(line)

    def sub(self, change: Callable[[re.Match[str]], str], text: str) -> str:
        low = text.lower()
        if not self._hinted(low):
            return text
        if not self.hints or len(text) < SMALL:
            return self.pattern.sub(change, text)
        lines = text.split("\n")
        for i, lowered in enumerate(low.split("\n")):
            if self._hinted(lowered):
                lines[i] = self.pattern.sub(change, lines[i])
        return "\n".join(lines)

    def _hinted(self, low: str) -> bool:
        return not self.hints or any(hint in low for hint in self.hints)


def sought(pattern: str, *hints: str) -> Sought:
    return Sought(re.compile(pattern), hints)
