"""Architectures with keys or layouts of their own: Falcon, ChatGLM, Qwen 1, DBRX, Persimmon, DeciLM, Zamba2."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config import mixers, stack
from loadpath.checkpoints.hf_config.family import FAMILIES, Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Attention, Dense, Experts, FeedForward, Layer, Mixer, ModelShape, Rope


def falcon(f: Fields) -> ModelShape:
    """Falcon 7B, 40B/180B ("new decoder": grouped heads, two norms) and the Falcon 3-like RW models."""
    bias = f.flag("bias")
    new = f.flag("new_decoder_architecture")
    two = (f.integer("num_ln_in_parallel_attn", default=2) == 2) if new else not f.flag("parallel_attn", default=True)
    heads = f.integer(*mixers.HEADS)
    kv_heads = 1 if f.flag("multi_query", default=True) and not new else heads
    if new:
        kv_heads = f.integer("num_kv_heads", default=heads)
    hidden = f.integer(*mixers.HIDDEN)
    layer = Layer(
        mixers=(Attention(heads, kv_heads, hidden // heads, qkv_bias=bias, o_bias=bias),),
        feeds=(Dense(int(f.data.get("ffn_hidden_size") or 4 * hidden), gated=False, bias=bias),),
        norms=2 if two else 1,
    )
    family = Family(norm_vectors=2, rope=not f.flag("alibi"), tied=True, windows="never")
    return stack.around(f, family, (layer,) * stack.layer_count(f))


def chatglm(f: Fields) -> ModelShape:
    """ChatGLM 2 to GLM-4-9B under the old code: `multi_query_group_num` key heads, half of the head is rotary."""
    heads, hidden = f.integer(*mixers.HEADS), f.integer(*mixers.HIDDEN)
    kv_heads = f.integer("multi_query_group_num", default=heads) if f.flag("multi_query_attention") else heads
    bias = f.flag("add_bias_linear")
    layer = Layer(
        mixers=(
            Attention(heads, kv_heads, f.integer("kv_channels", default=hidden // heads),
                      qkv_bias=bias or f.flag("add_qkv_bias"), o_bias=bias),
        ),
        feeds=(Dense(f.integer("ffn_hidden_size"), bias=bias),),
    )  # fmt: skip
    shape = stack.around(f, Family(windows="never"), (layer,) * stack.layer_count(f))
    return msgspec.structs.replace(shape, rope=tuple(Rope(x.rows, x.width // 2) for x in shape.rope))


def qwen1(f: Fields) -> ModelShape:
    """Qwen 1: the stated width is that of gate and up together."""
    hidden, heads = f.integer(*mixers.HIDDEN), f.integer(*mixers.HEADS)
    layer = Layer(
        mixers=(Attention(heads, heads, f.integer("kv_channels", default=hidden // heads), qkv_bias=True),),
        feeds=(Dense(f.integer("intermediate_size") // 2),),
    )
    return stack.around(f, Family(windows="never"), (layer,) * stack.layer_count(f))


def dbrx(f: Fields) -> ModelShape:
    attn, ffn = f.section("attn_config"), f.section("ffn_config")
    if attn is None or ffn is None:
        raise ModelError(f"{f.where}: no `{'attn_config' if attn is None else 'ffn_config'}`")
    heads, hidden = f.integer("n_heads"), f.integer("d_model")
    mixture = Experts(
        ffn.integer("moe_num_experts", default=4), ffn.integer("moe_top_k", default=1), ffn.integer("ffn_hidden_size")
    )
    layer = Layer(mixers=(Attention(heads, attn.integer("kv_n_heads", default=1), hidden // heads),), feeds=(mixture,))
    return stack.around(f, Family(windows="never"), (layer,) * stack.layer_count(f))


def persimmon(f: Fields) -> ModelShape:
    """Layer norms of query and key have a bias."""
    shape = stack.decoder(f, FAMILIES["persimmon"])
    if not f.flag("qk_layernorm", default=True):
        return shape
    extra = 4 * mixers.head_dim(f)
    return msgspec.structs.replace(
        shape, layers=tuple(msgspec.structs.replace(layer, other=extra) for layer in shape.layers)
    )


def nemotron_nas(f: Fields) -> ModelShape:
    """DeciLM / Llama-Nemotron: every layer states its own block, some have no attention or no feed-forward."""
    blocks: list[Any] = f.items("block_configs")
    if not blocks:
        return stack.decoder(f, FAMILIES["llama"])
    heads, hidden = f.integer(*mixers.HEADS), f.integer(*mixers.HIDDEN)
    layers = tuple(_nas_layer(f, block, heads, hidden) for block in blocks)
    return stack.around(f, FAMILIES["llama"], layers)


def _nas_layer(f: Fields, block: dict[str, Any], heads: int, hidden: int) -> Layer:
    attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
    mixer: tuple[Mixer, ...] = ()
    feed: tuple[FeedForward, ...] = ()
    other = 0
    if attention.get("replace_with_linear"):
        other += hidden * hidden
    elif not attention.get("no_op"):
        mixer = (Attention(heads, heads // int(attention.get("n_heads_in_group") or 1), mixers.head_dim(f)),)
    if ffn.get("replace_with_linear"):
        other += hidden * hidden
    elif not ffn.get("no_op"):
        stated = ffn.get("intermediate_size")
        feed = (Dense(int(stated) if stated else _multiplied(float(ffn["ffn_mult"]), hidden)),)
    norms = int(bool(mixer) or bool(attention.get("replace_with_linear"))) + int(
        bool(feed) or bool(ffn.get("replace_with_linear"))
    )
    return Layer(mixers=mixer, feeds=feed, norms=norms, other=other)


def _multiplied(factor: float, hidden: int) -> int:
    """Width by DeciLM's rule: two thirds of the product, rounded up to 256."""
    width = int(2 * factor * hidden / 3)
    return -(-width // 256) * 256


def zamba2(f: Fields) -> ModelShape:
    """Mamba 2 everywhere; every few layers a transformer block, whose weights the layers share, reads the stream
    beside the embedding. The shared weights are counted once, outside the layers; each use keeps a cache of its own."""
    family = Family(windows="never", linear="mamba2", norms=1, rope=f.flag("use_mem_rope"), tied=True)
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    marked = set(f.items("hybrid_layer_ids")) or {
        index for index, kind in enumerate(f.items("layers_block_type", "layer_types")) if kind == "hybrid"
    }
    wide, heads = 2 * hidden, f.integer(*mixers.HEADS)
    attention = Attention(
        heads, f.integer("num_key_value_heads", default=heads), f.integer("attention_head_dim", default=wide // heads),
        borrowed=True,
    )  # fmt: skip
    inner, rank = f.integer("intermediate_size", default=4 * hidden), f.integer("adapter_rank", default=128)
    span = heads * attention.head_dim
    block = wide * 3 * span + span * hidden + 3 * hidden * inner + wide + hidden
    own = hidden * hidden + rank * hidden + 2 * inner * rank
    if f.flag("use_shared_attention_adapter"):
        own += 3 * rank * (wide + span)
    mamba = mixers.mixers(f, family, "linear")
    layers = tuple(
        Layer(mixers=(attention, *mamba), norms=1, other=own) if index in marked else Layer(mixers=mamba, norms=1)
        for index in range(count)
    )
    return stack.around(f, family, layers, other=block * f.integer("num_mem_blocks", default=1))
