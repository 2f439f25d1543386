"""Results as JSON: each tool's own keys become the same fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadpath.core.facts.traffic import Benchmark
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of

FLAT = {
    "backend": "vllm", "model_id": "acme/tiny", "num_prompts": 90, "request_rate": "inf", "max_concurrency": 12, "duration": 45.0,
    "completed": 90, "total_input_tokens": 46080, "total_output_tokens": 11520, "request_throughput": 2.0,
    "output_throughput": 256.0, "mean_ttft_ms": 150.0, "median_ttft_ms": 140.0, "p99_ttft_ms": 400.0, "mean_itl_ms": 40.0,
}  # fmt: skip
GUIDELLM = {
    "metadata": {"version": 1},
    "benchmarks": [
        {"config": {"strategy": {"type_": "concurrent", "streams": streams}},
         "metrics": {
             "request_totals": {"successful": 90, "errored": 1, "total": 91},
             "requests_per_second": {"successful": {"mean": 2.0}},
             "output_tokens_per_second": {"successful": {"mean": 256.0}},
             "time_to_first_token_ms": {"successful": {"mean": 150.0, "median": 140.0, "percentiles": {"p99": 400.0}},
                                        "total": {"mean": 9000.0}}}}
        for streams in (6, 12)
    ],
}  # fmt: skip
AIPERF = {
    "schema_version": "1.0",
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 256.0},
    "request_count": {"unit": "requests", "avg": 90.0},
    "time_to_first_token": {"unit": "ms", "avg": 150.0, "p50": 140.0, "p99": 400.0},
    "input_config": {"endpoint": {"model_names": ["acme/tiny"]}, "loadgen": {"concurrency": 12}},
}  # fmt: skip
INFERENCE_PERF = {
    "load_summary": {"count": 92, "requested_rate": 2.0, "schedule_delay": {"mean": 0.001}},
    "successes": {
        "count": 90,
        "latency": {"time_to_first_token": {"mean": 0.15, "median": 0.14, "p99": 0.4}, "request_latency": {"mean": 5.2}},
        "throughput": {"requests_per_sec": 2.0, "output_tokens_per_sec": 256.0},
        "prompt_len": {"mean": 512}, "output_len": {"mean": 128},
    },
    "failures": {"count": 2},
}  # fmt: skip


def benchmarks(text: str) -> list[Benchmark]:
    return case_of(captures_of("result.json", clean(text.encode())), []).all(Benchmark)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("tool", "document"),
    [("vllm", FLAT), ("guidellm", GUIDELLM), ("aiperf", AIPERF), ("inference-perf", INFERENCE_PERF)],
)
def test_every_tool_tells_rate_and_first_token(tool: str, document: dict[str, Any], indent: int | None) -> None:
    found = benchmarks(json.dumps(document, indent=indent))[-1]
    assert (found.tool, found.completed, found.request_rate, found.output_rate) == (tool, 90, 2.0, 256.0)
    assert found.ttft and found.ttft.p50 == pytest.approx(0.14) and found.ttft.p99 == pytest.approx(0.4)


def test_levels_of_guidellm_are_benchmarks_of_their_own() -> None:
    assert [b.concurrency for b in benchmarks(json.dumps(GUIDELLM))] == [6, 12]


def test_json_lines_of_sglang_are_one_benchmark_a_line() -> None:
    line = json.dumps(
        {**FLAT, "backend": "sglang", "total_output_tokens_retokenized": 11500, "mean_e2e_latency_ms": 5200.0}
    )
    found = benchmarks(f"{line}\n{line}\n")
    assert [b.tool for b in found] == ["sglang", "sglang"] and found[0].e2e and found[0].e2e.mean == 5.2


def test_other_json_is_no_benchmark() -> None:
    assert not benchmarks('{"model": "m", "duration": 3}')
