"""Figures of one run are bound by arithmetic."""

from __future__ import annotations

import pytest

from conftest import read_text

GOOD = {
    "Successful requests:": "100", "Maximum request concurrency:": "20", "Benchmark duration (s):": "50.00",
    "Total input tokens:": "51200", "Total generated tokens:": "20000", "Request throughput (req/s):": "2.00",
    "Output token throughput (tok/s):": "400.00", "Mean TTFT (ms):": "500.00", "Median TTFT (ms):": "450.00",
    "P99 TTFT (ms):": "900.00", "Mean TPOT (ms):": "45.00", "Mean ITL (ms):": "45.00", "Mean E2EL (ms):": "9455.00",
}  # fmt: skip


def told(**changes: str) -> list[str]:
    rows = {**GOOD, **{name.replace("_", " "): value for name, value in changes.items()}}
    for key, value in changes.items():
        name = next(row for row in GOOD if row.lower().startswith(key.replace("_", " ").lower()))
        rows[name] = value
    text = "============ Serving Benchmark Result ============\n" + "".join(
        f"{k:<41}{v}\n" for k, v in rows.items() if k in GOOD
    )
    return [f.cause for f in read_text(f"{text}{'=' * 50}\n").findings if f.id == "bench-figures-contradict"]


def test_a_result_that_adds_up_is_not_doubted() -> None:
    assert not told()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"request_throughput": "3.00"}, "100 requests in 50 s are 2 requests/s, not 3"),
        ({"output_token_throughput": "700.00"}, "20,000 output tokens in 50 s are 400.0 tokens/s, not 700.0"),
        ({"maximum_request_concurrency": "10"}, "18.9 at once (Little's law), but no more than 10"),
        ({"p99_TTFT": "300.00"}, "p50 450 ms is above p99 300 ms"),
        ({"mean_E2EL": "400.00"}, "the first token (500 ms) comes after the last (400 ms)"),
        ({"mean_E2EL": "2000.00"}, "requests took 2 s"),
    ],
)
def test_what_does_not_add_up_is_said_with_both_figures(changes: dict[str, str], said: str) -> None:
    (cause,) = told(**changes)
    assert said.lower() in cause.lower()


def test_a_rate_of_two_decimals_is_rounded_not_wrong() -> None:
    assert not told(
        successful_requests="5", benchmark_duration="330.00", request_throughput="0.02", total_generated="10240",
        output_token_throughput="31.03", mean_TTFT="600.00", mean_TPOT="32.00", mean_E2EL="66000.00", maximum_request="1",
    )  # fmt: skip


def test_the_known_fragment_is_consistent_in_itself() -> None:
    report = read_text("300 requests, 3.41 req/s, 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms\n")
    assert not any(f.id == "bench-figures-contradict" for f in report.findings)
