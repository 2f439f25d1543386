"""Buffers that model classes allocate when they are built."""

from __future__ import annotations

from loadpath.core.shape import ModelShape
from loadpath.engines.vllm.planning.buffers import buffers, whole_towers
from loadpath.knowledge.models import model


def shape_of(name: str) -> ModelShape:
    found = model(name)
    assert found is not None
    return found


def test_most_models_have_none() -> None:
    assert buffers(shape_of("Qwen/Qwen3-8B"), 8192, 2) == 0


def test_features_of_three_depths_for_each_token_of_a_step() -> None:
    shape = shape_of("Qwen/Qwen3-VL-8B-Instruct")
    assert buffers(shape, 8192, 2) == 3 * 8192 * 4096 * 2
    assert buffers(shape, 8192, 2, encoders=False) == 0


def test_an_embedding_of_every_layer_for_each_token_of_a_step() -> None:
    assert buffers(shape_of("google/gemma-3n-E4B-it"), 8192, 2) == 8192 * 35 * 256 * 2


def test_positions_that_an_indexer_chooses() -> None:
    assert buffers(shape_of("deepseek-ai/DeepSeek-V3.2"), 8192, 2) == 4 * 8192 * 2048


def test_encoders_on_every_rank() -> None:
    assert whole_towers(shape_of("google/gemma-3n-E4B-it"), "")
    assert not whole_towers(shape_of("Qwen/Qwen3-VL-8B-Instruct"), "")
    assert whole_towers(shape_of("Qwen/Qwen3-VL-8B-Instruct"), "data")
