"""Weights of a real checkpoint on one rank: its own tensors, divided by the rules of the split.

The headers say what is stored, whatever the configuration leaves out; what an engine makes of it (padding, dropped
zero points, allocator blocks, cos/sin tables) is taken from the shape: per role, resident bytes / stored bytes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from loadpath.core.checkpoint import Checkpoint
from loadpath.core.shape import Attention, ModelShape
from loadpath.planning.split import Split, kv_heads, stage_layers
from loadpath.planning.weights import AS_STORED, TORCH_ENGINE, Keeping, Weights, weights

Share = Literal["column", "row", "kv", "vocabulary", "whole", "experts", "tower"]
"""How a tensor is divided: `column` and `row` by tensor parallelism, `kv` by KV heads at most, `whole` not at all."""

_NAMED: tuple[tuple[str, str, Share], ...] = (
    (r"(?:^|\.)(?:visual|vision\w*|image_\w+|multi_modal_projector|mm_projector|mlp1|embed_vision|patch_\w+)\.", "vision", "tower"),
    (r"(?:^|\.)(?:audio\w*|embed_audio|speech\w*)\.", "audio", "tower"),
    (r"per_layer_(?:input_gate|projection|model_projection)\.|eh_proj\.", "small", "whole"),
    (r"(?:embed_tokens\w*|wte|word_embeddings|tok_embeddings|embed_in)\.|^embeddings?\.", "embedding", "vocabulary"),
    (r"(?:^|\.)(?:lm_head|output|embed_out)\.", "lm_head", "vocabulary"),
    (r"norm\w*\.|ln_\w+\.|layernorm\w*\.|\.bias$|e_score_correction_bias|A_log|dt_bias|\.D$|sinks", "small", "whole"),
    (r"indexer\.", "small", "whole"),
    (r"\.experts\.|experts_|\.moe\.", "experts", "experts"),
    (r"shared_experts?\.(?:gate_proj|up_proj|gate_up_proj)\.", "shared-experts", "column"),
    (r"shared_experts?\.down_proj\.", "shared-experts", "row"),
    (r"(?:mlp|block_sparse_moe|feed_forward|mixer|moe)\.(?:gate|router|shared_expert_gate)\.|router\.", "small", "whole"),
    (r"\.conv1d\.|(?:q|k|v)_conv1d\.", "recurrent", "column"),
    (r"(?:linear_attn|mamba|ssm)\.(?:out_proj|o_proj)\.", "recurrent", "row"),
    (r"(?:linear_attn|mamba|ssm)\.|mixer\.in_proj\.", "recurrent", "column"),
    (r"mixer\.out_proj\.", "recurrent", "row"),
    (r"(?:q_a_proj|kv_a_proj\w*|fused_qkv_a_proj\w*)\.", "attention", "whole"),
    (r"(?:k_proj|v_proj|wk|wv)\.", "attention", "kv"),
    (r"(?:q_proj|q_b_proj|kv_b_proj|qkv_proj|query_key_value|c_attn|Wqkv|wq|qkv)\.", "attention", "column"),
    (r"(?:attn|attention|self_attn|self_attention)\.(?:o_proj|out_proj|dense|c_proj|wo)\.|\.o_proj\.|\.wo\.", "attention", "row"),
    (r"(?:gate_proj|up_proj|gate_up_proj|fc1|c_fc|dense_h_to_4h|w1|w3|fc_in)\.", "mlp", "column"),
    (r"(?:down_proj|fc2|dense_4h_to_h|c_proj|w2|fc_out)\.", "mlp", "row"),
)  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_DRAFT = re.compile(r"(?:^|\.)mtp(?:_\w+)?\.")
_LUMPED = frozenset({"norm", "bias", "router", "indexer", "projector", "position", "adapter"})


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str, Share], ...]:
    return tuple((re.compile(text), role, share) for text, role, share in _NAMED)


@cache
def role_of(name: str) -> tuple[str, Share]:
    """What a stored tensor is for, and how ranks divide it. Names that no rule knows are whole on every rank."""
    for pattern, role, share in _patterns():
        if pattern.search(name):
            return role, share
    return "small", "whole"


_Key = tuple[int, int, Split, Keeping, str, bool]
_KEPT = 256
_found: dict[_Key, tuple[ModelShape, Checkpoint, Weights]] = {}
"""By identity: hashing a checkpoint walks its thousands of tensors. The objects are held, so that no id is reused."""


def checkpoint_weights(
    shape: ModelShape,
    checkpoint: Checkpoint,
    split: Split = Split(),  # noqa: B008 (frozen)
    keeping: Keeping = TORCH_ENGINE,
    dtype: str = "",
    drafter: bool = False,
) -> Weights:
    """As `weights`, from the tensors that `checkpoint` stores. An incomplete or empty one leaves the shape's figures."""
    key = (id(shape), id(checkpoint), split, keeping, dtype, drafter)
    if key not in _found:
        if len(_found) >= _KEPT:
            _found.clear()
        _found[key] = (shape, checkpoint, _computed(shape, checkpoint, split, keeping, dtype, drafter))
    return _found[key][2]


