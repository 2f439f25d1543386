"""The literal that every match of a regular expression must contain: what the fast scan looks for."""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

SHORTEST = 4


def literals_of(pattern: str) -> tuple[str, ...]:
    """Lower-case literals, one of which is in every match of `pattern`; () where none is long enough.

    Of all the parts that must match, the one whose shortest alternative is longest.
    """
    best = _best(list(_parser.parse(pattern, re.MULTILINE)))
    return tuple(sorted({text.lower() for text in best})) if best and min(map(len, best)) >= SHORTEST else ()


def _best(items: list[Any]) -> list[str]:
    """The best set of alternatives among the mandatory parts of a sequence; [] for none."""
    candidates: list[list[str]] = []
    run = ""
    for op, argument in items:
        if op is _constants.LITERAL:
            run += chr(argument)
            continue
        if run:
            candidates.append([run])
            run = ""
        if op is _constants.SUBPATTERN:
            candidates.append(_best(list(argument[-1])))
        elif op is _constants.BRANCH:
            branches = [_best(list(branch)) for branch in argument[1]]
            candidates.append([text for branch in branches for text in branch] if all(branches) else [])
        elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[0] >= 1:
            candidates.append(_best(list(argument[2])))
    if run:
        candidates.append([run])
    return max((c for c in candidates if c), key=lambda c: min(map(len, c)), default=[])
