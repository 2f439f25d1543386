"""Figures whose values can be worked out by hand."""

from __future__ import annotations

import pytest

from loadpath.core.traffic import Exchange
from loadpath.traffic.sender import shared_out
from loadpath.traffic.statistics import figures, gaps, half_width, itls, meets, quantile, spread, tpot


def exchange(
    intended: float = 0.0, first: float = 0.5, step: float = 0.1, tokens: int = 5, error: str = ""
) -> Exchange:
    times = tuple(round(first + step * n, 6) for n in range(tokens))
    return Exchange(
        intended=intended, sent=intended + 0.1, first=times[0], last=times[-1], end=times[-1] + 0.1, chunk_times=times,
        prompt_tokens=10, output_tokens=tokens, prompt_basis="usage", output_basis="usage", error=error,  # type: ignore[arg-type]
    )  # fmt: skip


def test_quantiles_are_exact_order_statistics() -> None:
    values = [float(n) for n in range(1, 102)]
    assert quantile(values, 0.5) == 51 and quantile(values, 0.99) == 100 and quantile(values, 1.0) == 101
    assert quantile([1.0, 2.0], 0.25) == 1.25
    found = spread(values)
    assert found and (found.mean, found.p90, found.maximum) == (51, 91, 101)
    assert spread([]) is None


def test_latency_counts_from_the_intended_time() -> None:
    found = figures([exchange(intended=0.0), exchange(intended=0.3)], {})
    assert found and found.ttft and found.e2e
    assert found.ttft.maximum == pytest.approx(0.5) and found.ttft.minimum == pytest.approx(0.2)
    assert found.e2e.maximum == pytest.approx(1.0)


def test_rates_are_tokens_over_the_time_from_first_to_last() -> None:
    found = figures([exchange(), exchange(error="timeout")], {})
    assert found and found.seconds == pytest.approx(1.0)
    assert found.request_rate == pytest.approx(1.0) and found.output_rate == pytest.approx(5.0)
    assert found.input_rate == pytest.approx(10.0) and found.errors == {"timeout": 1}


def test_chunks_of_one_read_are_one_arrival() -> None:
    together = Exchange(intended=0.0, first=0.1, last=0.3, chunk_times=(0.1, 0.1, 0.3, 0.3))
    assert itls(together) == pytest.approx([0.1, 0.1]) and gaps(together) == pytest.approx([0.2])


def test_several_tokens_a_chunk_share_its_gap() -> None:
    four = Exchange(intended=0.0, first=0.1, last=0.5, chunk_times=(0.1, 0.5), chunk_tokens=(4, 4), output_tokens=8)
    assert itls(four) == pytest.approx([0.1] * 4) and tpot(four) == pytest.approx(0.1)


def test_tokens_are_shared_out_by_characters() -> None:
    assert shared_out(9, [4, 4, 1]) == (4, 4, 1)
    assert sum(shared_out(1000, [3, 9, 1, 40])) == 1000 and min(shared_out(1000, [3, 9, 1, 40])) >= 1
    assert shared_out(3, [4, 4, 1]) == () and shared_out(None, [4, 4]) == ()


def test_goodput_needs_every_limit() -> None:
    one = exchange()
    assert meets(one, {"ttft": 0.5, "itl": 0.11}) and not meets(one, {"ttft": 0.5, "itl": 0.09})
    assert not meets(exchange(error="timeout"), {"ttft": 9.0})


def test_what_was_cancelled_by_us_is_no_request() -> None:
    found = figures([exchange(), exchange(error="cancelled")], {})
    assert found and found.requests == 1 and figures([exchange(error="cancelled")], {}) is None


def test_confidence_is_students() -> None:
    assert half_width([10.0, 12.0, 14.0]) == pytest.approx(4.303 * 2 / 3**0.5)
