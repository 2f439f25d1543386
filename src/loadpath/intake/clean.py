"""Bytes → lines: decoded, stripped of terminal codes and prefixes, each with its number in the source."""

from __future__ import annotations

import re

from loadpath.core.text import Line

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


def clean(data: bytes) -> list[Line]:
    text = data.decode("utf-8", "replace")
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        shown = _ANSI.sub("", raw).rstrip("\r")
        lines.append(Line(number, shown.strip(), shown.rstrip()))
    return lines
