"""The KV share's arithmetic, against figures that engines print."""

from __future__ import annotations

import json

import pytest

from conftest import shared_file
from loadpath.core.case import version_numbers
from loadpath.core.facts.engine import KvPool, MemoryBreakdown, WeightsLoaded
from loadpath.core.text import Span
from loadpath.core.units import GIB, KIB, MIB, gib
from loadpath.planning.kv import (
    budget,
    bytes_per_token,
    concurrency_class,
    default_utilisation,
    kv_share,
    most_bytes_per_token,
    round_context,
    share_of,
)

SPAN = Span("log", 1, 1)


@pytest.mark.parametrize(
    ("share", "weights", "non_torch", "activation", "expected"),
    [(0.90, 54.12, 0.91, 4.38, 26.09), (0.92, 27.31, 0.89, 4.41, 54.79)],
)
def test_the_walk_through_card(
    share: float, weights: float, non_torch: float, activation: float, expected: float
) -> None:
    left = kv_share(gib(95), share, gib(weights), gib(non_torch), gib(activation))
    assert left / GIB == pytest.approx(expected, abs=0.005)


def test_graphs_are_subtracted_only_from_0_20_on() -> None:
    parts = {"total": gib(80), "utilisation": 0.9, "weights": gib(15), "graphs": gib(2)}
    assert kv_share(**parts, version=(0, 19, 1)) - kv_share(**parts, version=(0, 20, 0)) == pytest.approx(gib(2), abs=2)


def test_budget_is_rounded_up_from_0_14() -> None:
    assert budget(1001, 0.9, (0, 13)) == 900
    assert budget(1001, 0.9, (0, 14)) == 901


def test_default_share_rose_with_0_20() -> None:
    assert default_utilisation((0, 19, 1)) == 0.9
    assert default_utilisation((0, 20, 0)) == 0.92


def test_share_from_a_breakdown_spread_over_two_facts() -> None:
    profile = MemoryBreakdown(
        span=SPAN, total_bytes=gib(95), utilisation=0.9, non_torch_bytes=gib(0.91), activation_bytes=gib(4.38)
    )
    share = share_of(profile, WeightsLoaded(span=SPAN, bytes=gib(54.12)))
    assert share is not None
    assert share / GIB == pytest.approx(26.09, abs=0.005)


def test_no_share_without_the_activation_peak() -> None:
    assert share_of(MemoryBreakdown(span=SPAN, total_bytes=gib(95), utilisation=0.9)) is None


def test_bytes_per_token_where_the_quotient_means_that() -> None:
    pool = KvPool(span=SPAN, tokens=8192)
    price = bytes_per_token(gib(1), pool, (0, 10, 2))
    assert price == 128 * KIB
    assert bytes_per_token(gib(1), pool, (0, 20, 1)) is None  # tokens are concurrency x context from here on
    assert bytes_per_token(gib(1), pool, (0, 10, 2), hybrid=True) is None


@pytest.mark.parametrize(("ratio", "word"), [(0.89, "none"), (1.0, "no-batching"), (2.0, "little"), (4.0, "fine")])
def test_concurrency_classes(ratio: float, word: str) -> None:
    assert concurrency_class(ratio) == word


@pytest.mark.parametrize(
    ("limit", "value"), [(8192, 8192), (23648, 23552), (34736, 33792), (122080, 118784), (900, 896), (5, 1)]
)
def test_context_is_rounded_below_the_limit(limit: int, value: int) -> None:
    assert round_context(limit) == value
    assert round_context(limit) <= limit


@pytest.mark.parametrize(
    ("parameters", "layers", "width"), [(6.7e9, 32, 4096), (13e9, 40, 5120), (65e9, 80, 8192), (175e9, 96, 12288)]
)
def test_upper_bound_holds_for_full_multi_head_attention(parameters: float, layers: int, width: int) -> None:
    assert 2 * layers * width * 2 < most_bytes_per_token(parameters) < 6 * MIB * parameters / 175e9 * 4


def test_share_against_what_real_starts_logged() -> None:
    """Every vLLM start of the shared facts whose figures are complete: within the rounding of what was printed."""
    lines = shared_file("corpus", "memory-facts.jsonl").read_text("utf-8").splitlines()
    parts = ("total_gpu_gib", "gpu_memory_utilization", "weights_gib", "peak_activation_gib", "available_kv_gib")
    starts = [start for line in lines if line.strip() and (start := json.loads(line))["engine"] == "vllm"]
    complete = [start for start in starts if all(start.get(name) is not None for name in parts)]
    assert len(complete) >= 20
    for start in complete:
        total, share, weights, peak, printed = (start[name] for name in parts)
        version = version_numbers(start["engine_version"] or "")
        rest, graphs = start["non_torch_gib"] or 0, start["graph_gib"] or 0
        left = kv_share(gib(total), share, gib(weights), gib(rest), gib(peak), gib(graphs), version)
        assert left / GIB == pytest.approx(printed, abs=0.03), start["id"]
