"""Prefixes that only a whole source gives away: compose names, `srun -l` ranks, host names, running numbers.

One line `0: NVIDIA H100` may be a device list; forty lines that all begin with `0: ` or `1: ` are two tasks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from loadpath.intake.prefixes.notes import Notes
from loadpath.intake.prefixes.strong import STRONG

_FRONT = 400  # characters of a line in which its carriers stand
_SAMPLE = 4000  # so many lines of a source are looked at
_SHARE = 0.8  # of the lines that are not empty must bear a prefix that has no other sign
_NUMBER = re.compile(r"\s{0,8}(\d{1,9})([:|\t]|-(?=\D)) ?")
_TASK = re.compile(r"\s?(\d{1,4}): ?")
_NOTEBOOK = re.compile(r"(\d+(?:\.\d+)?)s\t? ?\d+\t? ?")
_FILE = re.compile(r"([\w./-]+\.(?:log|txt|out|err|md))[:-](?:(\d+)[:-])? ?")
_COMPOSE = re.compile(r"([\w.-]{1,80}?)( +)\| ?")
_HOST = re.compile(r"([\w.-]*[\d-][\w.-]*): ?")
_NO_HOST = (".py", ".cpp", ".go", ".cc", ".cu", ".rs", ".h")
_FILTER = re.compile(r"(?:head|tail|grep|egrep|less|more|awk|sort|tee|wc|sed|xargs|jq|cat|bash|sh|python3?)\b")


class Carriers(msgspec.Struct, frozen=True):
    """What carries the lines of one source, outermost first."""

    form: re.Pattern[str] | None = None
    ranks: bool = False
    compose: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def strip(self, text: str, notes: Notes) -> str:
        """`text` without the carriers' prefixes; facts of them go to `notes`."""
        if self.form is not None and (m := self.form.match(text)):
            if self.ranks:
                notes.note(rank=int(m[1]))
            text = text[m.end() :]
        if self.compose and (m := _COMPOSE.match(text)) and m[1] in self.compose:
            notes.note(container=m[1])
            text = text[m.end() :]
        if self.hosts and (m := _HOST.match(text)) and m[1] in self.hosts:
            notes.note(host=m[1])
            text = text[m.end() :]
        return text


NONE = Carriers()


def learn(lines: Sequence[str]) -> Carriers:
    """The carriers of a source, from its first lines."""
    sample = [line[:_FRONT] for line in lines[:_SAMPLE] if line.strip()]
    form, ranks = _form(sample)
    if form is not None:
        sample = [form.sub("", line, count=1) for line in sample]
    return Carriers(form, ranks, _names(sample, _COMPOSE, _composed), _names(sample, _HOST, lambda _: False))


def _form(sample: list[str]) -> tuple[re.Pattern[str] | None, bool]:
    if len(sample) < 3:
        return None, False
    for pattern, accepts in ((_NOTEBOOK, _rising), (_NUMBER, _counting), (_FILE, bool)):
        found = [m for line in sample if (m := pattern.match(line))]
        if len(found) >= _SHARE * len(sample) and accepts(found):
            return pattern, False
    tasks = [m for line in sample if (m := _TASK.match(line))]
    if len(tasks) >= _SHARE * len(sample) and any(STRONG.match(m.string, m.end()) for m in tasks):
        return _TASK, True
    return None, False


def _counting(found: list[re.Match[str]]) -> bool:
    """Running numbers: each greater than the one before."""
    numbers = [int(m[1]) for m in found]
    return len(numbers) >= 4 and all(a < b for a, b in pairwise(numbers))


def _rising(found: list[re.Match[str]]) -> bool:
    seconds = [float(m[1]) for m in found]
    return all(a <= b for a, b in pairwise(seconds))


def _names(sample: list[str], pattern: re.Pattern[str], recurring: Callable[[re.Match[str]], bool]) -> frozenset[str]:
    """Names that stand once before what only a program prints, or often in the same form."""
    sure: set[str] = set()
    often: Counter[str] = Counter()
    for line in sample:
        m = pattern.match(line)
        if m is None or m[1].endswith(_NO_HOST):
            continue
        if STRONG.match(line, m.end()):
            sure.add(m[1])
        elif recurring(m):
            often[m[1]] += 1
    return frozenset(sure | {name for name, count in often.items() if count > 1})


def _composed(m: re.Match[str]) -> bool:
    return (len(m[2]) > 1 or re.search(r"[-_]\d+$", m[1]) is not None) and not _FILTER.match(m.string, m.end())
