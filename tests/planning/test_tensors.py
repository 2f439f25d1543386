"""A model's tensors on one rank: the rules of every parallel split."""

from __future__ import annotations

import pytest

from loadpath.core.shape import ModelShape
from loadpath.knowledge.models import model, names
from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.parameters import each, parameters
from loadpath.planning.split import WHOLE, Split, stage_layers
from loadpath.planning.tensors import drafter_tensors, tensors

EVERY = [shape for name in names() if (shape := model(name)) is not None]


def shape_of(name: str) -> ModelShape:
    found = model(name)
    assert found is not None
    return found


def rank(name: str, split: Split) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor, _ in each(tensors(shape_of(name), split))}


def total(shape: ModelShape, split: Split = WHOLE) -> int:
    return sum(tensor.elements * times for tensor, times in each(tensors(shape, split)))


def test_heads_and_widths_are_divided_and_norms_are_not() -> None:
    whole, half = rank("Qwen/Qwen3-8B", WHOLE), rank("Qwen/Qwen3-8B", Split(tp=2))
    assert (whole["qkv"].rows, half["qkv"].rows) == (6144, 3072)
    assert (whole["o"].cols, half["o"].cols) == (4096, 2048)
    assert whole["gate_up"].rows == 2 * half["gate_up"].rows and whole["down"].cols == 2 * half["down"].cols
    assert whole["norms"] == half["norms"] and whole["q_norm"] == half["q_norm"]
    assert whole["embedding"].rows == 2 * half["embedding"].rows


def test_kv_heads_fewer_than_ranks_are_repeated() -> None:
    eight, sixteen = rank("Qwen/Qwen3-8B", Split(tp=8)), rank("Qwen/Qwen3-8B", Split(tp=16))
    assert eight["qkv"].rows == 4 * 128 + 2 * 128
    assert sixteen["qkv"].rows == 2 * 128 + 2 * 128, "8 KV heads: one on each of 16 ranks"


def test_expert_parallelism_divides_experts_instead_of_their_width() -> None:
    wide, deep = rank("Qwen/Qwen3-30B-A3B", Split(tp=4)), rank("Qwen/Qwen3-30B-A3B", Split(tp=4, ep=4))
    assert (wide["w13"].stack, wide["w13"].rows) == (128, 2 * 768 // 4)
    assert (deep["w13"].stack, deep["w13"].rows) == (32, 2 * 768)
    assert wide["router"].rows == deep["router"].rows == 128
    assert wide["w13"].elements == deep["w13"].elements


def test_latent_down_projections_are_whole_and_up_projections_divided() -> None:
    whole, eighth = rank("deepseek-ai/DeepSeek-V3", WHOLE), rank("deepseek-ai/DeepSeek-V3", Split(tp=8))
    assert whole["qkv_a"] == eighth["qkv_a"]
    assert whole["kv_b"].rows == 8 * eighth["kv_b"].rows and whole["q_b"].rows == 8 * eighth["q_b"].rows


def test_data_parallel_attention_keeps_attention_whole() -> None:
    split = Split(tp=8, ep=8, attention_tp=1)
    assert rank("deepseek-ai/DeepSeek-V3", split)["kv_b"] == rank("deepseek-ai/DeepSeek-V3", WHOLE)["kv_b"]


@pytest.mark.parametrize(
    ("layers", "split", "owned"),
    [
        (32, Split(pp=4, stage=1), range(8, 16)),
        (61, Split(pp=4, stage=2), range(30, 46)),
        (61, Split(pp=4, stage=3), range(46, 61)),
        (48, Split(pp=2, stage=0, partition=(16, 32)), range(16)),
        (48, Split(pp=2, stage=1, partition=(16, 32)), range(16, 48)),
    ],
)
def test_stages(layers: int, split: Split, owned: range) -> None:
    assert stage_layers(layers, split) == owned


def test_tied_embeddings_are_on_the_first_and_the_last_stage() -> None:
    for stage in (0, 1):
        assert "embedding" in rank("Qwen/Qwen3-0.6B", Split(pp=2, stage=stage))
    assert "embedding" not in rank("Qwen/Qwen3-8B", Split(pp=2, stage=1))
    assert "lm_head" not in rank("Qwen/Qwen3-8B", Split(pp=2, stage=0))


@pytest.mark.parametrize("shape", EVERY[::3], ids=lambda shape: shape.id)
def test_stages_together_are_the_model(shape: ModelShape) -> None:
    whole = total(shape)
    stages = sum(total(shape, Split(pp=2, stage=stage)) for stage in (0, 1))
    twice = shape.vocab * shape.hidden if shape.tied else 0
    assert stages - whole == twice


@pytest.mark.parametrize("shape", EVERY[::3], ids=lambda shape: shape.id)
def test_more_ranks_never_hold_more(shape: ModelShape) -> None:
    held = [total(shape, Split(tp=tp)) for tp in (1, 2, 4, 8)]
    assert held == sorted(held, reverse=True)
    assert held[0] <= 8 * held[-1]


def test_groups_count_equal_layers_once() -> None:
    groups = tensors(shape_of("google/gemma-3-27b-it"))
    assert [group.times for group in groups] == [1, 52, 10]


def test_active_parameters() -> None:
    published = {
        "Qwen/Qwen3-30B-A3B": 3.3e9, "deepseek-ai/DeepSeek-V3": 37e9, "openai/gpt-oss-120b": 5.1e9,
        "mistralai/Mixtral-8x7B-Instruct-v0.1": 12.9e9, "Qwen/Qwen3-235B-A22B": 22e9,
    }  # fmt: skip
    for name, active in published.items():
        assert parameters(shape_of(name)).active == pytest.approx(active, rel=0.12), name


def test_mtp_layers_are_apart() -> None:
    assert drafter_tensors(shape_of("Qwen/Qwen3-8B")) == ()
    assert parameters(shape_of("deepseek-ai/DeepSeek-V3")).drafter == pytest.approx(14e9, rel=0.05)
    assert total(shape_of("zai-org/GLM-4.5-Air")) + parameters(shape_of("zai-org/GLM-4.5-Air")).drafter == 110468824832
