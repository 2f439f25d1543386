"""Weights of a real checkpoint: its tensors, told apart by name and divided over ranks."""

from __future__ import annotations

import pytest

from loadpath.core.checkpoint import Checkpoint, StoredTensor
from loadpath.core.shape import ModelShape
from loadpath.knowledge.models import model
from loadpath.planning.split import Split
from loadpath.planning.stored_weights import checkpoint_weights, role_of
from loadpath.planning.weights import weights

_LAYER = {
    "self_attn.q_proj": (4096, 4096), "self_attn.k_proj": (1024, 4096), "self_attn.v_proj": (1024, 4096),
    "self_attn.o_proj": (4096, 4096), "mlp.gate_proj": (12288, 4096), "mlp.up_proj": (12288, 4096),
    "mlp.down_proj": (4096, 12288), "input_layernorm": (1, 4096), "post_attention_layernorm": (1, 4096),
    "self_attn.q_norm": (1, 128), "self_attn.k_norm": (1, 128),
}  # fmt: skip


def qwen3_8b() -> ModelShape:
    found = model("Qwen/Qwen3-8B")
    assert found is not None
    return found


def checkpoint(mlp_bytes: int = 2, layers: int = 36) -> Checkpoint:
    """Qwen3-8B as its repository stores it, or with feed-forward weights of another width."""

    def tensor(name: str, rows: int, cols: int, width: int = 2) -> StoredTensor:
        return StoredTensor(name, "BF16", (rows, cols), rows * cols * width)

    found = [
        tensor("model.embed_tokens.weight", 151936, 4096),
        tensor("lm_head.weight", 151936, 4096),
        tensor("model.norm.weight", 1, 4096),
    ]
    for layer in range(layers):
        for name, (rows, cols) in _LAYER.items():
            width = mlp_bytes if name.startswith("mlp") else 2
            found.append(tensor(f"model.layers.{layer}.{name}.weight", rows, cols, width))
    return Checkpoint("here", "safetensors", tuple(found))


@pytest.mark.parametrize(
    "split",
    [Split(), Split(tp=2), Split(tp=16), Split(pp=2), Split(pp=2, stage=1)],
    ids=["1", "tp2", "tp16", "pp0", "pp1"],
)
def test_a_checkpoint_as_its_shape_says_gives_the_same_weights(split: Split) -> None:
    made = checkpoint_weights(qwen3_8b(), checkpoint(), split)
    assert made.bytes == pytest.approx(weights(qwen3_8b(), split).bytes, rel=1e-5)


def test_what_is_really_stored_beats_the_shape() -> None:
    narrow = checkpoint_weights(qwen3_8b(), checkpoint(mlp_bytes=1))
    plain = weights(qwen3_8b())
    saved = 36 * 3 * 4096 * 12288
    assert plain.bytes - narrow.bytes == pytest.approx(saved, rel=0.001)
    assert narrow.by_role["rope"] == plain.by_role["rope"]


def test_layers_beyond_the_model_are_its_mtp_layers() -> None:
    more = checkpoint(layers=37)
    assert checkpoint_weights(qwen3_8b(), more).bytes == checkpoint_weights(qwen3_8b(), checkpoint()).bytes
    assert "drafter" in checkpoint_weights(qwen3_8b(), more, drafter=True).by_role


def test_an_incomplete_checkpoint_leaves_the_shape_in_charge() -> None:
    part = Checkpoint("here", "safetensors", checkpoint().tensors[:5], complete=False)
    assert checkpoint_weights(qwen3_8b(), part) == weights(qwen3_8b())


@pytest.mark.parametrize(
    ("name", "role", "share"),
    [
        ("model.layers.0.mlp.experts.3.down_proj.weight", "experts", "experts"),
        ("model.layers.0.mlp.shared_experts.up_proj.weight", "shared-experts", "column"),
        ("model.layers.0.mlp.gate.weight", "small", "whole"),
        ("model.layers.0.mlp.gate_proj.weight", "mlp", "column"),
        ("model.layers.0.self_attn.k_proj.qweight", "attention", "kv"),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "attention", "whole"),
        ("model.layers.0.self_attn.kv_b_proj.weight", "attention", "column"),
        ("model.layers.0.linear_attn.in_proj_qkvz.weight", "recurrent", "column"),
        ("model.layers.0.linear_attn.out_proj.weight", "recurrent", "row"),
        ("backbone.layers.3.mixer.down_proj.weight", "mlp", "row"),
        ("backbone.layers.3.mixer.in_proj.weight", "recurrent", "column"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision", "tower"),
        ("transformer.h.0.attn.c_attn.weight", "attention", "column"),
        ("transformer.h.0.mlp.c_proj.weight", "mlp", "row"),
        ("transformer.wte.weight", "embedding", "vocabulary"),
        ("something.new.weight", "small", "whole"),
    ],
)
def test_names_tell_what_a_tensor_is_for(name: str, role: str, share: str) -> None:
    assert role_of(name) == (role, share)
