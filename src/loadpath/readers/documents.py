"""YAML and JSON documents in the middle of a paste: where one ends, and what it says, cut or whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.text import Line

LONGEST = 5_000
"""Lines of a document; more is a dump that nobody pasted."""
_YAML_LINE = re.compile(r"^(?:\s|- |-$|#|---|\.\.\.|[\w./\"'-]+:(?:\s|$)|\})")


class Broken(Exception):
    """The text is no document; the message says where it breaks off."""


_KEY = re.compile(r"^[\"']?([\w./-]+)[\"']?:(?:\s|$)")


def yaml_extent(lines: Sequence[Line], i: int, top: frozenset[str]) -> int:
    """The index after the YAML document that begins at lines[i]. `top`: the keys that it can have at its outermost
    level; another word with a colon at the margin (`Error: …`) is the next thing in the paste."""
    end = i
    for j in range(i, min(len(lines), i + LONGEST)):
        text = lines[j].text
        if not text:
            continue
        if text.startswith("```") or not _YAML_LINE.match(text):
            break
        if (key := _KEY.match(text)) and key[1] not in top:
            break
        if j > end + 2:  # two blank lines in a row: another thing begins
            break
        end = j
    return end + 1


def json_extent(lines: Sequence[Line], i: int, depth: int = 0) -> int:
    """The index after the JSON value that begins at lines[i], by its brackets; `depth`: how many were open before it."""
    in_string = False
    for j in range(i, min(len(lines), i + LONGEST)):
        before = ""
        for char in lines[j].text:
            if char == '"' and before != "\\":
                in_string = not in_string
            elif not in_string and char in "{[":
                depth += 1
            elif not in_string and char in "}]":
                depth -= 1
            before = char
        in_string = False  # no JSON string spans lines
        if depth <= 0:
            return j + 1
    return min(len(lines), i + LONGEST)


def parse_json(text: str) -> Any:
    """The value of JSON text that may lack its first bracket or its end. Raises Broken."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        stripped = "{" + stripped
    for candidate in (stripped, stripped.rstrip(",") + "}", _closed(stripped)):
        try:
            return json.JSONDecoder().raw_decode(candidate)[0]
        except ValueError as error:
            why = str(error)
    raise Broken(why)


def _closed(text: str) -> str:
    """`text` with the brackets closed that a cut left open."""
    opened: list[str] = []
    in_string, before = False, ""
    for char in text:
        if char == '"' and before != "\\":
            in_string = not in_string
        elif not in_string and char in "{[":
            opened.append("}" if char == "{" else "]")
        elif not in_string and char in "}]" and opened:
            opened.pop()
        before = char
    return text.rstrip().rstrip(",") + "".join(reversed(opened))


def parse_yaml(text: str) -> list[Any]:
    """The documents of YAML text. Raises Broken."""
    import yaml  # a tenth of the start of the whole command: only where there is YAML

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return [document for document in yaml.load_all(text, Loader=loader) if document is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise Broken(" ".join(str(error).split())[:200]) from error


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping inside `value`, itself included, outermost first."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from mappings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from mappings(inner)


def texts(value: Any) -> list[str]:
    """The strings of a list (or one string, or a list of numbers) of a document."""
    if isinstance(value, list):
        return [str(item) for item in value if isinstance(item, str | int | float)]
    return [value] if isinstance(value, str) else []
