"""Figures of a benchmark in a person's own words."""

from __future__ import annotations

import pytest

from loadpath.core.facts.traffic import Benchmark
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of


def benchmarks(text: str) -> list[Benchmark]:
    return case_of(captures_of("paste", clean(text.encode())), []).all(Benchmark)


def test_a_line_of_figures() -> None:
    (found,) = benchmarks("300 requests, 3.41 req/s, 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms\n")
    assert (found.completed, found.request_rate, found.output_rate) == (300, 3.41, 1746.2)
    assert found.ttft and found.itl
    assert found.ttft.average == pytest.approx(0.3874) and found.itl.average == pytest.approx(0.0132)


def test_figures_in_a_list_belong_together() -> None:
    (found,) = benchmarks(
        "concurrency: 16\nTTFT p50: 0.2 s\nTTFT p99 = 1.1 s\nTPOT 25 ms\n600 tok/s\n14.9 GiB of weights\n"
    )
    assert (found.concurrency, found.output_rate, found.weights_bytes) == (16, 600.0, round(14.9 * 2**30))
    assert found.ttft and (found.ttft.p50, found.ttft.p99) == (0.2, 1.1)


@pytest.mark.parametrize("text", ["TTFT is bad\n", "copied at 12.5 GB/s\n", "ITL 20\n", "generation 40 tok/s\n"])
def test_one_figure_alone_is_no_benchmark(text: str) -> None:
    assert not benchmarks(text)
