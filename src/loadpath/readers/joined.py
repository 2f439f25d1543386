"""One message out of a line and those after it: intake joins what it has evidence for, single pasted messages it cannot.

A message is broken between words (a mail client, a person) or inside one (a terminal): both readings are offered, and
the reader keeps the one in which it finds more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadpath.core.text import Line

_NEW = re.compile(r"^Traceback \(|^\s*File \"|^[\w.]+(?:Error|Exception):")


def readings(lines: Sequence[Line], i: int, most: int, ends: re.Pattern[str] | None = None) -> list[str]:
    """The message that begins with line i, of at most `most` lines: joined by blanks, and joined without.

    It ends before a line of another process, before a new exception or traceback, or where `ends` is found.
    """
    own = lines[i].origin
    parts, last = [lines[i].text], lines[i].end
    for line in lines[i + 1 : i + most]:
        other = (line.origin.rank, line.origin.pid) not in ((None, None), (own.rank, own.pid))
        if line.number > last + 2 or other or _NEW.search(line.text) or (ends and ends.search(line.text)):
            break
        parts.append(line.text.strip())
        last = line.end
    spaced, glued = " ".join(parts), "".join(parts)
    return [spaced] if len(parts) == 1 else [spaced, glued]
