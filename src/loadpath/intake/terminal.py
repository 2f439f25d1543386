"""What a terminal would have shown: colour codes gone, progress bars that overwrote themselves told apart."""

from __future__ import annotations

import re

# CSI, OSC and the two-byte escapes; also as `cat -v`, rsyslog, JSON and Python show the ESC byte.
_ESCAPE = r"(?:\x1b|\u241b|\^\[|\\x1b|\\u001[bB]|\\033|\\e|#033)"
_CODES = re.compile(
    rf"{_ESCAPE}\[[0-?]*[ -/]*[@-~]|{_ESCAPE}\][^\x07\x1b\n]{{0,512}}?(?:\x07|{_ESCAPE}\\)"
    r"|\x9b[0-?]*[ -/]*[@-~]|\x1b[()*+][0-9A-Za-z]|\x1b[@-Z\\^_a-z=>78]"
)
# A browser or an issue form drops the ESC byte and leaves the rest of a colour code.
_BARE_COLOUR = re.compile(r"\[(?:[0-9]|[1-9][0-9])?(?:;[0-9]{1,3})*m(?![\w.])|\[[0-9]{1,2}(?:;[0-9]{1,3})*m(?=\()")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HINTS = ("\x1b", "\u241b", "^[", "\\x1b", "\\u001", "\\033", "\\e[", "#033", "\x9b")

BAR = re.compile(
    r"\d{1,3}%(?:\s*\||\s+Completed\b)|\|\s*[\d.]+[kMGTP]?i?B?/[\d.?]+[kMGTP]?i?B?\s*\[|\d[\d.]{0,12}(?:it/s|s/it|[kMG]?B/s)[,\]]"
)
_BAR_END = re.compile(
    r"\[[^\[\]]*?(?:\?|[\d.]+\s?[kMGTP]?)(?:it/s|s/it|[kMGTP]?i?B/s|\w+/s|s/\w+)(?:,[^\[\]]*)?\](?=\s*\S)"
)
_LABEL = re.compile(r"^[^\d|%]*")
_BAR_TAIL = re.compile(r"^\s*(?:$|\[repeated \d+x)")


def without_codes(text: str) -> str:
    """`text` without ANSI and OSC codes and other control characters (tabs, line ends and returns stay)."""
    if any(hint in text for hint in _HINTS):
        text = _CODES.sub("", text)
    if "m" in text and "[" in text:
        text = _BARE_COLOUR.sub("", text)
    return text if text.isprintable() else _CONTROL.sub("", text)


def shown(line: str) -> list[str]:
    """The pieces of one physical line that a reader wants: the last state of each bar, every record.

    Updates of one bar that overwrote each other by carriage returns leave only the last; what a program
    printed behind a bar on the same visual line becomes a piece of its own.
    """
    if "\r" not in line and not _may_hold_bar(line):
        return [without_codes(line).rstrip()]
    kept: list[str] = []
    label = None
    for part in line.split("\r"):
        for piece in _behind_bars(without_codes(part).rstrip()):
            if not piece.strip():
                continue
            bar = _LABEL.match(piece).group() if BAR.search(piece) else None  # type: ignore[union-attr]
            if bar is not None and bar == label:
                kept[-1] = piece
            else:
                kept.append(piece)
            label = bar
    return kept or [""]


def _may_hold_bar(line: str) -> bool:
    return "]" in line and ("/s" in line or "s/it" in line)


def _behind_bars(piece: str) -> list[str]:
    pieces: list[str] = []
    if BAR.search(piece):
        while found := _BAR_END.search(piece):
            if _BAR_TAIL.match(piece[found.end() :]):
                break
            pieces.append(piece[: found.end()])
            piece = piece[found.end() :].lstrip()
    return [*pieces, piece]
