"""Models that read a part of their cache: DeepSeek-V4, GLM-5-Next, LongCat, MiniMax-M3 and Step 3.5's windows, MiMo.

Parameter counts follow the model classes of `transformers`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.checkpoints.hf_config import feeds, kinds, mixers, rope, stack
from loadpath.checkpoints.hf_config.family import FAMILIES, Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Attention, CompressedAttention, Dense, Experts, Layer, ModelShape, Rope

_V4 = Family(windows="never", router_bias=True)
_RATIOS = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4, "sliding_attention": 0}


def deepseek_v4(f: Fields) -> ModelShape:
    """Compressed attention with hyper-connections; the first layers route by hash."""
    count = stack.layer_count(f)
    routed = feeds.experts(f, _V4)
    hashed = msgspec.structs.replace(routed, router_bias=False)
    listed = f.items("mlp_layer_types")
    first = listed.count("hash_moe") if listed else f.integer("num_hash_layers", default=3)
    layers = tuple(
        Layer(mixers=(_compressed(f, ratio),), feeds=(hashed if index < first else routed,), norms=2)
        for index, ratio in enumerate(_ratios(f, count))
    )
    width = f.integer("qk_rope_head_dim")
    return stack.around(
        f, _V4, layers, hyper_connections=f.integer("hc_mult", default=0), rope=(Rope(rope.positions(f), width),)
    )


def _ratios(f: Fields, count: int) -> list[int]:
    stated = f.items("compress_ratios")
    if stated:
        return [int(ratio) for ratio in stated[:count]]
    rates: dict[str, Any] = {**_RATIOS, **(f.value("compress_rates") or {})}
    listed = f.items("layer_types")
    if listed:
        return [int(rates[kind]) for kind in listed[:count]]
    return [128 if index < 2 or index % 2 else 4 for index in range(count)]


def _compressed(f: Fields, ratio: int) -> CompressedAttention:
    indexed = ratio == _RATIOS["compressed_sparse_attention"]
    return CompressedAttention(
        heads=f.integer(*mixers.HEADS),
        head_dim=f.integer("head_dim"),
        rope_dim=f.integer("qk_rope_head_dim"),
        q_rank=f.integer("q_lora_rank"),
        window=kinds.window(f),
        ratio=ratio,
        o_groups=f.integer("o_groups"),
        o_rank=f.integer("o_lora_rank"),
        index_heads=f.integer("index_n_heads") if indexed else 0,
        index_dim=f.integer("index_head_dim") if indexed else 0,
    )


def glm5_next(f: Fields) -> ModelShape:
    """Latent attention without positions beside KDA layers, with hyper-connections."""
    family = Family(windows="never", router_bias=True, linear="kda", rope=False, state_float32=True)
    return msgspec.structs.replace(stack.decoder(f, family), hyper_connections=f.integer("hc_mult", default=0))


def longcat_flash(f: Fields) -> ModelShape:
    """Two latent attentions and two dense blocks a layer, beside one mixture with experts that do nothing."""
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    idle = f.integer("zero_expert_num", default=0)
    mixture = Experts(
        f.integer("n_routed_experts"), f.integer("moe_topk"), f.integer("expert_ffn_hidden_size"), router_bias=True
    )
    dense = Dense(f.integer("ffn_hidden_size"))
    layer = Layer(
        mixers=(mixers.latent(f), mixers.latent(f)), feeds=(mixture, dense, dense), norms=4, other=idle * hidden
    )
    return stack.around(f, Family(windows="never"), (layer,) * count)


def mimo_v2_flash(f: Fields) -> ModelShape:
    """Window layers with twice the key and value heads, and sinks."""
    family = Family(router_bias=True, qkv_bias="attention_bias", mtp_layers=3)
    count = stack.layer_count(f)
    listed = f.items("hybrid_layer_pattern")  # 1: window
    if listed:
        order: tuple[kinds.Kind, ...] = tuple("sliding" if mark else "full" for mark in listed[:count])
    elif f.items("layer_types"):
        order = kinds.kinds(f, family, count)
    else:
        order = tuple("sliding" if index and (index + 1) % 6 else "full" for index in range(count))
    layers = tuple(
        Layer(mixers=(_mimo_attention(f, family, kind),), feeds=_mimo_feeds(f, family, index, count))
        for index, kind in enumerate(order)
    )
    return stack.around(f, family, layers)


def _mimo_attention(f: Fields, family: Family, kind: kinds.Kind) -> Attention:
    full = mixers.attention(f, family, "full")
    value = f.integer("v_head_dim", default=0)
    if kind == "full":
        return msgspec.structs.replace(full, v_head_dim=value)
    return msgspec.structs.replace(
        full,
        heads=f.integer("swa_num_attention_heads", default=full.heads),
        kv_heads=f.integer("swa_num_key_value_heads", default=2 * full.kv_heads),
        head_dim=f.integer("swa_head_dim", default=full.head_dim),
        v_head_dim=f.integer("swa_v_head_dim", default=value),
        window=f.integer("sliding_window_size", "sliding_window"),
        sinks=f.flag("add_swa_attention_sink_bias", default=True),
    )


def _mimo_feeds(f: Fields, family: Family, index: int, count: int) -> tuple[Dense | Experts, ...]:
    if not f.states("mlp_layer_types", "moe_layer_freq"):
        return (feeds.experts(f, family),) if index else (Dense(f.integer("intermediate_size")),)
    return feeds.feeds(f, family, "full", index, count)


def minimax_m3(f: Fields) -> ModelShape:
    """Grouped attention whose sparse layers keep the keys of an indexer of blocks beside the cache."""
    family = msgspec.structs.replace(FAMILIES["minimax_m2"], qk_norm="head")
    count = stack.layer_count(f)
    listed = f.items("layer_types")
    section = f.section("sparse_attention_config") or f
    plain = mixers.attention(f, family, "full")
    sparse = msgspec.structs.replace(
        plain,
        index_heads=section.integer("index_n_heads", "sparse_num_index_heads", default=4),
        index_dim=section.integer("index_head_dim", "sparse_index_dim", default=128),
    )
    marks = (
        section.items("sparse_attention_freq") or [kind == "minimax_m3_sparse" for kind in listed] or [False] * count
    )
    layers = tuple(
        Layer(mixers=(sparse if marks[index] else plain,), feeds=feeds.feeds(f, family, "full", index, count))
        for index in range(count)
    )
    return stack.around(f, family, layers)


def step3p5(f: Fields) -> ModelShape:
    """Window layers with more query heads, a gate per head."""
    family = Family(qk_norm="head", router_bias=True)
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    other = f.value("attention_other_setting") or {}
    kv_heads = f.integer("num_attention_groups", *mixers.KV_HEADS)
    heads = f.integer("num_attention_heads")
    sliding = f.integer("num_sliding_attention_heads", default=int(other.get("num_attention_heads") or heads))
    layers = []
    for index, kind in enumerate(kinds.kinds(f, family, count)):
        plain = mixers.attention(f, family, kind)
        own = sliding if kind == "sliding" else heads
        attention = msgspec.structs.replace(plain, heads=own, kv_heads=kv_heads)
        parts = feeds.feeds(f, family, kind, index, count)
        layers.append(Layer(mixers=(attention,), feeds=parts, other=hidden * own))
    return stack.around(f, family, tuple(layers))


def ernie4_5_vl(f: Fields) -> ModelShape:
    """ERNIE 4.5 VL: experts for text and for images side by side, with shared experts of the text's width."""
    family = Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", windows="never")
    count = stack.layer_count(f)
    widths = [int(width) for width in f.items("moe_intermediate_size")]
    numbers = f.items("moe_num_experts") or [f.integer("moe_num_experts")] * len(widths)
    active = f.integer("moe_k", default=6)
    shared = f.integer("moe_num_shared_experts", default=0) * widths[0]
    mixtures = tuple(
        Experts(int(number), active, width, shared_width=0 if index else shared, router_bias=True)
        for index, (number, width) in enumerate(zip(numbers, widths, strict=True))
    )
    attention = mixers.attention(f, family, "full")
    dense = (Dense(f.integer("intermediate_size"), bias=f.flag("use_bias")),)
    sparse = f.items("mlp_layer_types") or ["sparse" if index else "dense" for index in range(count)]
    layers = tuple(Layer(mixers=(attention,), feeds=dense if kind == "dense" else mixtures) for kind in sparse[:count])
    return stack.around(f, family, layers)
