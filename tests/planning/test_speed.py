"""Bounds of speed: known floors, what divides and what does not, and monotony where physics has it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import shared_file
from loadpath.core.units import GIB
from loadpath.knowledge.gpus import by_id
from loadpath.planning.collectives import Link, all_reduce, link_of
from loadpath.planning.speed import (
    Cache,
    Cards,
    Load,
    bounds,
    compute_bound_from,
    concurrencies,
    decode,
    experts_read,
    prefill,
)

# A dense 8B-like model: 32 layers, 8 heads of 128 for keys and values in 16 bits, 32 query heads.
DENSE = Load(
    weight_bytes=15e9,
    flops_per_token=14e9,
    head_flops=1e9,
    caches=(Cache(bytes_per_token=131_072, flops_per_pair=4 * 32 * 32 * 128),),
    all_reduces=64,
    all_reduce_bytes_per_token=8192,
)
SPARSE = Load(weight_bytes=3e9, flops_per_token=6e9, expert_bytes=57e9, experts=128, experts_active=8)
H100 = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12)
loads = st.builds(
    Load,
    weight_bytes=st.floats(1e8, 1e12),
    flops_per_token=st.floats(1e8, 1e12),
    expert_bytes=st.floats(0, 1e12),
    experts=st.just(64),
    experts_active=st.integers(1, 64),
    caches=st.lists(
        st.builds(Cache, bytes_per_token=st.floats(1, 1e6), window=st.sampled_from([0, 1024])), max_size=2
    ).map(tuple),
)


def test_27_gib_of_weights_at_1792_gb_per_s_take_16_4_ms() -> None:
    step = decode(
        Load(weight_bytes=27.31 * GIB, flops_per_token=29e9),
        Cards(bandwidth_bytes_per_s=1792e9, flops_per_s=209.5e12),
        1,
        0,
    )
    assert step.itl_seconds == pytest.approx(16.4e-3, rel=0.005)
    assert (step.limit, round(step.sequence_tokens_per_s)) == ("bandwidth", 61)


def test_the_cache_is_read_once_for_every_sequence() -> None:
    one, many = decode(DENSE, H100, 1, 8192), decode(DENSE, H100, 16, 8192)
    assert one.cache_seconds == pytest.approx(8192 * 131_072 / 3.352e12)
    assert many.cache_seconds == pytest.approx(16 * one.cache_seconds)
    assert many.weights_seconds == one.weights_seconds


def test_a_window_bounds_what_is_read() -> None:
    windowed = Cache(bytes_per_token=1000, window=1024)
    assert (windowed.tokens(512), windowed.tokens(9000)) == (512, 1024)
    assert windowed.pairs(4) == Cache(bytes_per_token=1000).pairs(4) == 10
    assert windowed.pairs(2048) == pytest.approx(1024 * 1025 / 2 + 1024 * 1024)
    assert windowed.pairs(10, before=5000) == 10 * 1024


def test_a_batch_reads_more_experts_but_never_more_than_all() -> None:
    assert experts_read(SPARSE, 1) == pytest.approx(8 / 128)
    assert experts_read(SPARSE, 16) == pytest.approx(1 - (120 / 128) ** 16)
    step = decode(SPARSE, H100, 256, 0)
    assert step.experts_read_share == pytest.approx(1, abs=1e-6)
    assert step.weights_seconds == pytest.approx(60e9 / 3.352e12, rel=1e-5)


def test_tensor_parallel_divides_weights_and_work_but_not_a_replicated_cache() -> None:
    four = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12, tensor_parallel=4)
    one, cut = decode(DENSE, H100, 8, 4096), decode(DENSE, four, 8, 4096)
    assert cut.weights_seconds == pytest.approx(one.weights_seconds / 4)
    assert cut.compute_seconds == pytest.approx(one.compute_seconds / 4)
    assert cut.cache_seconds == one.cache_seconds


def test_pipeline_stages_add_throughput_but_do_not_shorten_a_token() -> None:
    staged = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12, pipeline_parallel=2)
    assert decode(DENSE, staged, 1, 4096).itl_seconds == decode(DENSE, H100, 1, 4096).itl_seconds
    assert decode(DENSE, staged, 16, 4096).tokens_per_s == pytest.approx(2 * decode(DENSE, H100, 8, 4096).tokens_per_s)


def test_a_slow_link_limits_a_large_batch() -> None:
    pcie = Link(name="PCIe 4 x16", bytes_per_s=31.5e9, latency_s=10e-6)
    cards = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12, tensor_parallel=2, cache_ways=2, link=pcie)
    step = decode(DENSE, cards, 1, 1024)
    assert step.all_reduce_seconds == pytest.approx(64 * (10e-6 + 8192 / 31.5e9))
    assert prefill(DENSE, cards, 8192).limit == "interconnect"


def test_all_reduce_moves_two_parts_in_n_of_the_bytes_and_a_switch_that_adds_one() -> None:
    assert all_reduce(8e9, 4, Link(name="l", bytes_per_s=1e9, latency_s=0)).seconds == pytest.approx(12)
    assert all_reduce(8e9, 4, Link(name="l", bytes_per_s=1e9, latency_s=0, adds=True)).seconds == pytest.approx(8)
    assert all_reduce(8e9, 1, Link(name="l", bytes_per_s=1e9, latency_s=1)).seconds == 0


@pytest.mark.parametrize(
    ("id", "name", "gigabytes_per_s", "adds"),
    [
        ("h100-sxm-80", "NVLink", 450, True),
        ("a100-sxm4-80", "NVLink", 300, False),
        ("rtx-4090", "PCIe 4 x16", 31.5, False),
    ],
)
def test_links_of_cards(id: str, name: str, gigabytes_per_s: float, adds: bool) -> None:
    gpu = by_id(id)
    assert gpu is not None
    link = link_of(gpu)
    assert link is not None
    assert (link.name, round(link.bytes_per_s / 1e9, 1), link.adds) == (name, gigabytes_per_s, adds)


def test_prefill_of_a_long_prompt_is_bound_by_compute_and_a_cached_prefix_spares_it() -> None:
    cold, warm = prefill(DENSE, H100, 8192), prefill(DENSE, H100, 8192, cached=8000)
    assert cold.limit == "compute"
    pairs = 8192 * 8193 / 2
    assert cold.ttft_seconds == pytest.approx((8192 * 14e9 + 1e9 + pairs * 4 * 32 * 32 * 128) / 989e12)
    assert warm.ttft_seconds < cold.ttft_seconds / 10
    assert prefill(DENSE, H100, 1).limit == "bandwidth"


def test_small_chunks_read_the_weights_again_and_again() -> None:
    assert prefill(DENSE, H100, 8192, chunk=64).memory_seconds == pytest.approx(128 * 15e9 / 3.352e12)
    assert prefill(DENSE, H100, 8192, chunk=64).limit == "bandwidth"


def test_pipeline_stages_share_a_prompt_chunk_by_chunk() -> None:
    staged = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12, pipeline_parallel=2)
    whole = prefill(DENSE, H100, 8192, chunk=8192).ttft_seconds
    assert prefill(DENSE, staged, 8192, chunk=8192).ttft_seconds == pytest.approx(whole)
    assert prefill(DENSE, staged, 8192, chunk=2048).ttft_seconds == pytest.approx(whole * 5 / 8)
    assert prefill(DENSE, staged, 8192).ttft_seconds == pytest.approx(whole / 2)


def test_where_decode_turns_compute_bound() -> None:
    short = compute_bound_from(DENSE, H100, 0)
    assert short == 296  # ridge 295 FLOP/byte, one FLOP a byte and sequence
    before, at = decode(DENSE, H100, short - 1, 0), decode(DENSE, H100, short, 0)
    assert (before.limit, at.limit) == ("bandwidth", "compute")
    assert compute_bound_from(DENSE, H100, 8192) is None


def test_bounds_cover_the_pool_and_say_what_was_assumed() -> None:
    two = Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=989e12, tensor_parallel=2, cache_ways=2)
    made = bounds(SPARSE, two, context=2048, prompt=1024, most_concurrency=37)
    assert [row.concurrency for row in made.decode] == [1, 2, 4, 8, 16, 32, 37]
    assert made.bandwidth_bound_below is not None and made.compute_bound_from is not None
    assert made.bandwidth_bound_below <= made.compute_bound_from
    said = " ".join(made.assumptions)
    assert "not a prediction" in said and "routed" in said and "left out" in said
    assert concurrencies(0) == (1,)


@given(loads, st.integers(1, 512), st.integers(0, 100_000))
def test_more_bandwidth_or_rate_never_slows_and_a_batch_never_lowers_the_total(
    load: Load, batch: int, context: int
) -> None:
    step = decode(load, H100, batch, context)
    wider = decode(load, Cards(bandwidth_bytes_per_s=6.7e12, flops_per_s=989e12), batch, context)
    quicker = decode(load, Cards(bandwidth_bytes_per_s=3.352e12, flops_per_s=1979e12), batch, context)
    more = decode(load, H100, batch + 1, context)
    assert max(wider.itl_seconds, quicker.itl_seconds) <= step.itl_seconds
    assert more.itl_seconds >= step.itl_seconds
    assert more.tokens_per_s >= step.tokens_per_s * (1 - 1e-9)


@given(loads, st.integers(1, 512), st.integers(0, 50_000))
def test_a_longer_context_never_quickens(load: Load, batch: int, context: int) -> None:
    assert decode(load, H100, batch, context + 100).itl_seconds >= decode(load, H100, batch, context).itl_seconds
    assert prefill(load, H100, context + 101).ttft_seconds >= prefill(load, H100, context + 1).ttft_seconds


def test_no_logged_speed_of_an_h200_passes_its_bound() -> None:
    """An 8B model in 16 bits, served by vLLM on one H200: ten-second means of its log against the ceiling."""
    log = shared_file("corpus", "whole", "vllm-0.11.2-h200-8b.log").read_text("utf-8", errors="replace")
    seen = re.findall(r"generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs", log)
    served = [(float(rate), int(running)) for rate, running in seen if int(running) and float(rate) > 100]
    assert served
    h200 = Cards(bandwidth_bytes_per_s=4.8e12, flops_per_s=989e12)
    llama = Load(weight_bytes=15.0e9, flops_per_token=14e9, caches=(Cache(bytes_per_token=131_072),))
    for rate, running in served:
        assert rate < decode(llama, h200, max(running, 8), 0).tokens_per_s
