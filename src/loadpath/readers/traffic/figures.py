"""A benchmark's figures as people paste them in a sentence or a list: only where several of them stand together.

120 requests, 1.96 req/s, 501.9 tok/s, TTFT 210.4 ms, ITL 29.8 ms
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line
from loadpath.core.units import parse_size
from loadpath.readers.traffic.words import benchmark, latency, latency_of, number, statistic, unit, whole

NEAR = 12  # lines within which figures belong to one benchmark
LEAST = 2  # kinds of figures, one of them a latency
_N = r"(\d[\d,]*(?:\.\d+)?)"


@cache
def _latency() -> re.Pattern[str]:
    spelt = r"time to first token|inter[- ]token latency|time per output token|request latency|end-to-end latency"
    name = rf"(?P<name>TTFT|ITL|TPOT|E2EL?|{spelt})"
    before = r"(?:(?P<before>mean|median|avg|average|p50|p90|p95|p99|max|min) )?"
    after = r"(?:[ (]*(?P<after>mean|median|avg|average|p50|p90|p95|p99|max|min)\)?)?"
    value = r"(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>ms|s|us|µs)?\b"
    return re.compile(rf"\b{before}{name}{after}(?: \((?P<named>ms|s)\))?\s*[:=~≈]?\s*{value}", re.I)


@cache
def _figures() -> tuple[tuple[str, re.Pattern[str]], ...]:
    made = {
        "request_rate": rf"{_N}\s*(?:req(?:uest)?s?(?:/s(?:ec)?\b| per second)|RPS\b)",
        "output_rate": rf"{_N}\s*(?:output |out |generated )?(?:tok(?:en)?s?)(?:/s(?:ec)?\b| per second)",
        "completed": rf"\b{_N}\s*(?:successful |completed )?(?:requests|prompts)\b(?!\s*(?:/|per))",
        "concurrency": rf"\bconcurrency\s*(?:of\s*|[:=]\s*)?{_N}|\b{_N}\s*(?:concurrent|in flight|users)\b",
        "input_mean": rf"\b{_N}\s*(?:input|prompt) tokens?\b|\b(?:input|prompt)[ -](?:tokens|len(?:gth)?)\s*[:=]?\s*{_N}",
        "output_mean": rf"\b{_N}\s*(?:output|generated) tokens?\b(?!\s*/)|\boutput[ -](?:tokens|len(?:gth)?)\s*[:=]?\s*{_N}",
        "seconds": rf"\bduration\s*[:=]?\s*{_N}\s*s\b|\bin {_N}\s*s(?:econds)?\b",
        "acceptance_length": rf"\baccept(?:ance|ed)? length\s*[:=]?\s*{_N}",
        "bandwidth_bytes_per_s": rf"{_N}\s*GB/s\b",
    }
    return tuple((name, re.compile(pattern, re.I)) for name, pattern in made.items())


@cache
def _weights() -> re.Pattern[str]:
    size = r"(\d[\d,.]*\s*(?:GiB|GB|MiB))"
    return re.compile(rf"{size}(?: of)? (?:model )?weights\b|\bweights\s*[:=]?\s*{size}", re.I)


def read(capture: Capture) -> Iterator[Fact]:
    group: list[Line] = []
    for line in capture.lines:
        if line.origin.level or line.origin.location:
            continue  # a program's own record
        patterns = (_latency(), _weights(), *(pattern for _, pattern in _figures()))
        if not any(pattern.search(line.text) for pattern in patterns):
            continue
        if group and line.number - group[-1].number > NEAR:
            yield from _made(capture, group)
            group = []
        group.append(line)
    yield from _made(capture, group)


def _made(capture: Capture, lines: list[Line]) -> Iterator[Fact]:
    told: dict[str, Any] = {}
    spreads: dict[str, dict[str, float]] = {}
    best, most = None, 0
    for line in lines:
        before = len(told) + len(spreads)
        for found in _latency().finditer(line.text):
            _add(spreads, found)
        for name, pattern in _figures():
            if (hit := pattern.search(line.text)) and name not in told:
                told[name] = number(next(part for part in hit.groups() if part))
        if hit := _weights().search(line.text):
            told.setdefault("weights_bytes", parse_size((hit[1] or hit[2]).replace(",", "")))
        if len(told) + len(spreads) - before > most:
            best, most = line, len(told) + len(spreads) - before
    rates = sum(name in told for name in ("request_rate", "output_rate"))
    if best is None or not spreads or len(spreads) + rates < LEAST:
        return
    for name in ("completed", "concurrency"):
        if name in told:
            told[name] = whole(told[name])
    if "bandwidth_bytes_per_s" in told:
        told["bandwidth_bytes_per_s"] *= 1e9
    for field, values in spreads.items():
        told[field] = latency(values)
    yield benchmark(capture, best, best, "pasted", told, best.raw.strip())


def _add(spreads: dict[str, dict[str, float]], found: re.Match[str]) -> None:
    field, figure = latency_of(found["name"].replace("-", " ")) or latency_of(found["name"]), number(found["value"])
    measure = found["unit"] or found["named"]
    if field is None or figure is None or not measure:
        return  # without a unit it may be anything
    name = statistic(found["before"] or found["after"] or "mean") or "mean"
    short = {"minimum": "min", "maximum": "max"}.get(name, name)
    spreads.setdefault(field, {}).setdefault(short, figure * unit(measure))
