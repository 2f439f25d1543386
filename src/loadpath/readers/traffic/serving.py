"""The report that `vllm bench serve` (benchmark_serving.py) and SGLang's bench_serving print at their end.

============ Serving Benchmark Result ============
Successful requests:                     120
Maximum request concurrency:             16
Benchmark duration (s):                  61.20
Request throughput (req/s):              1.96
Output token throughput (tok/s):         501.9
---------------Time to First Token----------------
Mean TTFT (ms):                          210.4
P99 TTFT (ms):                           520.1
==================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line
from loadpath.readers.traffic.words import LATENCIES, benchmark, latency, latency_of, number, unit, whole

LONGEST = 120
_COUNTS = {
    "successful requests": "completed", "failed requests": "failed", "total input tokens": "input_tokens",
    "total generated tokens": "output_tokens",
}  # fmt: skip
_FIGURES = {
    "benchmark duration": "seconds", "request throughput": "request_rate", "input token throughput": "input_rate",
    "output token throughput": "output_rate", "peak output token throughput": "peak_output_rate",
    "peak concurrent requests": "most_in_flight", "total token throughput": "total_rate", "request goodput": "goodput_rate",
    "concurrency": "in_flight", "acceptance length": "acceptance_length", "accept length": "acceptance_length",
}  # fmt: skip
_LIMITS = ("maximum request concurrency", "max request concurrency")
_RATES = ("request rate configured", "traffic request rate")


@cache
def _pair() -> re.Pattern[str]:
    return re.compile(r"^(?P<name>[A-Za-z][\w /.,-]*?)(?: \((?P<unit>[^)]*)\))?:\s+(?P<value>\S.*?)\s*$")


@cache
def _statistic() -> re.Pattern[str]:
    return re.compile(r"^(?P<statistic>Mean|Median|Min|Max|Std|P\d+(?:\.\d+)?) (?P<name>.+)$", re.I)


def extent(lines: Sequence[Line], i: int) -> int:
    if "Serving Benchmark Result" not in lines[i].text:
        return i
    end = i + 1
    for j in range(i + 1, min(len(lines), i + LONGEST)):
        text = lines[j].text.strip()
        if re.fullmatch(r"={20,}", text):
            return j + 1
        if not text or text.startswith("---") or _pair().match(text):
            end = j + 1 if text else end
        else:
            break
    return end


def read(capture: Capture) -> Iterator[Fact]:
    told: dict[str, Any] = {}
    spreads: dict[str, dict[str, str]] = {}
    shown = ""
    for line in capture.lines:
        found = _pair().match(line.text.strip())
        if found is None:
            continue
        name, value = found["name"].lower(), found["value"]
        statistic = _statistic().match(found["name"])
        if statistic and (field := latency_of(statistic["name"])):
            spreads.setdefault(f"{field} {unit(found['unit'] or 'ms')}", {})[statistic["statistic"]] = value
        elif name in _COUNTS:
            told.setdefault(_COUNTS[name], whole(value))
        elif name in _FIGURES:
            told[_FIGURES[name]] = number(value)
        elif name in _LIMITS:
            told["concurrency"] = whole(value)
        elif name in _RATES:
            told["rate"], told["unlimited_rate"] = number(value), value.startswith("inf")
        elif name == "backend":
            told["engine"] = value
        if name == "request throughput":
            shown = line.raw.strip()
    for key, values in spreads.items():
        field, factor = key.split()
        told[field] = latency(values, float(factor))
    if not any(told.get(name) for name in (*LATENCIES, "request_rate")):
        return
    of_sglang = bool(told.get("engine")) or "in_flight" in told
    yield benchmark(capture, capture.lines[0], capture.lines[-1], "sglang" if of_sglang else "vllm", told, shown)
