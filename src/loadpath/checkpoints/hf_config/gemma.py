"""Gemma 3n and Gemma 4: shared caches, heads of two widths, an embedding of its own for every layer.

Parameter counts follow the model classes of `transformers` (gemma3n, gemma4).
"""

from __future__ import annotations

import msgspec

from loadpath.checkpoints.hf_config import kinds, mixers, rope, stack
from loadpath.checkpoints.hf_config.family import Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Attention, Dense, Experts, FeedForward, Layer, ModelShape, Rope

GLOBAL_HEAD_DIM = 512
"""Gemma 4: width of the heads of full-attention layers unless stated."""
_GEMMA3N = Family(qk_norm="head", norms=4, windows="pattern", pattern=5, tied=True)
_GEMMA4 = Family(qk_norm="head", norms=4, windows="pattern", pattern=6, tied=True)


def gemma3n(f: Fields) -> ModelShape:
    """AltUp (predict and correct), Laurel (a low-rank side path) and per-layer inputs beside a Gemma 3 layer."""
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    paths, rank = f.integer("altup_num_inputs", default=4), f.integer("laurel_rank", default=64)
    altup = hidden + paths * paths + paths**3 + paths * hidden + hidden
    laurel = 2 * rank * hidden + hidden
    own = count - f.integer("num_kv_shared_layers", default=0)
    # Files and engines hold key and value projections of the layers that read an earlier cache, unused.
    plain = mixers.attention(f, _GEMMA3N, "full")
    unused = 2 * plain.kv_heads * plain.head_dim * hidden + plain.head_dim
    widths = f.per_layer(count, "intermediate_size")
    layers = tuple(
        Layer(
            mixers=(_reusing(mixers.attention(f, _GEMMA3N, kind), index >= own),),
            feeds=(Dense(widths[index]),),
            norms=4,
            other=altup + laurel + (unused if index >= own else 0),
        )
        for index, kind in enumerate(kinds.kinds(f, _GEMMA3N, count))
    )
    return stack.around(f, _GEMMA3N, layers, other=2 * (paths - 1) * hidden * hidden, **_per_layer_inputs(f))


def gemma4(f: Fields) -> ModelShape:
    """Window layers with narrow heads, full layers with wide ones; experts beside the dense block in the MoE model."""
    count = stack.layer_count(f)
    own = count - f.integer("num_kv_shared_layers", default=0)
    listed = list(kinds.kinds(f, _GEMMA4, count))
    listed[-1] = "full"  # the code insists
    layers = tuple(_gemma4_layer(f.of_layer(index), kind, shared=index >= own) for index, kind in enumerate(listed))
    shape = stack.around(f, _GEMMA4, layers, **_per_layer_inputs(f))
    limit, narrow = rope.positions(f), mixers.head_dim(f)
    wide = f.integer("global_head_dim", default=GLOBAL_HEAD_DIM)
    return msgspec.structs.replace(shape, rope=(Rope(limit, narrow), Rope(limit, wide)))


def _gemma4_layer(f: Fields, kind: kinds.Kind, *, shared: bool) -> Layer:
    attention = mixers.attention(f, _GEMMA4, kind)
    if kind == "full":
        same = f.flag("attention_k_eq_v")
        kv_heads = f.integer("num_global_key_value_heads", default=attention.kv_heads) if same else attention.kv_heads
        stated = "per_layer_config" in f.data
        wide = attention.head_dim if stated else f.integer("global_head_dim", default=GLOBAL_HEAD_DIM)
        attention = msgspec.structs.replace(attention, kv_heads=kv_heads, head_dim=wide, value_is_key=same)
    width = f.integer("intermediate_size") * (2 if shared and f.flag("use_double_wide_mlp") else 1)
    parts: tuple[FeedForward, ...] = (Dense(width),)
    norms, other = 4, 0
    if f.flag("enable_moe_block"):
        count = f.integer("num_experts")
        parts += (Experts(count, f.integer("top_k_experts"), f.integer("moe_intermediate_size")),)
        norms, other = 7, f.integer(*mixers.HIDDEN) + count  # scales of the router
    return Layer(mixers=(_reusing(attention, shared),), feeds=parts, norms=norms, other=other)


def _reusing(attention: Attention, shared: bool) -> Attention:
    return msgspec.structs.replace(attention, reuses_cache=True) if shared else attention


def _per_layer_inputs(f: Fields) -> dict[str, object]:
    width = f.integer("hidden_size_per_layer_input", default=0)
    if not width:
        return {}
    return {
        "per_layer_embedding": width,
        "per_layer_vocab": f.integer("vocab_size_per_layer_input", "vocab_size"),
    }
