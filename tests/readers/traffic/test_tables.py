"""Tables of AIPerf, GenAI-Perf and GuideLLM, as the screen and the CSV show them."""

from __future__ import annotations

from loadpath.core.facts.traffic import Benchmark
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of

AIPERF = """\
              NVIDIA AIPerf | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━┓
┃                       Metric ┃      avg ┃    min ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━┩
│     Time to First Token (ms) │   150.00 │  90.00 │   400.00 │
│         Request Latency (ms) │ 5,200.00 │ 900.00 │ 6,400.00 │
│ Request Throughput           │     2.00 │    N/A │      N/A │
│ (requests/sec)               │          │        │          │
│     Request Count (requests) │    90.00 │    N/A │      N/A │
└──────────────────────────────┴──────────┴────────┴──────────┘
"""
CSV = """\
Metric,avg,min,max,p99,p50
Time to First Token (ms),150.0,90.0,410.0,400.0,140.0

Metric,Value
Request Throughput (requests/sec),2.0
"""
GUIDELLM = """\
|===========|=====|======|======|======|======|======|======|======|
| Benchmark | Request Latency || TTFT       || ITL        || TPOT       ||
| Strategy  | Sec             || ms         || ms         || ms         ||
|           | Mdn | p95        | Mdn  | p95  | Mdn  | p95  | Mdn  | p95  |
|-----------|-----|------|------|------|------|------|------|------|
| constant  | 5.2 | 6.1  | 140.0| 390.0| 40.0 | 44.0 | 41.0 | 45.0 |
|===========|=====|======|======|======|======|======|======|======|
"""


def benchmark(text: str) -> Benchmark:
    (found,) = case_of(captures_of("paste", clean(text.encode())), []).all(Benchmark)
    return found


def test_a_metric_a_row_with_names_that_wrap() -> None:
    found = benchmark(AIPERF)
    assert (found.tool, found.completed, found.request_rate) == ("aiperf", 90, 2.0)
    assert found.ttft and (found.ttft.mean, found.ttft.p99) == (0.15, 0.4)
    assert found.e2e and found.e2e.mean == 5.2


def test_csv_with_two_blocks() -> None:
    found = benchmark(CSV)
    assert found.request_rate == 2.0 and found.ttft and found.ttft.p50 == 0.14


def test_a_level_a_row() -> None:
    found = benchmark(GUIDELLM)
    assert found.tool == "guidellm" and found.label == "constant"
    assert found.ttft and (found.ttft.p50, found.ttft.p95) == (0.14, 0.39)
    assert found.itl and found.itl.p50 == 0.04
    assert found.tpot is None  # GuideLLM's time per output token holds the first token too
