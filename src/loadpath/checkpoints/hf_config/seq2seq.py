"""Models with cross attention: T5, BART, Whisper, and the text model of Llama 3.2 Vision.

A decoder layer attends to itself and to the encoder's output; the encoder's layers keep no cache.
"""

from __future__ import annotations

import msgspec

from loadpath.checkpoints.hf_config import mixers, stack
from loadpath.checkpoints.hf_config.family import FAMILIES, Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Attention, Dense, Layer, ModelShape

MEL_KERNEL = 3
"""Width of Whisper's two convolutions over the spectrum."""


def t5(f: Fields) -> ModelShape:
    """T5, mT5, UMT5: relative positions (one table a stack; UMT5 one a layer), no biases."""
    width, heads, hidden = f.integer("d_kv"), f.integer("num_heads"), f.integer("d_model")
    gated = "gated" in f.text("feed_forward_proj", default="gated-gelu" if f.kind != "t5" else "relu")
    feed = Dense(f.integer("d_ff"), gated=gated)
    count = f.integer("num_layers")
    decoders = f.integer("num_decoder_layers", default=count)
    attention = Attention(heads, heads, width)
    buckets = f.integer("relative_attention_num_buckets", default=32) * heads
    each = buckets if f.kind == "umt5" else 0
    outside = hidden + (0 if each else 2 * buckets)  # the encoder's last norm, and a table for each stack
    family = Family(windows="never", rope=False, tied=True)
    encoder = Layer(mixers=(attention,), feeds=(feed,), norms=2, other=each)
    decoder = Layer(
        mixers=(attention, msgspec.structs.replace(attention, cross=True)), feeds=(feed,), norms=3, other=each
    )
    shape = stack.around(f, family, (decoder,) * decoders, encoder=(encoder,) * count, other=outside)
    return msgspec.structs.replace(shape, tied=f.flag("tie_word_embeddings", default=f.kind == "t5"))


def bart(f: Fields) -> ModelShape:
    """BART and mBART: learned positions for both stacks, biases everywhere, norms of the embeddings."""
    hidden = f.integer("d_model")
    rows = f.integer("max_position_embeddings") + 2
    norms = 2 * 2 * hidden  # of the two embeddings
    if f.kind == "mbart":
        norms += 2 * hidden  # mBART ends its encoder with one more
    final = 0 if f.kind == "mbart" else -2 * hidden  # BART's decoder ends without a norm
    shape = _stacks(f, learned=2 * rows, other=norms + final)
    return msgspec.structs.replace(shape, tied=True)


def whisper(f: Fields) -> ModelShape:
    """Whisper: convolutions and fixed positions before the encoder, learned ones in the decoder; keys have no bias."""
    hidden, mels = f.integer("d_model"), f.integer("num_mel_bins", default=80)
    convolutions = MEL_KERNEL * hidden * (mels + hidden) + 2 * hidden
    positions = f.integer("max_source_positions", default=1500) * hidden
    shape = _stacks(
        f, learned=f.integer("max_target_positions"), other=convolutions + positions + 2 * hidden, keyless=True
    )
    return msgspec.structs.replace(shape, tied=True, max_position=f.integer("max_target_positions"))


def _stacks(f: Fields, *, learned: int, other: int, keyless: bool = False) -> ModelShape:
    """An encoder and a decoder with layer norms and biases. `keyless`: key projections have no bias."""
    hidden = f.integer("d_model")
    heads, inside = f.integer("decoder_attention_heads"), f.integer("encoder_attention_heads")
    own = Attention(heads, heads, hidden // heads, qkv_bias=True, o_bias=True)
    less = -hidden if keyless else 0  # the vocabulary knows biases of all three projections or none
    decoder = Layer(
        mixers=(own, msgspec.structs.replace(own, cross=True)),
        feeds=(Dense(f.integer("decoder_ffn_dim"), gated=False, bias=True),),
        norms=3,
        other=2 * less,
    )
    encoder = Layer(
        mixers=(Attention(inside, inside, hidden // inside, qkv_bias=True, o_bias=True),),
        feeds=(Dense(f.integer("encoder_ffn_dim"), gated=False, bias=True),),
        norms=2,
        other=less,
    )
    family = Family(windows="never", rope=False, norm_vectors=2, tied=True)
    return stack.around(
        f, family, (decoder,) * f.integer("decoder_layers"), encoder=(encoder,) * f.integer("encoder_layers"),
        learned_positions=learned, other=other,
    )  # fmt: skip


def mllama(f: Fields) -> ModelShape:
    """Llama 3.2 Vision: some layers attend to the image instead of the text; eight rows of the embedding are its own."""
    family = FAMILIES["llama"]
    count, hidden = stack.layer_count(f), f.integer(*mixers.HIDDEN)
    across = set(f.items("cross_attention_layers") or range(3, count, 5))
    plain = mixers.attention(f, family, "full")
    image = msgspec.structs.replace(plain, cross=True, qk_norm="head")
    feed = (Dense(f.integer("intermediate_size")),)
    layers = tuple(
        Layer(mixers=(image,), feeds=feed, other=2) if index in across else Layer(mixers=(plain,), feeds=feed)
        for index in range(count)
    )
    return stack.around(f, family, layers, other=8 * hidden)
