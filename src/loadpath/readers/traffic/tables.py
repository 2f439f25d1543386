"""Tables of benchmark tools: AIPerf and GenAI-Perf (on the screen or CSV, one metric a row), GuideLLM (one level a row).

| Metric                   |    avg |    min |    max |    p99 |
| Time to First Token (ms) | 210.40 |  88.10 | 640.00 | 520.10 |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.facts.traffic import Tool
from loadpath.core.text import Capture, Line
from loadpath.readers.traffic.documents import Told
from loadpath.readers.traffic.words import benchmark, columns, latency, number, statistic, unit, whole

LONGEST = 80
_TIMES = {
    "time to first token": "ttft", "inter token latency": "itl", "inter-token latency": "itl", "request latency": "e2e",
}  # fmt: skip
_FIGURES = {
    "output token throughput": "output_rate", "total token throughput": "total_rate", "request throughput": "request_rate",
    "request count": "completed", "output sequence length": "output_mean", "input sequence length": "input_mean",
    "benchmark duration": "seconds", "error request count": "failed", "goodput": "goodput_rate", "request goodput": "goodput_rate",
}  # fmt: skip
_COUNTS = ("completed", "failed")
_GUIDE_OLD = ("requests/s", "concurrency", "output", "total", "e2e mean", "e2e median", "e2e p99", "ttft mean", "ttft median",
              "ttft p99", "itl mean", "itl median", "itl p99", "tpot mean", "tpot median", "tpot p99")  # fmt: skip
_GUIDE_LATENCY = (
    "e2e median",
    "e2e p95",
    "ttft median",
    "ttft p95",
    "itl median",
    "itl p95",
    "tpot median",
    "tpot p95",
)
_GUIDE_RATES = ("", "requests/s", "", "concurrency", "", "input", "", "output", "", "total")


@cache
def _name() -> re.Pattern[str]:
    return re.compile(r"^(?P<name>[A-Za-z][A-Za-z -]*[A-Za-z])(?:\s*\((?P<unit>[^)]*)\)?)?$")


def extent(lines: Sequence[Line], i: int) -> int:
    if not (_metric_head(lines[i].text) or _guide_layout(lines, i)):
        return i
    end = i + 1
    for j in range(i + 1, min(len(lines), i + LONGEST)):
        text = lines[j].text.strip()
        if not text or "," in text or re.search(r"[|│┃─━═]|^[-=+]+$", text):
            end = j + 1 if text else end
        else:
            break
    return end


def _metric_head(text: str) -> list[str] | None:
    """The statistics of a metric table's columns; None for another line."""
    names = columns(text) if any(word in text for word in ("Metric", "Statistic")) else []
    if len(names) < 2 or names[0] not in ("Metric", "Statistic"):
        return None
    held = [name for name in names[1:] if statistic(name)]
    return names[1:] if held or names[1:] == ["Value"] else None


def _guide_layout(lines: Sequence[Line], i: int) -> tuple[str, ...] | None:
    """The columns of a GuideLLM table whose head begins at lines[i]."""
    head = " ".join(line.text for line in lines[i : i + 3])
    if "Benchmark" not in head or "|" not in lines[i].text:
        return None
    if "Per Second" in head and "Out Tok/sec" in head:
        return _GUIDE_OLD
    if "Strategy" in head and "Request Latency" in head and "TTFT" in head:
        return _GUIDE_LATENCY
    if "Strategy" in head and "Output Tokens" in head and "Concurrency" in head:
        return _GUIDE_RATES
    return None


def read(capture: Capture) -> Iterator[Fact]:
    lines = capture.lines
    if layout := _guide_layout(lines, 0):
        for level, told in enumerate(_guide_rows(lines, layout)):
            fields = {**told.fields, "level": level}
            yield benchmark(capture, lines[0], lines[-1], told.tool, fields, f"{told.fields['label']}: {told.shown}")
        return
    fields = _metrics(lines)
    if any(fields.get(name) for name in ("ttft", "itl", "e2e")):
        tool: Tool = "genai-perf" if columns(lines[0].text)[0] == "Statistic" else "aiperf"
        yield benchmark(capture, lines[0], lines[-1], tool, fields, Told(tool, fields).shown)


def _metrics(lines: Sequence[Line]) -> dict[str, Any]:
    names: list[str] = []
    fields: dict[str, Any] = {}
    for line in lines:
        if head := _metric_head(line.text):
            names = head
            continue
        cells = columns(line.text)
        found = _name().match(cells[0]) if cells else None
        if found is None or len(cells) < 2:
            continue
        name = found["name"].lower()
        if field := _TIMES.get(name):
            told = dict(zip(names, cells[1:], strict=False))
            fields[field] = latency(told, unit(found["unit"] or "ms"))
        elif field := _FIGURES.get(name):
            value = next((figure for cell in cells[1:] if (figure := number(cell)) is not None), None)
            fields[field] = whole(value) if field in _COUNTS else value
    return fields


def _guide_rows(lines: Sequence[Line], layout: tuple[str, ...]) -> Iterator[Told]:
    for line in lines:
        cells = columns(line.text)
        values = [number(cell) for cell in cells[1:]]
        if len(values) != len(layout) or sum(value is not None for value in values) < len(layout) // 2:
            continue
        held = {name: value for name, value in zip(layout, values, strict=True) if name and value is not None}
        fields: dict[str, Any] = {
            "label": cells[0],
            "request_rate": held.get("requests/s"),
            "in_flight": held.get("concurrency"),
            "input_rate": held.get("input"),
            "output_rate": held.get("output"),
            "total_rate": held.get("total"),
        }
        for field, factor in (("e2e", 1.0), ("ttft", 1e-3), ("itl", 1e-3)):  # its TPOT holds the first token too
            told = {key.split()[1]: value for key, value in held.items() if key.startswith(f"{field} ")}
            fields[field] = latency(told, factor)
        yield Told("guidellm", fields)
