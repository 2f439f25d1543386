"""Where throughput stops to grow."""

from __future__ import annotations

from bench_results import around, made_figures, made_result
from loadpath.core.traffic import Level
from loadpath.traffic.report import report_on


def sweep(*rates: float) -> set[str]:
    levels = tuple(
        Level(number=n, concurrency=8 * 2**n, figures=made_figures(
            output_rate=rate, request_rate=rate / 256, ttft=around(0.3 + n), mean_in_flight=8.0 * 2**n,
            itl=around(8 * 2**n / rate), tpot=around(8 * 2**n / rate), e2e=around(8 * 2**n / rate * 256),
        ))
        for n, rate in enumerate(rates)
    )  # fmt: skip
    return {f.title for f in report_on(made_result(levels=levels)).findings if f.id == "bench-saturated"}


def test_the_first_level_that_gains_nothing_is_named() -> None:
    (title,) = sweep(250, 480, 490, 495)
    assert title.startswith("Throughput stops to grow at a load of 16: 480 → 490")


def test_growth_to_the_end_is_no_saturation() -> None:
    assert not sweep(250, 480, 900)
