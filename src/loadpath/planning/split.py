"""How a model is divided over ranks: tensor, pipeline, expert and data-parallel attention."""

from __future__ import annotations

import msgspec

from loadpath.core.shape import Attention


class Split(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """How a model is divided, and which part of it is looked at.

    `stage` of `pp` pipeline stages; `partition`: layers of each stage where the user set them. `ep`: ranks that share
    the experts (0: their width is divided by `tp`). `attention_tp`: where attention is divided less than the rest
    (data-parallel attention). `whole_towers`: encoders are repeated on every rank. `vocab_multiple`: rows of the
    vocabulary are padded to it.
    """

    tp: int = 1
    pp: int = 1
    stage: int = 0
    ep: int = 0
    attention_tp: int = 0
    partition: tuple[int, ...] = ()
    whole_towers: bool = False
    vocab_multiple: int = 1

    @property
    def heads(self) -> int:
        """Ranks that share the attention heads."""
        return self.attention_tp or self.tp


WHOLE = Split()
"""No split at all: the tensors are the model's parameters."""


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def stage_layers(layers: int, split: Split) -> range:
    """Layers of the split's stage. A remainder goes to the stages before the last, which also holds the head."""
    sizes = list(split.partition)
    if len(sizes) != split.pp or sum(sizes) != layers:
        sizes = [layers // split.pp] * split.pp
        for extra in range(layers % split.pp):
            sizes[split.pp - 2 - extra if split.pp > 1 else 0] += 1
    start = sum(sizes[: split.stage])
    return range(start, start + sizes[split.stage])


def kv_heads(mixer: Attention, tp: int) -> int:
    """KV heads that one rank holds: at least one, so that they are repeated where ranks outnumber them."""
    return max(1, ceil_div(mixer.kv_heads, tp))
