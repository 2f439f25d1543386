"""Draft models of the EAGLE kind: one or a few layers that read the target's hidden states and use its embedding.

EAGLE 1 joins embedding and hidden state by one projection before its layers; EAGLE 3 gives both to the attention of its
first layer, after joining three hidden states of the target, and has an output layer of a vocabulary of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from loadpath.checkpoints.hf_config import mixers, stack
from loadpath.checkpoints.hf_config.family import FAMILIES
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Attention, ModelShape

HIDDEN_STATES = 3
"""Layers of the target whose hidden states EAGLE 3 joins."""
_NOTE = "draft model: the target's embedding is used and not counted"


def is_draft(architecture: str, config: Mapping[str, Any]) -> bool:
    """Whether a configuration is that of an EAGLE draft model."""
    return "eagle" in architecture.lower() or "draft_vocab_size" in config or "eagle_config" in config


def eagle(f: Fields, architecture: str) -> ModelShape:
    """The draft model. Its output layer is counted as if tied: there is no embedding beside it."""
    family = FAMILIES.get(f.kind, FAMILIES["llama"])
    shape = stack.decoder(f, family)
    third = "3" in architecture or "draft_vocab_size" in f.data
    hidden = shape.hidden
    joined = f.integer("target_hidden_size", default=hidden)
    if not third:
        joins = 2 * hidden * hidden + (hidden if f.flag("bias") else 0)
        return msgspec.structs.replace(shape, tied=True, vocab=0, other=joins, note=_NOTE)
    first = shape.layers[0]
    attention = next((mixer for mixer in first.mixers if isinstance(mixer, Attention)), None) or mixers.attention(
        f, family, "full"
    )
    wider = hidden * (
        attention.heads * attention.head_dim + attention.kv_heads * (attention.head_dim + attention.value_dim)
    )
    layers = (msgspec.structs.replace(first, other=first.other + wider + hidden), *shape.layers[1:])
    vocab = f.integer("draft_vocab_size", default=shape.vocab)
    other = HIDDEN_STATES * joined * hidden
    return msgspec.structs.replace(shape, layers=layers, tied=True, vocab=vocab, other=other, note=_NOTE)
