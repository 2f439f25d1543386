"""Benchmark results as JSON: `vllm bench serve --save-result`, SGLang's bench_serving (JSON lines), GuideLLM,
AIPerf and GenAI-Perf (`profile_export…json`), inference-perf (`summary_lifecycle_metrics.json`).

{"model_id": "m", "completed": 120, "duration": 61.2, "request_throughput": 1.96, "mean_ttft_ms": 210.4, …}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.facts.traffic import Tool
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import Broken, json_extent, parse_json
from loadpath.readers.traffic import documents
from loadpath.readers.traffic.words import benchmark

LOOK_AHEAD = 400  # lines in which a pretty-printed result names what it holds
_SIGNS: tuple[tuple[Tool, tuple[str, ...]], ...] = (
    ("vllm", ('"request_throughput"', '"duration"', '"completed"')),
    ("guidellm", ('"benchmarks"', '"time_to_first_token_ms"')),
    ("guidellm", ('"benchmarks"', '"requests_per_second"')),
    ("aiperf", ('"request_throughput"', '"unit"')),
    ("inference-perf", ('"load_summary"', '"successes"')),
)
"""Keys, all of which a result of that tool has."""


def extent(lines: Sequence[Line], i: int) -> int:
    if not lines[i].text.lstrip().startswith(("{", "[")):
        return i
    head = " ".join(line.text for line in lines[i : i + LOOK_AHEAD])[:200_000]
    if '"loadpath.' in head[:200] or not any(all(key in head for key in keys) for _, keys in _SIGNS):
        return i
    end = json_extent(lines, i)
    text = " ".join(line.text for line in lines[i:end])
    return end if any(all(key in text for key in keys) for _, keys in _SIGNS) else i


def read(capture: Capture) -> Iterator[Fact]:
    text = capture.text
    tool = next((tool for tool, keys in _SIGNS if all(key in text for key in keys)), None)
    try:
        document = parse_json(text)
    except Broken:
        return
    first, last = capture.lines[0], capture.lines[-1]
    for one in document if isinstance(document, list) else [document]:
        if not isinstance(one, dict) or tool is None:
            continue
        for made in _results(tool, one):
            yield benchmark(capture, first, last, made.tool, made.fields, made.shown)


def _results(tool: Tool, document: dict[str, Any]) -> Iterator[documents.Told]:
    match tool:
        case "vllm":
            yield from documents.serving(document)
        case "guidellm":
            yield from documents.guidellm(document)
        case "aiperf":
            yield from documents.aiperf(document)
        case "inference-perf":
            yield from documents.inference_perf(document)
