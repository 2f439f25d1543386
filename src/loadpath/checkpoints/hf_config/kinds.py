"""What each layer is: full, sliding or chunked attention, recurrence, feed-forward alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config.family import Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.rope import positions

Kind = Literal["full", "sliding", "chunked", "linear", "parallel", "mlp", "experts", "none"]

_SPELLINGS: dict[str, Kind] = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "global": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full", "mla": "full", "full": "full", "sparse_attention": "full", "minimax_m3_sparse": "full",
    "sliding_attention": "sliding", "sliding_window": "sliding", "local_attention": "sliding", "local": "sliding",
    "swa": "sliding", "sliding": "sliding", "chunked_attention": "chunked", "linear_attention": "linear", "mamba": "linear",
    "mamba2": "linear", "conv": "linear", "recurrent": "linear", "linear": "linear", "hybrid": "parallel",
    "mlp": "mlp", "moe": "experts", "E": "experts", "M": "linear", "*": "full", "-": "mlp",
}  # fmt: skip


def _either(marks: Iterable[bool], yes: Kind, no: Kind) -> tuple[Kind, ...]:
    """One kind for each mark that is set, another for the rest."""
    return tuple(yes if mark else no for mark in marks)


def kinds(f: Fields, family: Family, count: int) -> tuple[Kind, ...]:
    """One kind a layer, by the list or pattern that the configuration states, else by the family's rule."""
    if family.parallel:
        return _either((True for _ in range(count)), "parallel", "full")
    listed = f.items("layer_types", "layers_block_type")
    if listed:
        return _spelt(f, listed, count)
    pattern = f.text("hybrid_override_pattern")
    if pattern:
        return _spelt(f, list(pattern), count)
    if f.states("attn_layer_indices"):
        full = set(f.items("attn_layer_indices"))
        return _either((i in full for i in range(count)), "full", "linear")
    if f.states("full_attn_idxs"):
        full = set(f.items("full_attn_idxs"))
        return _either((i in full for i in range(count)), "full", "linear")
    if section := f.section("linear_attn_config"):
        full = set(section.items("full_attn_layers"))  # counted from 1
        return _either((i + 1 in full for i in range(count)), "full", "linear")
    if family.linear in ("mamba1", "mamba2", "gdn"):
        return _recurrent(f, family, count)
    return _windows(f, family, count)


def _spelt(f: Fields, listed: list[Any], count: int) -> tuple[Kind, ...]:
    if len(listed) < count:
        raise ModelError(f"{f.where}: the list of layer types has {len(listed)} entries for {count} layers")
    for word in listed[:count]:
        if word not in _SPELLINGS:
            raise ModelError(f"{f.where}: a layer of unknown type {word!r}")
    return tuple(_SPELLINGS[word] for word in listed[:count])


def _recurrent(f: Fields, family: Family, count: int) -> tuple[Kind, ...]:
    """Hybrids that state a period."""
    if f.value("attn_layer_period"):
        period, offset = f.integer("attn_layer_period"), f.integer("attn_layer_offset", default=0)
        return _either((i % period == offset for i in range(count)), "full", "linear")
    if f.value("full_attention_interval") or family.linear == "gdn":
        period = f.integer("full_attention_interval", default=4)
        return _either(((i + 1) % period == 0 for i in range(count)), "full", "linear")
    return _either((True for _ in range(count)), "linear", "full")


def _windows(f: Fields, family: Family, count: int) -> tuple[Kind, ...]:
    full = _either((True for _ in range(count)), "full", "full")
    if f.value("attention_chunk_size"):
        spared = f.items("no_rope_layers")  # 0: no rotary positions, and attention over everything
        if len(spared) >= count:
            return _either((bool(rotary) for rotary in spared[:count]), "chunked", "full")
        every = f.integer("no_rope_layer_interval", default=4) or 4
        return _either(((i + 1) % every == 0 for i in range(count)), "full", "chunked")
    if not window(f) or family.windows == "never":
        return full
    if family.windows == "upper":
        if not f.flag("use_sliding_window"):
            return full
        start = f.integer("max_window_layers", default=count)
        return _either((i >= start for i in range(count)), "sliding", "full")
    if family.windows == "all":
        return _either((True for _ in range(count)), "sliding", "full")
    every_value = f.value("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
    if isinstance(every_value, str):  # EXAONE 4: "LLLG"
        return _either((every_value[i % len(every_value)] == "G" for i in range(count)), "full", "sliding")
    every = int(cast("int", every_value) or family.pattern)
    if not every:
        return full
    return _either(((i + 1) % every == 0 for i in range(count)), "full", "sliding")


def window(f: Fields) -> int:
    """Tokens of the sliding window; 0: none, or one as long as the longest sequence."""
    width = f.integer("sliding_window", "sliding_window_size", "attention_window_size", default=0)
    return 0 if 0 < positions(f) <= width else width
