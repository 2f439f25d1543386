"""Messages that a terminal, a mail client or a careful person broke over several lines, made whole again.

A join needs evidence: many lines that end at exactly the same column; lines that could not have held the next
line's first word; an indented continuation of a kernel message; a parenthesis that only the next line closes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from loadpath.core.text import NO_ORIGIN, Line

NARROWEST = 60  # columns of a terminal
SAME_WIDTH = 3  # so many lines of exactly the greatest width show a terminal's edge
HIDDEN = 40  # columns that the colour codes of prefixes took on a terminal, at most
MAIL = (50, 110)  # columns at which people and mail clients break a message
MOST = 400  # lines that one message is joined from at most (a wrapped configuration dump has 20)

_TABLE = re.compile(r"[|+│┃╭╰=-]\s*$|^\s*[|+│]|^\s*[-=_*#^~]{6,}")
_HEAD = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Warning)\b[^:]{0,40}: |.{0,40}\bNVRM: ")
_MESSAGE = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception): |\s*Value error, ")
_PLAIN = re.compile(r"[(`'\"]?[A-Za-z][A-Za-z_'-]*[`'\").,;:]*$|\d[\d.,]*$")
_SENTENCE = re.compile(r"[A-Z(0-9][\w.,()%]* [a-z]")
_LABELLED = re.compile(r"[\w.]+(?: +\w+)?:|.* \| ")
_CUT_SENTENCE = re.compile(r"[a-z`][\w`'-]*[,.;]?(?: [^:]*[^:]|)$")
PROSE_LIKE = 0.6  # of a message's words are plain ones
_WORD = re.compile(r"`?[a-z][a-z'`-]*[,.;`]?(?=\s|$)|`\w[\w-]*`")
_STOP = re.compile(r"[.!?:;>)\]}]\s*$")
_STACK = re.compile(r"\s*(?:File \"|Traceback |\^|During handling|The above exception)")


def rejoined(lines: Sequence[Line], widths: Sequence[int]) -> list[Line]:
    """`lines` with wrapped messages joined. `widths`: each line's width as pasted, blanks at its end included."""
    edges = _edges(lines, widths)
    out: list[Line] = []
    i = 0
    while i < len(lines):
        end, glue = _terminal(lines, widths, i, edges) if edges else (i + 1, "")
        if end == i + 1:
            end, glue = _kernel(lines, i), " "
        if end == i + 1:
            end = _mail(lines, i)
        if end == i + 1:
            end, glue = _unclosed(lines, widths, i), ""
        out.append(_join(_spaced(lines[i:end], widths[i:end]), glue) if end > i + 1 else lines[i])
        i = end
    return out


def _spaced(parts: Sequence[Line], widths: Sequence[int]) -> list[Line]:
    """`parts` with one blank at the end of each that was cut after a blank."""
    return [
        msgspec.structs.replace(part, text=f"{part.text} ", raw=f"{part.raw} ")
        if width > len(part.raw) and part is not parts[-1] else part
        for part, width in zip(parts, widths, strict=True)
    ]  # fmt: skip


def _join(parts: Sequence[Line], glue: str) -> Line:
    first = parts[0]
    if glue:
        text = glue.join([first.text.rstrip(), *(_bare(p, first) for p in parts[1:])])
        raw = glue.join([first.raw.rstrip(), *(p.raw.strip() for p in parts[1:])])
    else:
        text, raw = "".join(p.text for p in parts), "".join(p.raw for p in parts)
    return msgspec.structs.replace(first, text=text, raw=raw, last_number=parts[-1].end)


def _bare(part: Line, first: Line) -> str:
    """A continuation without the `NVRM: ` that the driver repeats."""
    text = part.text.strip()
    return text.removeprefix("NVRM: ") if first.text.startswith("NVRM: ") else text


def _plain(line: Line) -> bool:
    """Does the line carry no prefix at all?"""
    return line.origin == NO_ORIGIN


def _class(line: Line) -> int:
    """How many process prefixes a line has: their colour codes were columns to the terminal and are gone now."""
    return line.raw[:240].count("pid=")


def _edges(lines: Sequence[Line], widths: Sequence[int]) -> dict[int, int]:
    """The terminal's width for each number of process prefixes; empty where nothing shows one.

    Only records and what follows them count: lists and tables have equal widths by nature.
    """
    by_class: dict[int, Counter[int]] = {}
    for line, width in zip(lines, widths, strict=True):
        if _record(line) and width >= NARROWEST:
            by_class.setdefault(_class(line), Counter())[width] += 1
    tops = {kind: max(counts) for kind, counts in by_class.items()}
    full, followed, cut = 0, 0, 0
    inside = False
    for i, (line, width) in enumerate(zip(lines, widths, strict=True)):
        at_top = _record(line) and width == tops.get(_class(line))
        inside = at_top or (inside and _continues(line))
        full = max(full, width) if inside else full
        if at_top and i + 1 < len(lines):
            cut += 1
            followed += _continues(lines[i + 1])
    pieces = sum(1 for line, width in zip(lines, widths, strict=True) if width == full and not _record(line))
    if followed + pieces < SAME_WIDTH or followed < 0.6 * cut:
        return {}
    edges = {
        kind: top for kind, top in tops.items() if top > full - HIDDEN and (by_class[kind][top] > 1 or top == full)
    }
    return edges | {0: full} if 0 not in edges or edges[0] < full else edges


