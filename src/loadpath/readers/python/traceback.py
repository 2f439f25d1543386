"""Python tracebacks: chained, of several ranks at once, in exception groups, with the head cut off, or one line alone.

    Traceback (most recent call last):
      File "/srv/serve.py", line 7, in main
        start()
    ValueError: no such model

Lines of different ranks or processes are followed apart; the first cause in a chain has `chain` 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.errors import PythonException
from loadpath.core.text import Capture, Line, Origin

KEPT_FRAMES = 12
LONGEST_MESSAGE = 8  # lines
_HEAD = "Traceback (most recent call last)"
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_ENDINGS = (
    r"\w*(?:Error|Exception|Interrupt|Timeout|Exit|Expired|Failure|Warning|Empty|NotFound|Refused|Unavailable)\w*"
)

Frame = tuple[str, int, str]


class _Thread:
    """What has been seen so far of the traceback of one rank or process."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.open = False
        self.chain = 0
        self.linked = False

    def begin(self) -> None:
        self.frames, self.open = [], True
        self.chain = self.chain + 1 if self.linked else 0
        self.linked = False

    def end(self) -> None:
        self.frames, self.open, self.linked = [], False, False


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "frame": re.compile(r'^File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?'),
        "error": re.compile(rf"^(?P<name>(?:[A-Za-z_]\w*\.)*(?:{_ENDINGS})(?:\(\w+\))?)(?:: ?(?P<message>.*))?$"),
        "pydantic": re.compile(r"^Value error, (?P<message>.+?)(?: \[type=value_error.*)?$"),
        "group": re.compile(r"^(?:[|+] ?|\+?-\+[-+ \d.]*|\s)+"),
    }


def read(capture: Capture) -> Iterator[PythonException]:
    if capture.kind == "kernel-log":
        return  # no Python there: `Error: Driver '…' is already registered` is a boot line
    threads: dict[object, _Thread] = {}
    lines = capture.lines
    for i, line in enumerate(lines):
        text = line.text.lstrip()
        if not text or line.prose:
            continue
        if text[0] in "|+":
            text = _patterns()["group"].sub("", text)
        thread = threads.setdefault(_who(line.origin), _Thread())
        if _HEAD in text:
            thread.begin()
        elif any(mark in text for mark in _CHAIN):
            thread.linked = True
        elif text.startswith('File "'):
            _frame(thread, text)
        elif found := _exception(capture, lines, i, text, thread):
            yield found


def _who(origin: Origin) -> object:
    return (origin.rank, origin.pid, origin.process, origin.container, origin.pod)


def _frame(thread: _Thread, text: str) -> None:
    hit = _patterns()["frame"].match(text)
    if hit is None:
        return
    if not thread.open:
        thread.begin()
    thread.frames.append((hit["file"], int(hit["line"]), hit["function"] or ""))


def _exception(capture: Capture, lines: tuple[Line, ...], i: int, text: str, thread: _Thread) -> PythonException | None:
    if hit := _patterns()["pydantic"].match(text):
        return PythonException(**at(capture, lines[i]), exception="ValueError", message=hit["message"])
    hit = _patterns()["error"].match(text)
    if hit is None or (not thread.open and not hit["message"]):
        return None
    if not thread.open and not thread.linked:
        thread.chain = 0
    more = _continuation(lines, i)
    found = PythonException(
        **at(capture, lines[i], more[-1] if more else None),
        exception=hit["name"],
        message="\n".join([hit["message"] or "", *(line.text.strip() for line in more)]).strip(),
        frames=tuple(thread.frames[-KEPT_FRAMES:]),
        chain=thread.chain,
    )
    thread.end()
    return found


def _continuation(lines: tuple[Line, ...], i: int) -> list[Line]:
    """The further lines of a message: same writer, same record header, until a blank or the next thing begins."""
    first, more = lines[i], []
    for line in lines[i + 1 : i + 1 + LONGEST_MESSAGE]:
        text = line.text.strip()
        if not text or line.prose or _who(line.origin) != _who(first.origin):
            break
        if line.origin.location != first.origin.location or line.origin.level != first.origin.level:
            break
        if _HEAD in text or text.startswith(('File "', *_CHAIN)) or _patterns()["error"].match(text):
            break
        if _patterns()["pydantic"].match(text):
            break
        more.append(line)
    return more
