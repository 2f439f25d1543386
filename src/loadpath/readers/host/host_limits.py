"""Limits and sizes of the host: `df`, `free`, `ulimit`, /proc/PID/limits.

shm              64M   20M   45M  31% /dev/shm
Mem:           125Gi        28Gi        90Gi       1.2Gi       7.0Gi        95Gi
max locked memory           (kbytes, -l) 8192
Max locked memory         8388608              8388608              bytes
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.host import FilesystemUse, HostMemory, ResourceLimit
from loadpath.core.text import Capture, Line
from loadpath.core.units import GIB, KIB, MIB, parse_size

_SIZE = r"[\d.,]+(?:[KMGTP]i?B?|B)?"
# ulimit's option letters: the rlimit and what its figure counts.
_LETTERS = {"l": ("memlock", KIB), "n": ("nofile", 1), "u": ("nproc", 1), "v": ("as", KIB), "s": ("stack", KIB),
            "c": ("core", 512), "d": ("data", KIB), "m": ("rss", KIB)}  # fmt: skip
_PROC = {"locked memory": "memlock", "open files": "nofile", "processes": "nproc", "address space": "as",
         "stack size": "stack", "core file size": "core"}  # fmt: skip


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile({
        "df": rf"^(?P<fs>\S+)\s+(?:[a-z][\w.]*\s+)?(?P<size>{_SIZE})\s+(?P<used>{_SIZE})\s+(?P<free>{_SIZE})\s+"
        r"(?:\d+%|-)\s+(?P<mount>/\S*)$",
        "ray": r"(?P<mount>/\S+) is over [\d.]+% full, available space: (?P<free>\d+(?:\.\d+)? ?(?:[KMGT]i?B)?)[;,] "
        r"capacity: (?P<size>\d+(?:\.\d+)? ?(?:[KMGT]i?B)?)",
        "mem": rf"^Mem:\s+(?P<total>{_SIZE})\s+(?P<used>{_SIZE})\s+(?P<free>{_SIZE})(?:\s+{_SIZE}\s+{_SIZE}\s+(?P<avail>{_SIZE}))?",
        "swap": rf"^Swap:\s+(?P<total>{_SIZE})\s+(?P<used>{_SIZE})",
        "free": r"\bfree\s+(?:-\w*(?P<unit>[bkmg])\w*)",
        "ulimit-a": r"\((?:(?P<unit>kbytes|blocks|bytes|[^,()]*), )?-(?P<letter>[lnuvscdm])\)\s+(?P<value>\d+|unlimited)$",
        "ulimit": r"ulimit\s+-(?:[HS]+\s*-?)?(?P<letter>[lnuvscdm])\s*$",
        "proc": r"^Max (?P<what>locked memory|open files|processes|address space|stack size|core file size)\s+"
        r"(?P<value>\d+|unlimited)\s+(?:\d+|unlimited)",
    }[name])  # fmt: skip


def read(capture: Capture) -> Iterator[Fact]:
    lines = [line for line in capture.lines if line.text]
    for i, line in enumerate(lines):
        text = line.text.strip()
        if "/" in text and (found := _pattern("df").match(text)):
            yield from _filesystem(capture, line, found)
        elif "available space" in text and (found := _pattern("ray").search(text)):
            yield from _warned(capture, line, found)
        elif text.startswith("Mem:"):
            yield from _memory(capture, lines, i)
        elif "ulimit" in text or ", -" in text or "(-" in text:
            yield from _ulimit(capture, lines, i)
        elif found := _pattern("proc").match(text):
            yield ResourceLimit(**at(capture, line), name=_PROC[found["what"]], value=_count(found["value"], 1))


def _filesystem(capture: Capture, line: Line, found: re.Match[str]) -> Iterator[FilesystemUse]:
    size, used, free = (_bytes(found[name], KIB) for name in ("size", "used", "free"))
    if size is not None and used is not None and free is not None:
        yield FilesystemUse(
            **at(capture, line), mount=found["mount"], filesystem=found["fs"],
            size_bytes=size, used_bytes=used, free_bytes=free,
        )  # fmt: skip


def _warned(capture: Capture, line: Line, found: re.Match[str]) -> Iterator[FilesystemUse]:
    """Ray's warning about the file system of its session folder: bytes, in newer versions GB."""
    size, free = parse_size(found["size"]), parse_size(found["free"])
    if size is not None and free is not None:
        yield FilesystemUse(
            **at(capture, line),
            mount=found["mount"],
            filesystem="",
            size_bytes=size,
            used_bytes=size - free,
            free_bytes=free,
        )


def _memory(capture: Capture, lines: Sequence[Line], i: int) -> Iterator[HostMemory]:
    found = _pattern("mem").match(lines[i].text.strip())
    if found is None:
        return
    asked = next((m["unit"] for line in lines[max(0, i - 3) : i] if (m := _pattern("free").search(line.text))), None)
    unit = {"b": 1, "k": KIB, "m": MIB, "g": GIB}.get(asked or "") or _guess(found["total"])
    swap = _pattern("swap").match(lines[i + 1].text.strip()) if i + 1 < len(lines) else None
    total, used = _bytes(found["total"], unit), _bytes(found["used"], unit)
    yield HostMemory(
        **at(capture, lines[i]), total_bytes=total, used_bytes=used,
        available_bytes=_bytes(found["avail"], unit) if found["avail"] else None,
        used_share=used / total if used is not None and total else None,
        swap_total_bytes=_bytes(swap["total"], unit) if swap else None,
        swap_used_bytes=_bytes(swap["used"], unit) if swap else None,
    )  # fmt: skip


def _guess(total: str) -> int:
    """The unit of `free` without its option: a machine of this kind has between 4 GiB and 4 TiB."""
    value = float(re.sub(r"[^\d.]", "", total) or 0)
    return GIB if value < 4096 else MIB if value < 4_000_000 else KIB


def _ulimit(capture: Capture, lines: Sequence[Line], i: int) -> Iterator[ResourceLimit]:
    text = lines[i].text.strip()
    if found := _pattern("ulimit-a").search(text):
        name, factor = _LETTERS[found["letter"]]
        yield ResourceLimit(**at(capture, lines[i]), name=name, value=_count(found["value"], factor))
    elif (found := _pattern("ulimit").search(text)) and i + 1 < len(lines):
        name, factor = _LETTERS[found["letter"]]
        answer = lines[i + 1].text.strip()
        if re.fullmatch(r"\d+|unlimited", answer):
            yield ResourceLimit(**at(capture, lines[i], lines[i + 1]), name=name, value=_count(answer, factor))


def _count(text: str, factor: int) -> int | None:
    return None if text == "unlimited" else int(text) * factor


def _bytes(text: str, unit: int) -> int | None:
    """Bytes of `64M`, `7.0Gi`, or of a bare figure in `unit`."""
    if text[-1:].isdigit():
        return round(float(text.replace(",", "")) * unit)
    return parse_size(f"{text}B" if text.endswith("i") else text, decimal_is_binary=True)
