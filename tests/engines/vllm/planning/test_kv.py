"""The cache as vLLM counts it: the worked checks of the shared facts (vllm.md D), by version, and what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB
from loadpath.engines.vllm.planning.kv_groups import Layout, layout
from loadpath.engines.vllm.planning.kv_specs import specs
from loadpath.engines.vllm.planning.kv_tokens import pool, request_blocks
from loadpath.engines.vllm.planning.options import Options, options
from loadpath.knowledge.models import model
from loadpath.planning.deployment import Card, Deployment

CARD = Card("80 GiB", 80 * GIB, capability=(9, 0))
MODELS = (
    "Qwen/Qwen3-8B", "google/gemma-3-27b-it", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-27B",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", "google/gemma-3n-E4B-it", "moonshotai/Kimi-Linear-48B-A3B-Instruct",
)  # fmt: skip


def shape(name: str) -> ModelShape:
    found = model(name)
    assert found is not None, name
    return found


def opts(name: str, version: tuple[int, ...] = (0, 19, 0), **settings_: object) -> Options:
    given_ = {key.replace("_", "-"): str(value) for key, value in settings_.items()}
    return options(Deployment(shape(name), (CARD,), version=version, settings=given_))


def laid_out(name: str, o: Options) -> Layout:
    found = layout(specs(shape(name), o), o)
    assert found is not None
    return found


def test_a_token_of_llama_8b_takes_128_kib_and_its_pool_is_counted_in_blocks_of_2_mib() -> None:
    o = opts("meta-llama/Llama-3.1-8B-Instruct", (0, 6, 4), max_model_len=20000)
    found = laid_out("meta-llama/Llama-3.1-8B-Instruct", o)
    assert found.block_bytes == 2 << 20
    held = pool(found, 1952 * found.block_bytes, o)
    assert (held.blocks, held.tokens, round(held.concurrency, 4)) == (1952, 31232, 1.5616)
    assert not pool(found, 1478 * found.block_bytes, opts("meta-llama/Llama-3.1-8B-Instruct", (0, 6, 4))).fits


def test_kv_heads_are_copied_where_there_are_more_ranks_than_heads() -> None:
    name = "Qwen/Qwen3-235B-A22B"
    assert laid_out(name, opts(name, tensor_parallel_size=4)).block_bytes == 16 * 48128
    assert laid_out(name, opts(name, tensor_parallel_size=8)).block_bytes == 16 * 48128


@pytest.mark.parametrize(
    ("name", "block", "padding"),
    [
        ("Qwen/Qwen3.5-0.8B", 544, 2.64),
        ("Qwen/Qwen3.5-27B", 784, 0.13),
        ("Qwen/Qwen3.5-35B-A3B", 1056, 0.76),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 544, 1.49),
    ],
)
def test_the_attention_block_of_a_hybrid_holds_a_state(name: str, block: int, padding: float) -> None:
    found = laid_out(name, opts(name))
    assert (found.block_tokens, round(100 * found.padding, 2)) == (block, padding)


@pytest.mark.parametrize(("name", "more"), [("ibm-granite/granite-4.0-h-tiny", 1), ("Qwen/Qwen3.5-27B", 0)])
def test_mamba_2_keeps_one_more_state_of_a_request_from_0_32_on(name: str, more: int) -> None:
    """As a start of 0.32.0 with a small hybrid model logged it: 5,461 blocks, room for 910.17, six blocks each."""
    o, late = (
        opts(name, version, max_model_len=1024, enable_prefix_caching="true") for version in ((0, 31, 0), (0, 32, 0))
    )
    assert request_blocks(laid_out(name, late), 1024, late) - request_blocks(laid_out(name, o), 1024, o) >= more
    assert (request_blocks(laid_out(name, late), 1024, late) == request_blocks(laid_out(name, o), 1024, o)) == (
        not more
    )


def test_drafted_tokens_lengthen_the_states() -> None:
    o = opts("Qwen/Qwen3.5-27B", speculative_config='{"method": "ngram", "num_speculative_tokens": 7}')
    assert laid_out("Qwen/Qwen3.5-27B", o).block_tokens == 832


@pytest.mark.parametrize(("dtype", "token"), [("auto", 70_272), ("fp8", 35_136), ("fp8_ds_mla", 40_016)])
def test_latent_attention_keeps_one_latent_on_every_rank(dtype: str, token: int) -> None:
    for ranks in (1, 8):
        o = opts("deepseek-ai/DeepSeek-V3", kv_cache_dtype=dtype, tensor_parallel_size=ranks)
        assert laid_out("deepseek-ai/DeepSeek-V3", o).block_bytes == 16 * token


def test_the_indexer_of_sparse_attention_adds_its_keys() -> None:
    o = opts("deepseek-ai/DeepSeek-V3.2", kv_cache_dtype="fp8_ds_mla")
    assert laid_out("deepseek-ai/DeepSeek-V3.2", o).block_bytes == 16 * (40_016 + 8_052)


@pytest.mark.parametrize(
    ("version", "tokens", "concurrency"),
    [((0, 20, 0), 1_092_256, 15.67), ((0, 25, 0), 2_053_902, 15.67), ((0, 26, 0), 1_939_908, 14.80)],
)
def test_window_groups_share_a_pool_and_the_printed_tokens_changed_with_the_version(
    version: tuple[int, ...], tokens: int, concurrency: float
) -> None:
    o = opts("openai/gpt-oss-20b", version, max_model_len=131072, max_num_batched_tokens=8192)
    held = pool(laid_out("openai/gpt-oss-20b", o), 50 * GIB, o)
    assert held.blocks == 136_533
    assert (held.tokens, round(held.concurrency, 2)) == (tokens, concurrency)


def test_the_estimated_length_is_the_longest_that_passes_the_check() -> None:
    for name in MODELS:
        o = opts(name, max_model_len=1 << 20)
        held = pool(laid_out(name, o), 4 * GIB, o)
        if held.longest:
            assert pool(laid_out(name, o), 4 * GIB, opts(name, max_model_len=held.longest)).fits, name
        if not held.fits:
            assert not pool(laid_out(name, o), 4 * GIB, opts(name, max_model_len=held.longest + 1)).fits, name


def test_the_never_used_block_is_put_aside_from_0_29_on() -> None:
    name = "Qwen/Qwen3-8B"
    exact = 512 * laid_out(name, opts(name)).block_bytes
    assert pool(laid_out(name, opts(name)), exact, opts(name, (0, 28, 0), max_model_len=8192)).fits
    assert not pool(laid_out(name, opts(name)), exact, opts(name, (0, 29, 0), max_model_len=8192)).fits


def test_length_auto_takes_what_fits() -> None:
    name = "Qwen/Qwen3-8B"
    o = opts(name, (0, 19, 0), max_model_len="auto")
    held = pool(laid_out(name, o), 1 * GIB, o)
    assert held.fits
    assert held.longest < o.max_model_len
    assert held.concurrency >= 1


def test_tokens_are_spread_over_context_parallel_ranks() -> None:
    name = "deepseek-ai/DeepSeek-V3"
    alone = opts(name, tensor_parallel_size=8, max_model_len=65536)
    spread = opts(name, tensor_parallel_size=8, max_model_len=65536, decode_context_parallel_size=8)
    found = laid_out(name, alone)
    assert request_blocks(found, 65536, spread) * 8 == request_blocks(found, 65536, alone)


def test_without_the_hybrid_manager_windows_are_stored_whole() -> None:
    name = "google/gemma-3-27b-it"
    o = opts(name, disable_hybrid_kv_cache_manager="true")
    assert laid_out(name, o).plain


def test_layers_that_read_an_earlier_cache_keep_none() -> None:
    o = opts("google/gemma-3n-E4B-it")
    kept = sum(count for _, count in specs(shape("google/gemma-3n-E4B-it"), o))
    assert kept == len(shape("google/gemma-3n-E4B-it").layers) - 15


@given(
    name=st.sampled_from(MODELS),
    version=st.sampled_from([(0, 8, 5), (0, 10, 2), (0, 16, 0), (0, 19, 0), (0, 24, 0), (0, 30, 0)]),
    length=st.integers(1, 400_000),
    gib=st.integers(1, 60),
)
@settings(deadline=None, max_examples=150)
def test_more_length_never_costs_less_and_more_memory_never_holds_fewer(
    name: str, version: tuple[int, ...], length: int, gib: int
) -> None:
    o = opts(name, version, max_model_len=length)
    found = laid_out(name, o)
    assert request_blocks(found, length, o) <= request_blocks(found, length + 97, o)
    small, large = pool(found, gib * GIB, o), pool(found, (gib + 1) * GIB, o)
    assert small.blocks <= large.blocks
    assert small.tokens <= large.tokens
    assert small.longest <= large.longest


@given(name=st.sampled_from(MODELS[:4]), ranks=st.sampled_from([2, 4, 8]))
@settings(deadline=None, max_examples=30)
def test_ranks_together_hold_at_least_the_cache_of_one(name: str, ranks: int) -> None:
    one = sum(spec.token_bytes * count for spec, count in specs(shape(name), opts(name)))
    many = sum(spec.token_bytes * count for spec, count in specs(shape(name), opts(name, tensor_parallel_size=ranks)))
    assert one <= many * ranks
    assert many <= one


def test_pipeline_stages_share_the_layers_out() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    o = opts(name, pipeline_parallel_size=3)
    kept = [sum(count for _, count in specs(shape(name), o, None, stage)) for stage in range(3)]
    assert sum(kept) == len(shape(name).layers)
