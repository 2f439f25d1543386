"""A decoder from its configuration: the layers, and everything around them."""

from __future__ import annotations

from typing import cast

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config import feeds, kinds, mixers, rope
from loadpath.checkpoints.hf_config.family import Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Drafter,
    Dtype,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    ModelShape,
)

MOST_LAYERS = 10_000
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
DRAFTED = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")


_SAVED_IN_32 = frozenset({"gpt2", "gpt_neo", "gpt_neox", "t5", "mt5", "bart", "mbart", "whisper", "bloom"})
"""Families older than half precision: their files hold 32 bits where the configuration names no type."""


def decoder(f: Fields, family: Family) -> ModelShape:
    """The shape of a decoder-only model; `id`, `architecture` and the like are filled in by the caller."""
    count = layer_count(f)
    stack = tuple(
        layer(f, family, kind, index, count) for index, kind in enumerate(kinds.kinds(f, family, count))
    )  # equal layers become one object in `around`
    return around(f, family, stack)


def layer_count(f: Fields) -> int:
    if f.value(*LAYERS) is None and (listed := f.items("layer_types", "layers_block_type")):
        return len(listed)
    if f.value(*LAYERS) is None and (pattern := f.text("hybrid_override_pattern")):
        return len(pattern)
    count = f.integer(*LAYERS)
    if not 0 < count <= MOST_LAYERS:
        raise ModelError(f"{f.where}: {count:,} layers")
    return count


def layer(f: Fields, family: Family, kind: kinds.Kind, index: int, count: int) -> Layer:
    f = f.of_layer(index)
    norms = 1 if family.parallel_key and f.flag(family.parallel_key) else family.norms
    return Layer(
        mixers=mixers.mixers(f, family, kind, index),
        feeds=feeds.feeds(f, family, kind, index, count),
        norms=norms,
        other=family.layer_other + mixers.unnamed(f, family, kind),
    )


def around(f: Fields, family: Family, stack: tuple[Layer, ...], **changes: object) -> ModelShape:
    """The shape with these layers. `changes`: fields that the family sets itself."""
    one: dict[Layer, Layer] = {}
    hidden, limit = f.integer(*mixers.HIDDEN), rope.positions(f)
    width = _rotary_width(stack)
    unplaced = f.text("position_embedding_type") == "nope"
    shape = ModelShape(
        id="",
        family=f.kind,
        architecture="",
        hidden=hidden,
        vocab=f.integer("vocab_size", "padded_vocab_size"),
        tied=f.flag("tie_word_embeddings", default=family.tied),
        max_position=rope.longest(f),
        dtype=dtype(f),
        layers=tuple(one.setdefault(item, item) for item in stack),
        rope=rope.tables(f, width, local=family.local_rope) if family.rope and width and not unplaced else (),
        learned_positions=0 if family.learned_positions is None else limit + family.learned_positions,
        norm_vectors=family.norm_vectors,
        lm_head_bias=mixers.switch(f, family.lm_head_bias),
        other=hidden * family.norm_vectors if family.scaled_embedding_norm else 0,
        state_dtype=state_dtype(f, family, stack),
        drafter=drafter(f, family),
        basis="config",
    )
    return msgspec.structs.replace(shape, **changes)


def _rotary_width(stack: tuple[Layer, ...]) -> int:
    """Head width that rotary positions apply to; the widest where heads differ."""
    widths = [0]
    for mixer in (mixer for item in stack for mixer in item.mixers):
        if isinstance(mixer, Attention):
            widths.append(mixer.head_dim)
        elif isinstance(mixer, (LatentAttention, CompressedAttention)):
            widths.append(mixer.rope_dim)
    return max(widths)


def drafter(f: Fields, family: Family) -> Drafter | None:
    layers = f.integer(*DRAFTED, default=family.mtp_layers)
    return Drafter(layers, own_embeddings=family.mtp_own_embeddings) if layers else None


def state_dtype(f: Fields, family: Family, stack: tuple[Layer, ...]) -> Dtype | None:
    """The type of recurrent states; None: the model's own, or no such state."""
    if not any(isinstance(mixer, (GatedDelta, Mamba)) for item in dict.fromkeys(stack) for mixer in item.mixers):
        return None
    stated = f.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    if stated in ("float32", "float16", "bfloat16"):
        return cast("Dtype", stated)
    return "float32" if family.state_float32 else None


def dtype(f: Fields) -> Dtype:
    """The type of unquantised weights; where the configuration leaves it open, that of the family's time."""
    name = f.text("dtype", "torch_dtype").removeprefix("torch.")
    match name:
        case "float32" | "float16" | "bfloat16":
            return name
        case _:
            return "float32" if f.kind in _SAVED_IN_32 else "bfloat16"
