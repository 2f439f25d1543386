"""`kubectl describe pod|node`, `get events`, `get pods` as a whole: claims their lines; `kubernetes` reads them, as it reads fragments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line

_DESCRIBE = re.compile(r"^Name:\s+\S+$")
_SURE = re.compile(r"^(?:Namespace|Roles|Priority|Labels|Annotations):")
_TABLE = re.compile(
    r"^(?:NAMESPACE\s+)?(?:NAME\s+READY\s+STATUS\s+RESTARTS|LAST SEEN\s+(?:FIRST SEEN\s+)?(?:COUNT\s+NAME\s+)?TYPE\s+REASON)"
)
_EVENTS = re.compile(r"^Events:\s*(?:<none>)?$")
_INDENTED = re.compile(r"^\s+\S|^[A-Z][\w .()/-]{1,60}:(?:\s|$)|^$")
_ROW = re.compile(r"^\S+(?:\s{2,}|\s+\d+/\d+\s)\S")


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text
    if _TABLE.match(text):
        end = i + 1
        while end < len(lines) and _ROW.match(lines[end].text):
            end += 1
        return end if end > i + 1 else i
    if not (_EVENTS.match(text) or (_DESCRIBE.match(text) and any(_SURE.match(x.text) for x in lines[i + 1 : i + 6]))):
        return i
    end = i + 1
    while end < len(lines) and _INDENTED.match(lines[end].text):
        end += 1
    while not lines[end - 1].text:
        end -= 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    return iter(())
