"""The feed-forward parts of a layer: which layers have experts, and how wide everything is."""

from __future__ import annotations

from loadpath.checkpoints.hf_config.family import Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.kinds import Kind
from loadpath.checkpoints.hf_config.mixers import HIDDEN, switch
from loadpath.core.shape import Dense, Experts, FeedForward

COUNT = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "moe_num_primary_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", "moe_top_k")
WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size")
DENSE = (
    "intermediate_size_mlp",
    "dense_intermediate_size",
    "intermediate_size",
    "ffn_hidden_size",
    "ffn_dim",
    "n_inner",
)
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
SHARED_WIDTH = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
    "share_expert_dim",
)  # fmt: skip

_FOUR_TIMES = frozenset({"gpt2", "gptj", "gpt_bigcode", "bloom", "mpt", "falcon"})
"""Families that need not state the width."""


def has_experts(f: Fields, layer: int, count: int) -> bool:
    """Whether layer `layer` of `count` is a mixture, by whichever key this configuration has for it."""
    if not _first(f, COUNT):
        return False
    listed = f.items("mlp_layer_types")
    if listed:
        return bool(listed[layer] != "dense")
    if enumerated := f.text("moe_layers_enum"):
        return str(layer) in enumerated.split(",")
    if layers := f.items("moe_layers"):
        return layer in layers
    if step := f.value("interleave_moe_layer_step"):
        return (layer + 1) % int(step) == 0
    if period := f.value("expert_layer_period"):
        return layer % int(period) == f.integer("expert_layer_offset", default=0)
    if f.value("moe_layer_interval") is not None:
        last = f.integer("moe_layer_end_index", default=-1)
        start = f.value("moe_layer_start_index")
        first = min(start) if isinstance(start, list) else int(start or 0)
        inside = first <= layer <= (last if last >= 0 else count - 1)
        return inside and (layer + 1) % f.integer("moe_layer_interval") == 0
    frequency = f.value("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(frequency[layer])
    if layer < f.integer("first_k_dense_replace", "num_dense_layers", default=0):
        return False
    if layer in f.items("mlp_only_layers"):
        return False
    step = int(frequency or f.value("decoder_sparse_step") or 1)
    return (layer + 1) % step == 0 if f.value("decoder_sparse_step") else layer % step == 0


def feeds(f: Fields, family: Family, kind: Kind, layer: int, count: int) -> tuple[FeedForward, ...]:
    """The feed-forward parts of layer `layer`."""
    if not family.feeds or (family.bare_layers and kind not in ("mlp", "experts")):
        return ()
    if kind == "experts" or (kind != "mlp" and has_experts(f, layer, count)):
        return (experts(f, family, layer),)
    width = f.integer("shared_intermediate_size", default=0) if f.kind == "granitemoehybrid" else 0
    width = width or dense_width(f, layer)  # Granite without experts keeps the shared block alone
    return (Dense(width, gated=family.gated, bias=switch(f, family.mlp_bias)),) if width else ()


def dense_width(f: Fields, layer: int = 0) -> int:
    """Width of the dense block; four times the model's where the classic keys are null; 0 where there is none."""
    if value := _first(f, DENSE, layer):
        return value
    if any(key in f.data for key in DENSE) or f.kind in _FOUR_TIMES:
        return f.integer("expansion_ratio", default=4) * f.integer(*HIDDEN)
    return f.integer(*DENSE)


def experts(f: Fields, family: Family, layer: int = 0) -> Experts:
    """A mixture with its shared expert."""
    width = _first(f, WIDTH, layer) or f.integer("intermediate_size")
    return Experts(
        count=_first(f, COUNT, layer),
        active=_first(f, ACTIVE, layer) or f.integer(*ACTIVE),
        width=width,
        gated=family.gated,
        latent=f.integer("moe_latent_size", "routed_expert_hidden_size", default=0),
        shared_width=_shared(f, family, width, layer),
        shared_gate=family.shared == "gate" and bool(f.value(*SHARED_WIDTH)),
        router_bias=switch(f, family.router_bias),
        expert_bias=family.expert_bias,
    )


def _shared(f: Fields, family: Family, width: int, layer: int) -> int:
    """Width of all always-on experts together."""
    copies = _first(f, SHARED_COUNT, layer)
    stated = _first(f, SHARED_WIDTH, layer)
    if stated:
        # Nemotron-H states the width of one of them.
        return stated * max(1, copies) if f.states("moe_shared_expert_intermediate_size") else stated
    return width if family.shared == "always" else copies * width


def _first(f: Fields, keys: tuple[str, ...], layer: int = 0) -> int:
    """The first of `keys` that is set: a count for all layers, or one a layer; 0 where unset."""
    value = f.value(*keys)
    if isinstance(value, list):
        value = value[layer] if layer < len(value) else None
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
