"""What a deployment's numbers are made of, and how two that sound alike differ."""

from __future__ import annotations

import pytest

from loadpath.core.plan import Identity
from loadpath.knowledge.models import model
from loadpath.planning.identity import differences, identity, scheme_key


def of(name: str, card: tuple[int, int] | None, engine: str = "vllm", kv: str = "auto") -> Identity:
    shape = model(name)
    assert shape is not None
    return identity(shape, engine, card, (0, 19, 0), kv)


def test_plain_weights() -> None:
    said = of("Qwen/Qwen3-8B", (9, 0))
    assert (said.weights, said.activations, said.kv_cache, said.multiply) == ("BF16", "BF16", "BF16", "BF16")
    assert said.kernel == "cuBLAS" and not said.fallback


def test_group_and_scale_metadata_are_named() -> None:
    assert (
        of("Qwen/Qwen3-8B-AWQ", (8, 6)).weights
        == "INT4 (awq), groups of 128 with BF16 scales, zero points; the rest BF16"
    )
    assert "blocks of 128 x 128" in of("Qwen/Qwen3-8B-FP8", (9, 0)).weights
    assert "layers 0, 125" in of("meta-llama/Llama-3.1-405B-Instruct-FP8", (9, 0)).weights
    assert "FP8 for attention and recurrent" in of("nvidia/Qwen3.6-27B-NVFP4", (12, 0)).weights


@pytest.mark.parametrize(
    ("name", "card", "word"),
    [
        ("Qwen/Qwen3-8B-FP8", (8, 6), "8.9"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", (9, 0), "Blackwell"),
        ("openai/gpt-oss-20b", (8, 0), "16 bits"),
        ("Qwen/Qwen3-8B-AWQ", (7, 5), "dequantised"),
    ],
)
def test_fallbacks_say_why(name: str, card: tuple[int, int], word: str) -> None:
    said = of(name, card)
    assert word in said.fallback and said.kernel


def test_the_cache_is_named_by_flag_or_by_the_checkpoint() -> None:
    assert of("Qwen/Qwen3-8B", (9, 0), kv="fp8").kv_cache == "FP8 e4m3"
    assert of("nvidia/Qwen3-235B-A22B-NVFP4", (10, 0)).kv_cache == "FP8 e4m3 (asked for by the checkpoint)"


def test_two_4_bit_deployments_differ_in_more_than_their_name() -> None:
    awq, nvfp4 = of("Qwen/Qwen3-32B-AWQ", (10, 0)), of("Qwen3-32B-NVFP4", (10, 0))
    found = differences(awq, nvfp4)
    assert [text.split(":")[0] for text in found] == ["weights", "activations", "products", "kernel"]
    assert differences(awq, awq) == ()


def test_an_unknown_card_leaves_the_kernel_open() -> None:
    said = of("Qwen/Qwen3-8B-AWQ", None)
    assert said.weights and not said.kernel and not said.multiply


def test_llama_cpp_multiplies_in_integers() -> None:
    shape = model("Qwen3-8B-Q4_K_M.gguf")
    assert shape is not None and scheme_key(shape.quantisation) == "gguf"
    said = identity(shape, "llama.cpp", (8, 9), None, "q8_0")
    assert said.activations.startswith("q8_1") and said.kv_cache.startswith("q8_0")
