"""/proc/meminfo: the host's RAM and swap, and what is set aside for huge pages.

MemTotal:       263832344 kB
MemAvailable:   240124120 kB
HugePages_Total:    1024
Hugepagesize:       2048 kB
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.host import HostMemory
from loadpath.core.facts.runtime import HostSetting, HugePages
from loadpath.core.text import Capture, Line
from loadpath.core.units import KIB

_ROW = re.compile(r"^\s*(?P<name>[A-Z]\w*(?:\(\w+\))?):\s+(?P<value>\d+)(?P<unit> kB)?$")
FEWEST = 2
"""Rows of a paste that make a capture."""


def extent(lines: Sequence[Line], i: int) -> int:
    end = i
    while end < len(lines) and _ROW.match(lines[end].text):
        end += 1
    return end if end - i >= FEWEST and lines[i].text.lstrip().startswith("MemTotal:") else i


def read(capture: Capture) -> Iterator[Fact]:
    rows: dict[str, tuple[int, Line]] = {}
    for line in capture.lines:
        if found := _ROW.match(line.raw):
            rows[found["name"]] = (int(found["value"]) * (KIB if found["unit"] else 1), line)
    if "MemTotal" not in rows:
        return
    total, first = rows["MemTotal"]
    free = rows.get("MemAvailable", (None, first))
    used = total - free[0] if free[0] is not None else None
    swap, swap_free = rows.get("SwapTotal", (None, first))[0], rows.get("SwapFree", (None, first))[0]
    yield HostMemory(
        **at(capture, free[1]), total_bytes=total, available_bytes=free[0], used_bytes=used,
        used_share=used / total if used is not None and total else None, swap_total_bytes=swap,
        swap_used_bytes=swap - swap_free if swap is not None and swap_free is not None else None,
    )  # fmt: skip
    if "Cached" in rows:
        cached, line = rows["Cached"]
        yield HostSetting(**at(capture, line), name="memory.page-cache", value=str(cached))
    if rows.get("HugePages_Total", (0, first))[0] and "Hugepagesize" in rows:
        count, line = rows["HugePages_Total"]
        page = rows["Hugepagesize"][0]
        left = rows.get("HugePages_Free", (0, line))[0]
        yield HugePages(**at(capture, line), total=count, free=left, page_bytes=page)
