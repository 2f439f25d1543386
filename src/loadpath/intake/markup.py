"""What issue forms, mail and web pages wrap around a paste: entities, quotes, fences."""

from __future__ import annotations

import html
import re

_ENTITY = re.compile(r"&(?:gt|lt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,5});")
_QUOTE = re.compile(r"(?:>{1,2} )+|>{1,3}$")
FENCE = re.compile(r"\s*(?:```+|~~~+)\s*([\w+-]*)[^`]*$")


def unescaped(text: str) -> str:
    """`&gt;` → `>`, also where it was escaped twice."""
    for _ in range(2):
        if "&" not in text or not _ENTITY.search(text):
            break
        text = _ENTITY.sub(lambda m: html.unescape(m[0]), text)
    return text


def unquoted(text: str) -> str:
    """Without the `> ` of Markdown and mail quotes."""
    if text.startswith(">") and (m := _QUOTE.match(text)):
        return text[m.end() :]
    return text
