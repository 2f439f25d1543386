"""Layers of short convolutions (LFM2) and of lightning attention (MiniMax-Text-01)."""

from __future__ import annotations

import msgspec

from loadpath.checkpoints.hf_config import kinds, mixers, stack
from loadpath.checkpoints.hf_config.family import FAMILIES
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Dense, Layer, ModelShape


def lfm2(f: Fields) -> ModelShape:
    """A convolution keeps a few positions a sequence: too little to plan, so its layers hold no cache here."""
    family = FAMILIES["lfm2_moe" if f.kind == "lfm2_moe" else "lfm2"]
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    kernel = f.integer("conv_L_cache", default=3)
    convolution = 4 * hidden * hidden + hidden * kernel + (5 * hidden if f.flag("conv_bias") else 0)
    layers = []
    for index, kind in enumerate(kinds.kinds(f, family, count)):
        layer = stack.layer(f, family, kind, index, count)
        parts = tuple(Dense(_width(f, part.width)) if isinstance(part, Dense) else part for part in layer.feeds)
        other = convolution if kind == "linear" else 0
        layers.append(Layer(mixers=layer.mixers, feeds=parts, norms=layer.norms, other=other))
    return stack.around(
        f, family, tuple(layers), note="the state of short convolutions is left out (a few KiB a request)"
    )


def _width(f: Fields, stated: int) -> int:
    """LFM2 states the width before it is cut to two thirds and rounded."""
    if f.kind == "lfm2_moe" or not f.flag("block_auto_adjust_ff_dim", default=True):
        return stated
    width = int(f.number("block_ffn_dim_multiplier", default=1.0) * int(2 * stated / 3))
    multiple = f.integer("block_multiple_of", default=256)
    return -(-width // multiple) * multiple


def minimax(f: Fields) -> ModelShape:
    """Lightning layers: fused q, k, v, an output gate, a norm; their state is one square per head."""
    family = FAMILIES["minimax"]
    shape = stack.decoder(f, family)
    listed = f.items("attn_type_list") or [int(kind == "full_attention") for kind in f.items("layer_types")]
    if not listed:
        listed = [index % 2 == 0 for index in range(len(shape.layers))]
    width = mixers.head_dim(f) * f.integer(*mixers.HEADS)
    lightning = 5 * shape.hidden * width + width
    attention = (mixers.attention(f, family, "full"),)
    layers = tuple(
        msgspec.structs.replace(layer, mixers=attention)
        if full
        else msgspec.structs.replace(layer, mixers=(), other=lightning)
        for layer, full in zip(shape.layers, listed, strict=False)
    )
    return msgspec.structs.replace(shape, layers=layers, note="the state of lightning attention is left out")
