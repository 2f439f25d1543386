"""Nsight Compute's CSV (`ncu --csv`): the details page, one metric a line, and the raw page, one launch a line.

"ID","Kernel Name","Block Size","Grid Size","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","add(float *)","(256, 1, 1)","(4096, 1, 1)","8.9","GPU Speed Of Light Throughput","Duration","us","12.4"
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.profile import KernelProfile
from loadpath.core.text import Capture, Line
from loadpath.readers.profile.cuda_names import short_kernel
from loadpath.readers.profile.ncu_metrics import derived, figure, number, stall

_HEAD = re.compile(r'^"?ID"?,.*"?Kernel Name"?,', re.I)
_NOTE = re.compile(r"^==(?:PROF|WARNING|ERROR)==")


class Launch(msgspec.Struct):
    """What was read of one launch so far."""

    number: int
    name: str
    first: Line
    last: Line
    capability: str = ""
    gpu: str = ""
    blocks: int | None = None
    threads: int | None = None
    figures: dict[str, float] = {}
    stalls: dict[str, float] = {}
    said: dict[str, str] = {}

    def take(self, name: str, unit: str, text: str) -> None:
        """A metric of this launch; the first of two of one meaning is kept, of the tensor cores' the greatest."""
        reason, found = stall(name), figure(name, unit)
        if reason is None and found is None:
            return
        value = number(text)
        if value is None:
            return
        if reason is not None:
            self.stalls.setdefault(reason, value)
        elif found is not None:
            ours, factor = found
            if ours.startswith("tensor"):
                self.figures[ours] = max(self.figures.get(ours, 0.0), value * factor)
            else:
                self.figures.setdefault(ours, value * factor)

    def fact(self, capture: Capture) -> KernelProfile:
        figures = derived(self.figures)
        blocks, threads = figures.pop("blocks", None), figures.pop("threads", None)
        name = short_kernel(self.name)
        seconds = figures.get("seconds")
        took = f", {seconds * 1e6:,.4g} µs" if seconds else ""
        common = at(capture, self.first, self.last) | {"text": f"launch {self.number} of {name}{took}"}
        return KernelProfile(
            **common, number=self.number, name=name, capability=self.capability,
            gpu=self.gpu,
            blocks=self.blocks or (int(blocks) if blocks else None),
            threads=self.threads or (int(threads) if threads else None),
            figures=figures, stalls=self.stalls, said=self.said,
        )  # fmt: skip


def extent(lines: Sequence[Line], i: int) -> int:
    if not _HEAD.match(lines[i].text):
        return i
    end = i + 1
    while end < len(lines) and (lines[end].text.startswith('"') or _NOTE.match(lines[end].text)):
        end += 1
    return end if end > i + 1 else i


def read(capture: Capture) -> Iterator[Fact]:
    lines = [line for line in capture.lines if not _NOTE.match(line.text)]
    head = _cells(lines[0].text)
    own = (_details if "Metric Name" in head else _raw)(head, lines[1:])
    for launch in own:
        yield launch.fact(capture)


def _cells(text: str) -> list[str]:
    return next(csv.reader([text]), [])


def _details(head: list[str], lines: Sequence[Line]) -> list[Launch]:
    launches: dict[str, Launch] = {}
    for line in lines:
        row = dict(zip(head, _cells(line.text), strict=False))
        launch = launches.setdefault(row.get("ID", ""), _launch(row, line))
        launch.last = line
        launch.take(row.get("Metric Name", ""), row.get("Metric Unit", ""), row.get("Metric Value", ""))
        if row.get("Rule Name") and row.get("Rule Description"):
            launch.said[row["Rule Name"]] = row["Rule Description"]
    return list(launches.values())


def _raw(head: list[str], lines: Sequence[Line]) -> list[Launch]:
    """The line under the head holds the units of the metrics, and nothing in the columns before them."""
    units: dict[str, str] = {}
    launches = []
    for line in lines:
        row = dict(zip(head, _cells(line.text), strict=False))
        if not row.get("ID"):
            units = row
            continue
        launch = _launch(row, line)
        for name, text in row.items():
            launch.take(name, units.get(name, ""), text)
        launches.append(launch)
    return launches


def _launch(row: dict[str, str], line: Line) -> Launch:
    return Launch(
        number=int(number(row.get("ID", "")) or 0),
        name=row.get("Kernel Name", ""),
        first=line,
        last=line,
        capability=row.get("CC", ""),
        gpu=row.get("device__attribute_display_name", ""),
        blocks=volume(row.get("Grid Size", "")),
        threads=volume(row.get("Block Size", "")),
    )


def volume(text: str) -> int | None:
    """`"(256, 2, 1)"` → 512; None where there are no numbers."""
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if not numbers:
        return None
    product = 1
    for n in numbers:
        product *= n
    return product
