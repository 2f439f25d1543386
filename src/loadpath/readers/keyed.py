"""`key: value` lines, as the probes write what they put together themselves; a key may come more than once."""

from __future__ import annotations

from loadpath.core.text import Capture, Line


def keyed(capture: Capture) -> dict[str, tuple[str, ...]]:
    """Key → its values, in order."""
    found: dict[str, list[str]] = {}
    for line in capture.lines:
        key, value = pair(line)
        if key:
            found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def pair(line: Line) -> tuple[str, str]:
    """The key and the value of one line; two empty texts where it has none."""
    key, colon, value = line.raw.strip().partition(": ")
    if not colon:
        key, value = key.removesuffix(":"), ""
    return key.strip(), value.strip()
