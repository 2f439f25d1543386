"""`nsys stats`: sums of kernels, copies and API calls, as tables or as CSV. It holds no timeline: gaps are not in it.

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
81.2,508013208,640,793770.6,790144.0,701123,1003375,16822.2,gemm_bf16
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.profile import ApiTime, CopyTime, KernelTime
from loadpath.core.text import Capture, Line
from loadpath.core.units import show_time
from loadpath.readers.profile.cuda_names import plain_call, role_of, short_kernel

_HEAD = re.compile(r"^\s*Time ?\(%\)\s*,?\s*Total Time \((ns|us|ms|s)\)")
_DASHES = re.compile(r"^[\s-]*-{3,}[\s-]*$")
_FACTOR = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_CALL = re.compile(r"^(?:cu(?:da)?|hip)[A-Z]\w+$")
_COPY = re.compile(r"^\[?CUDA (memcpy|memset)\s*([\w-]*)", re.I)
_DIRECTIONS = {"htod": "host-to-device", "dtoh": "device-to-host", "dtod": "device-to-device", "ptop": "peer-to-peer"}
_OTHER = ("Range", "Style", "PID", "Event Type")
"""Columns of tables that are about something else (NVTX ranges, system calls)."""


class Row(msgspec.Struct, frozen=True):
    line: Line
    name: str
    seconds: float
    count: int
    median: float | None
    longest: float | None


def extent(lines: Sequence[Line], i: int) -> int:
    if not _HEAD.match(lines[i].text):
        return i
    end = i + 1
    while end < len(lines) and re.match(r"^\s*(?:[\d.,]+[\s,]|-{3,})", lines[end].text):
        end += 1
    return end if end > i + 1 else i


def read(capture: Capture) -> Iterator[Fact]:
    head = capture.lines[0].text
    if any(word in head for word in _OTHER):
        return
    rows = list(_csv_rows(capture) if "," in head else _text_rows(capture))
    total = sum(row.seconds for row in rows) or 1.0
    for row in rows:
        yield from _fact(capture, row, total, calls="Num Calls" in head)


def _fact(capture: Capture, row: Row, total: float, *, calls: bool) -> Iterator[Fact]:
    common: dict[str, Any] = at(capture, row.line)
    spent = f"{row.count:,} x, {show_time(row.seconds)}"
    if copy := _COPY.match(row.name):
        kind, way = copy[1].lower(), copy[2].lower()
        direction = "set" if kind == "memset" else _DIRECTIONS.get(way, way or "copy")
        yield CopyTime(**common, direction=direction, count=row.count, seconds=row.seconds)
    elif calls:
        if _CALL.match(row.name):
            name = plain_call(row.name)
            yield ApiTime(
                **common, name=name, role=role_of(name), count=row.count, seconds=row.seconds, median_seconds=row.median,
                longest_seconds=row.longest,
            )  # fmt: skip
    elif row.name:
        name = short_kernel(row.name)
        common["text"] = f"kernel {name}: {spent}, {row.seconds / total:.1%} of kernel time"
        yield KernelTime(
            **common, name=name, count=row.count, seconds=row.seconds, share=row.seconds / total, median_seconds=row.median,
            longest_seconds=row.longest,
        )  # fmt: skip


def _csv_rows(capture: Capture) -> Iterator[Row]:
    head = [cell.strip() for cell in next(csv.reader([capture.lines[0].text]))]
    for line in capture.lines[1:]:
        cells = next(csv.reader([line.text]), [])
        if row := _row(line, head, cells):
            yield row


def _text_rows(capture: Capture) -> Iterator[Row]:
    """Columns stand two blanks apart; only the last one, the name, may hold more."""
    head = re.split(r"\s{2,}", capture.lines[0].text.strip())
    for line in capture.lines[1:]:
        cells = re.split(r"\s{2,}", line.text.strip(), maxsplit=len(head) - 1)
        if not _DASHES.match(line.text) and (row := _row(line, head, cells)):
            yield row


def _row(line: Line, head: list[str], cells: list[str]) -> Row | None:
    told = dict(zip(head, cells, strict=False))
    unit = next((m[1] for name in head if (m := re.match(r"Total Time \((\w+)\)", name))), "ns")
    factor = _FACTOR.get(unit, 1e-9)

    def value(*starts: str) -> float | None:
        text = next((cell for name, cell in told.items() if name.startswith(starts)), "")
        try:
            return float(text.replace(",", ""))
        except ValueError:
            return None

    total, count = value("Total Time"), value("Instances", "Num Calls", "Count", "Operations", "Calls")
    if total is None or not count:
        return None
    middle, longest = value("Med"), value("Max")
    return Row(
        line=line, name=(told.get("Name") or told.get("Operation") or cells[-1]).strip(),
        seconds=total * factor, count=int(count), median=None if middle is None else middle * factor,
        longest=None if longest is None else longest * factor,
    )  # fmt: skip
