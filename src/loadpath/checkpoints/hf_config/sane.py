"""Figures that no model has: a damaged configuration is refused where it is read, not where the arithmetic breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.core.shape import Attention, CompressedAttention, Experts, GatedDelta, LatentAttention, Layer, ModelShape

_KEYS = {
    "hidden": "hidden_size", "vocab": "vocab_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim", "kv_rank": "kv_lora_rank", "count": "num_experts", "active": "num_experts_per_tok",
}  # fmt: skip
"""A field of a shape → the configuration key that most families state it with."""
_NEEDED: dict[type, tuple[str, ...]] = {
    Attention: ("heads", "kv_heads", "head_dim"), LatentAttention: ("heads", "kv_rank"),
    CompressedAttention: ("heads", "head_dim"), GatedDelta: ("k_heads", "v_heads", "k_dim", "v_dim"),
    Experts: ("count", "active"),
}  # fmt: skip


def check(shape: ModelShape, where: str) -> None:
    """Raises ModelError, naming key and value, where a size is negative or one that must be there is 0."""
    for name in ("hidden", "vocab"):
        _positive(shape, name, where)
    for layer in dict.fromkeys((*shape.layers, *shape.encoder)):
        _check_layer(layer, where)


def _check_layer(layer: Layer, where: str) -> None:
    for part in (*layer.mixers, *layer.feeds):
        for name in _NEEDED.get(type(part), ()):
            _positive(part, name, where)
        for name, value in _integers(part):
            if value < 0:
                raise ModelError(f"{where}: {_KEYS.get(name, name)} is {value}, which no model has")
        if isinstance(part, Experts) and part.active > part.count:
            raise ModelError(f"{where}: {part.active} of {part.count} experts are used per token, which cannot be")


def _positive(part: Any, name: str, where: str) -> None:
    value = getattr(part, name)
    if value <= 0:
        raise ModelError(f"{where}: {_KEYS.get(name, name)} is {value}, which no model has")


def _integers(part: msgspec.Struct) -> Iterator[tuple[str, int]]:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, value
