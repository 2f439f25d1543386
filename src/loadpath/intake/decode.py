"""Bytes → text: byte-order marks, UTF-16 with and without one, NULs, bytes that are no UTF-8."""

from __future__ import annotations

import codecs

PROBE = 4096  # so many bytes tell whether text is UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding of a text that begins with `head`, and the length of its byte-order mark.

    Without a mark, text whose every other byte is mostly NUL is UTF-16: ASCII characters are in it so.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    head = head[: PROBE - PROBE % 2]
    if len(head) >= 4 and b"\0" in head:
        even, odd = head[0::2], head[1::2]
        if odd.count(0) > 0.7 * len(odd) and even.count(0) < 0.1 * len(even):
            return "utf-16-le", 0
        if even.count(0) > 0.7 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "utf-16-be", 0
    return "utf-8", 0


def decode(data: bytes) -> str:
    """The text of `data`, whatever it is.

    NULs (sparse files, crashed writers) are dropped; what the encoding does not know becomes U+FFFD.
    """
    encoding, mark = encoding_of(data)
    text = data[mark:].decode(encoding, "replace")
    return text.replace("\0", "") if "\0" in text else text