def _computed(
    shape: ModelShape, checkpoint: Checkpoint, split: Split, keeping: Keeping, dtype: str, drafter: bool
) -> Weights:
    made = weights(shape, split, keeping, dtype, drafter)
    if not checkpoint.tensors or not checkpoint.complete or checkpoint.format != "safetensors":
        return made
    as_stored = _lumped(weights(shape, split, AS_STORED, dtype, drafter).by_role)
    resident = _lumped(made.by_role)
    by_role: dict[str, int] = {}
    for role, size in _on_rank(shape, checkpoint, split, drafter).items():
        kept = resident.get(role, 0) / as_stored[role] if as_stored.get(role) else 1.0
        by_role[role] = round(size * kept)
    for extra in ("rope", "copies"):
        if extra in made.by_role:
            by_role[extra] = made.by_role[extra]
    return Weights(sum(by_role.values()), by_role, "exact")


def _lumped(by_role: dict[str, int]) -> dict[str, int]:
    """Small roles together: names tell them apart less well than the large ones."""
    found: dict[str, int] = {}
    for role, size in by_role.items():
        key = "small" if role in _LUMPED else role
        found[key] = found.get(key, 0) + size
    return found


def _on_rank(shape: ModelShape, checkpoint: Checkpoint, split: Split, drafter: bool) -> dict[str, int]:
    """Stored bytes of each role on the rank."""
    own = stage_layers(len(shape.layers), split)
    first, last = split.stage == 0, split.stage == split.pp - 1
    found: dict[str, float] = {}
    for tensor in checkpoint.tensors:
        role, share = role_of(tensor.name)
        layer = _LAYER.search(tensor.name)
        if _DRAFT.search(tensor.name) or (
            layer and role not in ("vision", "audio") and int(layer[1]) >= len(shape.layers)
        ):
            if not drafter or not last:
                continue
            role = "drafter"
        elif layer and role not in ("vision", "audio"):
            if int(layer[1]) not in own:
                continue
        elif not _here(role, shape, first, last):
            continue
        found[role] = found.get(role, 0.0) + tensor.bytes * _fraction(share, shape, split)
    return {role: round(size) for role, size in found.items()}


def _here(role: str, shape: ModelShape, first: bool, last: bool) -> bool:
    """Whether a tensor outside the layers is on this stage."""
    if role == "embedding":
        return first or (last and shape.tied)
    if role == "lm_head":
        return last and not shape.tied
    return first or last if role == "small" else first


def _fraction(share: Share, shape: ModelShape, split: Split) -> float:
    """The part of a tensor that one rank holds."""
    if share == "whole" or (share == "tower" and split.whole_towers):
        return 1.0
    if share == "experts" and split.ep:
        return 1 / split.ep
    if share == "kv":
        mixer = next((m for layer in shape.layers for m in layer.mixers if isinstance(m, Attention)), None)
        return kv_heads(mixer, split.heads) / mixer.kv_heads if mixer else 1 / split.heads
    return 1 / split.tp