def _record(line: Line) -> bool:
    return not _plain(line)


def _continues(line: Line) -> bool:
    return _plain(line) and bool(line.text) and not _STACK.match(line.raw)


def _terminal(lines: Sequence[Line], widths: Sequence[int], i: int, edges: dict[int, int]) -> tuple[int, str]:
    end = i + 1
    if not _record(lines[i]) and not _MESSAGE.match(lines[i].text):
        return end, ""
    while (
        end < min(len(lines), i + MOST)
        and widths[end - 1] == edges.get(_class(lines[end - 1]), -1)
        and _continues(lines[end])
        and not _TABLE.search(lines[end].raw)
    ):
        end += 1
    return end, ""


def _kernel(lines: Sequence[Line], i: int) -> int:
    """A kernel message whose following lines are indented and bear no time: dmesg's own layout, or a person's."""
    first = lines[i]
    if not (first.text.startswith("NVRM: ") or first.origin.uptime is not None or first.origin.process == "kernel"):
        return i + 1
    end = i + 1
    while end < min(len(lines), i + 8) and lines[end].raw[:2].isspace() and _continues(lines[end]):
        end += 1
    return end


def _mail(lines: Sequence[Line], i: int) -> int:
    """A message broken between words: none of its lines could have held the next one's first word.

    Two lines are a weak sign (the longer one is always full), so there the first must be an error's message.
    """
    head = lines[i]
    if not head.text or head.text[0].isspace() or not MAIL[0] <= len(head.raw) <= MAIL[1] or _TABLE.search(head.raw):
        return i + 1
    named = _HEAD.match(head.text) is not None
    if not named and (_words(head.text) < PROSE_LIKE or _STOP.search(head.text) or _LABELLED.match(head.text)):
        return i + 1
    end = i + 1
    while end < min(len(lines), i + 12) and _goes_on(lines[end - 1], lines[end], named=named):
        end += 1
    while end > i + 1 and not _greedy(lines[i:end]):
        end -= 1
    named = named and "NVRM: " not in head.text[:80]
    if end == i + 2 and (not named or not _CUT_SENTENCE.match(lines[i + 1].text) or _STOP.search(head.text)):
        return i + 1
    return end


def _goes_on(before: Line, line: Line, *, named: bool) -> bool:
    if not _continues(line) or line.text[0].isspace() or _TABLE.search(line.raw) or len(line.raw) > MAIL[1]:
        return False
    if len(before.raw) < MAIL[0] or _words(line.text) < PROSE_LIKE:
        return False
    if _WORD.match(line.text):
        return named or not _STOP.search(before.text)
    return named and _HEAD.match(line.text) is None and _SENTENCE.match(line.text) is not None


def _words(text: str) -> float:
    """The share of plain words in a text."""
    words = text.split()
    return sum(1 for word in words if _PLAIN.match(word)) / max(1, len(words))


def _greedy(parts: Sequence[Line]) -> bool:
    """Is every line but the last so full that the next line's first word did not fit?"""
    edge = max(len(p.raw.rstrip()) for p in parts)
    return all(len(a.raw.rstrip()) + 1 + len(b.text.split(None, 1)[0]) > edge for a, b in pairwise(parts))


def _unclosed(lines: Sequence[Line], widths: Sequence[int], i: int) -> int:
    """A record that ends inside a parenthesis or a word, and whose next line closes it and bears no prefix."""
    head = lines[i]
    if widths[i] < 79 or head.origin.level is None or head.text[:1].isspace() or i + 1 == len(lines):
        return i + 1
    after = lines[i + 1]
    if not _continues(after) or after.raw[:1].isspace() or not head.text[-1:].isalnum():
        return i + 1
    opens = head.text.count("(") - head.text.count(")")
    closes = after.text.count(")") - after.text.count("(")
    return i + 2 if opens > 0 and closes >= opens else i + 1


def joined_at_widest(lines: Sequence[Line], glue: str) -> list[Line]:
    """`lines` with each one of the greatest width joined to the next: what a hard wrap would look like.

    A guess, for a paste of a few lines in which no reader found anything: one widest line is no evidence of a wrap.
    """
    widest = max((len(line.raw) for line in lines if not line.prose), default=0)
    if widest < NARROWEST:
        return list(lines)
    out: list[Line] = []
    goes_on = False
    for line in lines:
        if goes_on and line.text:
            held = out[-1]
            out[-1] = msgspec.structs.replace(
                held, text=held.text + glue + line.raw, raw=held.raw + glue + line.raw, last_number=line.end
            )
        else:
            out.append(line)
        goes_on = len(line.raw) == widest
    return out
