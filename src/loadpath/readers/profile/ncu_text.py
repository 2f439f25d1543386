"""What Nsight Compute prints on a terminal: the launch, then its sections as small tables and what the rules say.

add(float *, int) (4096, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.9
  Section: GPU Speed Of Light Throughput
  ----------------------- ----------- ------------
  Metric Name             Metric Unit Metric Value
  ----------------------- ----------- ------------
  Duration                         us        12.42
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line
from loadpath.readers.profile.ncu_csv import Launch, volume

_LAUNCH = re.compile(
    r"^\s*(?P<name>\S.*?)\s*(?P<grid>\([\d, ]+\))x(?P<block>\([\d, ]+\)), Context \d+, Stream \d+"
    r"(?:, Device \d+, CC (?P<cc>[\d.]+))?"
)
_OLD = re.compile(r"^\s*(?P<name>\S.*?), \d{4}-\w{3}-\d\d [\d:]+, Context \d+, Stream \d+\s*$")
_SECTION = re.compile(r"^\s*Section: (.+?)\s*$")
_METRIC = re.compile(
    r"^\s+(?P<name>\S.*?)\s{2,}(?:(?P<unit>[A-Za-z%][\w/%]*)\s+)?(?P<value>\(?-?[\d,]+(?:\.\d+)?\)?)\s*$"
)
_TIGHT = re.compile(r"^\s+(?P<name>\S.*?) (?P<unit>%|[A-Za-z]+(?:/\w+)?)\s+(?P<value>-?[\d,]+(?:\.\d+)?)\s*$")
_RULE = re.compile(r"^\s*(?:OPT|WRN|INF)\s{2,}(\S.*?)\s*$")


def extent(lines: Sequence[Line], i: int) -> int:
    if not (_LAUNCH.match(lines[i].text) or _OLD.match(lines[i].text)):
        return i
    if not any(_SECTION.match(line.text) for line in lines[i + 1 : i + 4]):
        return i
    end = i + 1
    while end < len(lines) and (not lines[end].text.strip() or lines[end].text.startswith("  ")):
        end += 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    launch: Launch | None = None
    section, count, rule = "", 0, ""
    for line in capture.lines:
        if found := _LAUNCH.match(line.text) or _OLD.match(line.text):
            if launch is not None:
                yield launch.fact(capture)
            launch = _begun(found.groupdict(), line, count)
            count += 1
        elif launch is None:
            continue
        elif named := _SECTION.match(line.text):
            section, rule = named[1], ""
        elif told := _RULE.match(line.text):
            rule = f"{section} {len(launch.said) + 1}"
            launch.said[rule] = told[1]
        elif metric := _METRIC.match(line.text) or _TIGHT.match(line.text):
            launch.take(metric["name"], metric["unit"] or "", metric["value"].strip("()"))
            launch.last = line
        elif rule and line.text.strip() and not line.text.strip().startswith("-"):
            launch.said[rule] += " " + line.text.strip()
        else:
            rule = ""
    if launch is not None:
        yield launch.fact(capture)


def _begun(found: dict[str, str | None], line: Line, number: int) -> Launch:
    return Launch(
        number=number,
        name=found["name"] or "",
        first=line,
        last=line,
        capability=found.get("cc") or "",
        blocks=volume(found.get("grid") or ""),
        threads=volume(found.get("block") or ""),
    )
