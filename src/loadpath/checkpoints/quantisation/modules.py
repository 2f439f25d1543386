"""Which weights a scheme covers: lists of ignored modules and of targets, against the modules that a shape has.

Lists come as exact names (`lm_head`), parts of names (`mlp.gate`), globs (`*self_attn*`) and regular expressions
(`re:.*self_attn.*`); vendors mix them. Names differ in their prefix (`model.`, `model.language_model.`, `backbone.`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    ModelShape,
    Role,
)

_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "transformer.", "model.")
_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_LATENT = (
    "self_attn.q_a_proj",
    "self_attn.q_b_proj",
    "self_attn.kv_a_proj_with_mqa",
    "self_attn.kv_b_proj",
    "self_attn.o_proj",
)
_INDEXER = ("self_attn.indexer.wq_b", "self_attn.indexer.wk")
_RECURRENT = ("linear_attn.in_proj", "linear_attn.out_proj")
# What other families call the same part; renamed before a list is compared.
_RENAMED = (
    (re.compile(r"(?:^|(?<=[.*]))attn(?=\.|\*|$)"), "self_attn"), (re.compile(r"(?:^|(?<=[.*]))ffn(?=\.|\*|$)"), "mlp"),
    (re.compile(r"^head$"), "lm_head"),
    (re.compile(r"\.(?:block_sparse_moe|feed_forward|moe)(?=\.experts|\.shared)"), ".mlp"),
    (re.compile(r"(?<=[.*])shared_expert(?=\.|\*|$)"), "shared_experts"),
    (re.compile(r"in_proj_(?:qkvz|qkv|z|ba|a|b)$"), "in_proj"),
    (re.compile(r"(?<=\.)(?:mamba|mixer)(?=\.(?:in|out)_proj)"), "linear_attn"),
    (re.compile(r"(?<=\.)mixer(?=\.[qkvo]_proj)"), "self_attn"),
    (re.compile(r"(?<=\.)mixer(?=\.(?:experts|shared_experts|gate_proj|up_proj|down_proj))"), "mlp"),
    (re.compile(r"(?<=experts\.0\.)w1$"), "gate_proj"), (re.compile(r"(?<=experts\.0\.)w2$"), "down_proj"),
    (re.compile(r"(?<=experts\.0\.)w3$"), "up_proj"),
)  # fmt: skip


class Names:
    """A list of module names and patterns, ready to be asked."""

    def __init__(self, entries: Iterable[str]) -> None:
        plain: set[str] = set()
        patterns: list[str] = []
        for entry in entries:
            if entry.startswith("re:"):
                patterns.append(f"(?:{entry[3:]})")
            elif any(mark in entry for mark in "*?["):
                patterns.append(fnmatch.translate(_renamed(entry)))
            else:
                plain.add(_renamed(_bare(entry)))
        self._plain = plain
        self._patterns = [compiled for text in patterns if (compiled := _compiled(text))]

    def __bool__(self) -> bool:
        return bool(self._plain or self._patterns)

    def hold(self, name: str) -> bool:
        """Whether `name` (without prefix: `layers.3.mlp.down_proj`) is in the list, whole or by a part of its path."""
        parts = name.split(".")
        for start in range(len(parts)):
            for end in range(start + 1, len(parts) + 1):
                if ".".join(parts[start:end]) in self._plain:
                    return True
        spellings = (f"model.{name}", f"model.language_model.{name}", name, f"language_model.model.{name}")
        return any(pattern.match(spelling) for pattern in self._patterns for spelling in spellings)


def _bare(entry: str) -> str:
    return next((entry.removeprefix(prefix) for prefix in _PREFIXES if entry.startswith(prefix)), entry)


def _renamed(entry: str) -> str:
    for pattern, word in _RENAMED:
        entry = pattern.sub(word, entry)
    return entry


def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def _feed(name: str, gated: bool) -> tuple[str, ...]:
    parts = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    return tuple(f"{name}.{part}" for part in parts)


def roles_of(layer: Layer) -> dict[Role, tuple[str, ...]]:
    """The quantisable parts of a layer, and its modules of each."""
    found: dict[Role, tuple[str, ...]] = {}
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention | CompressedAttention):
            found["attention"] = _LATENT
        elif isinstance(mixer, Attention):
            found["attention"] = _ATTENTION
        else:
            kda = isinstance(mixer, GatedDelta) and mixer.rule == "kda"
            found["recurrent"] = _ATTENTION if kda else _RECURRENT  # Kimi names both alike
        if isinstance(mixer, LatentAttention | CompressedAttention | Attention) and mixer.index_heads:
            found["indexer"] = _INDEXER
    beside = any(isinstance(feed, Dense) for feed in layer.feeds)
    for feed in layer.feeds:
        if isinstance(feed, Dense):
            found["mlp"] = _feed("mlp", feed.gated)
        elif isinstance(feed, Experts):
            # Where a dense block stands beside the experts (Gemma 4), they are no part of it.
            found["experts"] = _feed("experts.0" if beside else "mlp.experts.0", feed.gated)
            if feed.shared_width:
                found["shared-experts"] = _feed("mlp.shared_experts", feed.gated)
    return found


def present(shape: ModelShape) -> frozenset[Role]:
    """The quantisable roles of the layers of `shape`."""
    return frozenset(role for layer in dict.fromkeys(shape.layers) for role in roles_of(layer))


def chosen(shape: ModelShape, names: Names) -> dict[Role, frozenset[int]]:
    """For each role, the layers in which the list holds all of its modules."""
    found: dict[Role, set[int]] = {role: set() for role in present(shape)}
    if not names:
        return {role: frozenset() for role in found}
    for index, layer in enumerate(shape.layers):
        for role, modules in roles_of(layer).items():
            if all(names.hold(f"layers.{index}.{module}") for module in modules):
                found[role].add(index)
    return {role: frozenset(layers) for role, layers in found.items()}


def partly(shape: ModelShape, ignored: Names) -> frozenset[Role]:
    """Roles of which some modules are covered and others left out, in one layer: more than these words can say."""
    if not ignored:
        return frozenset()
    found: set[Role] = set()
    for index, layer in enumerate(shape.layers):
        for role, modules in roles_of(layer).items():
            out = [ignored.hold(f"layers.{index}.{module}") for module in modules]
            if any(out) and not all(out):
                found.add(role)
    return frozenset(found)


def covered(shape: ModelShape, ignored: Names) -> tuple[frozenset[Role], frozenset[int]]:
    """The roles that a scheme covers, and the layers that it leaves out altogether."""
    left_out = chosen(shape, ignored)
    having: dict[Role, set[int]] = {role: set() for role in left_out}
    for index, layer in enumerate(shape.layers):
        for role in roles_of(layer):
            having[role].add(index)
    modules = frozenset(role for role, layers in left_out.items() if not layers >= having[role])
    kept = frozenset(
        index
        for index, layer in enumerate(shape.layers)
        if (roles := roles_of(layer).keys() & modules) and all(index in left_out[role] for role in roles)
    )
    return modules, kept
