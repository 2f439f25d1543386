"""Strips every prefix of a line, in whatever nesting, and tells what they said."""

from __future__ import annotations

import re

from loadpath.core.text import Origin
from loadpath.intake.prefixes import processes, records, structured, transport
from loadpath.intake.prefixes.learned import NONE, Carriers
from loadpath.intake.prefixes.notes import Notes
from loadpath.intake.prefixes.strong import STRONG

_FRONT = 2000  # characters of a line in which its prefixes stand; a bound for patterns that look further
_DEEPEST = 12  # more prefixes than anybody nests; a bound for hostile input
_COMPOSE = re.compile(r"([\w.-]{1,80}?) +\| ?")
_BARE_PIPE = re.compile(r"\s{0,80}\| ")
_BULLET = re.compile(r"(?:[-*•+] |\d{1,3}[.)] )")
_NUMBERED = re.compile(r"\s*(\d{1,9})(?::\s?|\t| {2})|\s*\d+(?:\.\d+)?s\s+\d+ ")


def strip(text: str, carriers: Carriers = NONE) -> tuple[str, Origin, bool]:
    """`text` without its prefixes, what they told, and whether the line goes on in the next (CRI's `P`).

    The blanks that stand behind the last prefix stay: they are the indentation of a traceback.
    A JSON record with several lines of words yields text with line feeds in it.
    """
    notes = Notes()
    text = processes.repeats(text, notes)
    text, tail = text[:_FRONT], text[_FRONT:]
    text = carriers.strip(text, notes)
    for _ in range(_DEEPEST):
        bare = text.lstrip()
        rest = structured.unwrap(bare + tail, notes) if bare.startswith("{") else None
        if rest is not None:
            text, tail = rest[:_FRONT], rest[_FRONT:]
            continue
        rest = _once(bare, notes)
        if rest is None:
            break
        text = rest
    records.look(text, notes)
    text, cut = transport.partial(text)
    return (text + tail).rstrip(), notes.origin(), cut


def _once(text: str, notes: Notes) -> str | None:
    """`text` without its first prefix; None where it has none."""
    first = text[:1]
    if first == "(":
        return processes.paren(text, notes)
    if first == "[":
        return _bracket(text, notes)
    if first == "{":
        return transport.brace(text, notes)
    if first == "<":
        return transport.bracket(text, notes)
    if first == "|":
        return _behind_pipe(text)
    if first.isdigit():
        rest = transport.digit(text, notes)
        if rest is not None:
            return records.behind_time(rest, notes) if notes.timed else rest
        return records.digit(text, notes) or _listed(text)
    if first.isalpha():
        return _letter(text, notes)
    return _listed(text) if first in ("-", "*", "•", "+") else None


def _bracket(text: str, notes: Notes) -> str | None:
    rest = records.bracket(text, notes)
    if rest is not None:
        return rest
    rest = transport.bracket(text, notes)
    if rest is not None:
        return records.behind_time(rest, notes) if notes.timed else rest
    return processes.bracket(text, notes)


def _letter(text: str, notes: Notes) -> str | None:
    rest = records.letter(text, notes)
    if rest is None:
        rest = transport.letter(text, notes)
    if rest is not None:
        return rest
    if (m := _COMPOSE.match(text)) and STRONG.match(text, m.end()):
        notes.note(container=m[1])
        return text[m.end() :]
    return None


def _behind_pipe(text: str) -> str | None:
    """Compose's bar whose name was cut off: only before what is surely a program's line; tables have bars too."""
    m = _BARE_PIPE.match(text)
    return text[m.end() :] if m and STRONG.match(text, m.end()) else None


def _listed(text: str) -> str | None:
    """A list's bullet or a running number before what is surely a program's line."""
    for pattern in (_BULLET, _NUMBERED):
        if (m := pattern.match(text)) and STRONG.match(text, m.end()):
            return text[m.end() :]
    return None
