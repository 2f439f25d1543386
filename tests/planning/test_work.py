"""What a token costs known models: bytes, operations, caches, all-reduces."""

from __future__ import annotations

import pytest

from loadpath.checkpoints.source import open_model
from loadpath.core.shape import ModelShape
from loadpath.planning.speed import Load
from loadpath.planning.work import cache_ways, load_of, products


def shape(name: str) -> ModelShape:
    return open_model(name).shape


def load(name: str) -> Load:
    return load_of(shape(name))


@pytest.mark.parametrize(
    ("name", "active_billions", "cache_bytes_per_token"),
    [
        ("Qwen/Qwen3-8B", 7.57, 147_456),  # 36 layers, 8 heads of 128, keys and values in 16 bits
        ("meta-llama/Llama-3.3-70B-Instruct", 69.5, 327_680),
        ("deepseek-ai/DeepSeek-V3", 36.6, 70_272),  # a latent of 576 in 61 layers
        ("Qwen/Qwen3-30B-A3B", 3.04, 98_304),
    ],
)
def test_operations_are_two_per_active_parameter(name: str, active_billions: float, cache_bytes_per_token: int) -> None:
    made = load(name)
    assert (made.flops_per_token + made.head_flops) / 2e9 == pytest.approx(active_billions, rel=0.005)
    assert sum(cache.bytes_per_token for cache in made.caches) == cache_bytes_per_token


def test_input_embeddings_are_not_read_but_a_tied_head_is() -> None:
    assert load("Qwen/Qwen3-8B").weight_bytes == pytest.approx((8.191e9 - 151_936 * 4096) * 2, rel=0.001)
    assert load("google/gemma-3-27b-it").weight_bytes > 53e9


def test_experts_are_apart_and_a_token_uses_a_few() -> None:
    made = load("openai/gpt-oss-120b")
    assert (made.experts_active, made.experts) == (4, 128)
    assert made.expert_bytes > 10 * made.weight_bytes
    assert [cache.window for cache in made.caches] == [0, 128]


def test_latent_attention_works_less_on_a_prompt_than_on_single_tokens_and_cannot_be_divided() -> None:
    (cache,) = load("deepseek-ai/DeepSeek-V3").caches
    assert cache.prefill == 61 * 2 * 128 * (128 + 64 + 128)
    assert cache.flops_per_pair > 3 * cache.prefill
    assert cache_ways(shape("deepseek-ai/DeepSeek-V3"), 8) == 1
    assert cache_ways(shape("Qwen/Qwen3-30B-A3B"), 8) == 4


def test_an_all_reduce_for_each_part_that_a_layer_has() -> None:
    assert load("Qwen/Qwen3-8B").all_reduces == 2 * 36
    assert load("nvidia/NVIDIA-Nemotron-Nano-9B-v2").all_reduces == 56
    assert load("nvidia/NVIDIA-Nemotron-Nano-9B-v2").state_bytes > 1e8


def test_products_of_a_rank() -> None:
    found = {one.name: (one.k, one.n) for one in products(shape("Qwen/Qwen3-8B"), 2)}
    assert found["down"] == (12288 // 2, 4096)
    assert found["gate_up"] == (4096, 12288)
