"""The final report of vLLM's and SGLang's benchmark clients."""

from __future__ import annotations

from loadpath.core.facts.traffic import Benchmark
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of

VLLM = """\
some progress bar: 100%|####| 90/90
============ Serving Benchmark Result ============
Successful requests:                     90
Failed requests:                         2
Maximum request concurrency:             12
Request rate configured (RPS):           5.00
Benchmark duration (s):                  45.00
Total input tokens:                      46080
Total generated tokens:                  11520
Request throughput (req/s):              2.00
Output token throughput (tok/s):         256.00
---------------Time to First Token----------------
Mean TTFT (ms):                          150.00
Median TTFT (ms):                        140.00
P99 TTFT (ms):                           400.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          40.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           40.00
==================================================
and then something else
"""
SGLANG = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 not set
Successful requests:                     90
Benchmark duration (s):                  45.00
Request throughput (req/s):              2.00
Concurrency:                             10.60
Accept length:                           2.40
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   5300.00
---------------Time to First Token----------------
Mean TTFT (ms):                          150.00
==================================================
"""


def benchmarks(text: str) -> list[Benchmark]:
    return case_of(captures_of("paste", clean(text.encode())), []).all(Benchmark)


def test_counts_rates_and_latencies_of_vllm() -> None:
    (found,) = benchmarks(VLLM)
    assert (found.tool, found.completed, found.failed, found.concurrency, found.rate) == ("vllm", 90, 2, 12, 5.0)
    assert (found.seconds, found.request_rate, found.output_rate) == (45.0, 2.0, 256.0)
    assert (found.input_mean, found.output_mean) == (512, 128)
    assert found.ttft and (found.ttft.mean, found.ttft.p50, found.ttft.p99) == (0.15, 0.14, 0.4)
    assert found.tpot and found.tpot.average == 0.04


def test_an_unlimited_rate_and_accepted_drafts_of_sglang() -> None:
    (found,) = benchmarks(SGLANG)
    assert (found.tool, found.engine, found.unlimited_rate, found.concurrency) == ("sglang", "sglang", True, None)
    assert (found.in_flight, found.acceptance_length) == (10.6, 2.4)
    assert found.e2e and found.e2e.average == 5.3


def test_a_report_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    (found,) = benchmarks(VLLM[: VLLM.index("Mean ITL")])
    assert found.tpot and found.itl is None
