"""What each layer keeps in the cache, on one rank: the engine's cache specs (shared facts, vllm.md C.6)."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from loadpath.core.shape import (
    DTYPE_BYTES,
    Attention,
    CompressedAttention,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
    ModelShape,
)
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.per_shape import per_shape
from loadpath.planning.split import Split, stage_layers

Kind = Literal["full", "sliding", "chunked", "state", "cross"]
INDEX_SCALE_EVERY = 128  # elements of an indexer key that share one 4-byte scale
LATENT_ENTRY = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of a token in the packed layouts of sparse latent attention (512 + 64 elements)."""
ELEMENT_BITS = {
    "bfloat16": 16, "float16": 16, "float32": 32, "int4_per_token_head": 4, "turboquant_4bit_nc": 4, "turboquant_k8v4": 6,
    "turboquant_k3v4_nc": 3.5, "turboquant_3bit_nc": 3, "octave_k3v4": 3.5, "octave_k3v3": 3, "ultraquant_4bit": 4.25,
}  # fmt: skip
"""Bits of an element, key and value on average; the FP8 and INT8 types have 8. Scales of the rarer ones are not counted."""
COMPRESSED_ENTRY = {"fp8": 584, "nvfp4": 352}
"""Bytes of an entry of compressed latent attention, 512 elements wide."""
CHECKPOINTED = "checkpointed"
"""States of which a request keeps one more (releases.STATE_CHECKPOINTS)."""
STATE_ELEMENT = 2 * 4
"""A compressor keeps value and score of the tokens that are not yet an entry, in 32 bits."""


class KvSpec(msgspec.Struct, frozen=True, cache_hash=True):
    """One kind of cache. `token_bytes`: a token of one layer; `page_bytes`: a whole state where it does not grow;
    `span`: window, chunk or encoder length in tokens; `every`: tokens of the text that make one entry; `tag` keeps
    caches of equal size apart that the engine does not pool together."""

    kind: Kind
    token_bytes: int = 0
    page_bytes: int = 0
    span: int = 0
    every: int = 1
    tag: str = ""
    latent: bool = False


Specs = tuple[tuple[KvSpec, int], ...]


def specs(shape: ModelShape, options: Options, drafter: ModelShape | None = None, stage: int = 0) -> Specs:
    """Cache specs and the number of layers of each, on a rank of pipeline stage `stage`."""
    speculation = options.speculation
    found = Counter(
        dict(
            _specs(
                shape, Split(options.tensor_parallel, options.pipeline_parallel, stage, partition=options.partition),
                _Element(options.kv_dtype, options.dtype_bytes), options.state_bytes, speculation.tokens,
            )
        )
    )  # fmt: skip
    if stage == options.pipeline_parallel - 1:
        for spec, count in _drafted(shape, options, drafter):
            found[spec] += count
    if not options.hybrid_manager or options.v0:
        return tuple(_as_full(found).items())
    return tuple(found.items())


class _Element(msgspec.Struct, frozen=True, cache_hash=True):
    """How one element of the cache is stored: the engine's `kv-cache-dtype`, and bytes of the model's dtype."""

    name: str
    dtype_bytes: int

    @property
    def bits(self) -> float:
        if self.name == "auto":
            return 8 * self.dtype_bytes
        return ELEMENT_BITS.get(self.name, 8)

    def head(self, width: int) -> int:
        """Bytes of one head's key (or value) of `width` elements."""
        if self.name.startswith("nvfp4"):
            return width // 2 + width // 16  # two a byte, one FP8 scale for sixteen
        size = round(width * self.bits) // 8
        return size + 4 if self.name.endswith("per_token_head") else size


@per_shape
def _specs(shape: ModelShape, split: Split, element: _Element, state_bytes: int, drafted: int) -> Specs:
    found: Counter[KvSpec] = Counter()
    mine = stage_layers(len(shape.layers), split)
    for layer, count in Counter(shape.layers[mine.start : mine.stop]).items():
        for spec in _layer(shape, layer, split.tp, element, state_bytes, drafted):
            found[spec] += count
    return tuple(found.items())


def _layer(
    shape: ModelShape, layer: Layer, ranks: int, element: _Element, state_bytes: int, drafted: int
) -> list[KvSpec]:
    found: list[KvSpec] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            if not mixer.reuses_cache:
                found.append(_attention(mixer, ranks, element))
                if mixer.index_heads:
                    found.append(KvSpec("full", _index_key(mixer.index_dim), tag="index"))
        elif isinstance(mixer, LatentAttention):
            found.extend(_latent(mixer, element))
        elif isinstance(mixer, CompressedAttention):
            found.extend(_compressed(mixer, element))
        else:
            found.append(_state(mixer, shape, ranks, element.dtype_bytes, state_bytes, drafted))
    return found


def heads_of_rank(heads: int, ranks: int) -> int:
    """KV heads of a rank: there is always one, copied where there are more ranks than heads."""
    return max(1, heads // ranks)


def _attention(mixer: Attention, ranks: int, element: _Element) -> KvSpec:
    heads = heads_of_rank(mixer.kv_heads, ranks)
    size = heads * (element.head(mixer.head_dim) + element.head(mixer.value_dim))
    if mixer.cross:
        return KvSpec("cross", size)
    if mixer.window:
        return KvSpec("sliding", size, span=mixer.window)
    return KvSpec("chunked", size, span=mixer.chunk) if mixer.chunk else KvSpec("full", size)


def _latent(mixer: LatentAttention, element: _Element) -> list[KvSpec]:
    """One latent a token for all heads, on every rank alike; sparse attention adds its indexer's keys."""
    name = element.name
    sparse = mixer.index_heads > 0 or mixer.index_shared
    if name in LATENT_ENTRY:
        size = LATENT_ENTRY[name]
    elif sparse and name.startswith("fp8"):
        size = LATENT_ENTRY["fp8_ds_mla"]
    else:
        size = element.head(mixer.kv_rank + mixer.rope_dim)
    main = KvSpec("full", size, latent=True)
    if mixer.index_pool:
        # The pooled indexer's two caches take pages of the latent's size.
        return [main, KvSpec("full", size, latent=True, tag="index"), KvSpec("full", size, latent=True, tag="pool")]
    if not mixer.index_heads or mixer.index_shared:
        return [main]
    return [main, KvSpec("full", _index_key(mixer.index_dim), latent=True, tag="index")]


def _index_key(width: int) -> int:
    """Bytes of an indexer's key of one token: 8-bit elements and their scales."""
    return width + 4 * (width // INDEX_SCALE_EVERY)


def _compressed(mixer: CompressedAttention, element: _Element) -> list[KvSpec]:
    """A window of entries, one entry for `ratio` tokens of the text before it, and the compressors' states: tokens of
    the last entry or (of the small ratio) the last two."""
    kind = "nvfp4" if element.name.startswith("nvfp4") else "fp8"
    size = COMPRESSED_ENTRY[kind]
    found = [KvSpec("sliding", size, span=mixer.window, latent=True)]
    if mixer.ratio:
        found.append(KvSpec("full", size, every=mixer.ratio, latent=True))
        overlap = 2 if mixer.index_heads else 1
        state = overlap * mixer.head_dim * STATE_ELEMENT
        found.append(KvSpec("sliding", state, span=overlap * mixer.ratio, latent=True, tag="state"))
    if mixer.index_heads and mixer.ratio:
        state = 2 * mixer.index_dim * STATE_ELEMENT
        found.append(KvSpec("sliding", state, span=2 * mixer.ratio, latent=True, tag="index-state"))
        found.append(KvSpec("full", _index_key(mixer.index_dim), every=mixer.ratio, latent=True, tag="index"))
    return found


def _state(mixer: Mixer, shape: ModelShape, ranks: int, dtype_bytes: int, state_bytes: int, drafted: int) -> KvSpec:
    """Convolution (in the model's dtype) and recurrent state of one request."""
    element = state_bytes or (DTYPE_BYTES[shape.state_dtype] if shape.state_dtype else dtype_bytes)
    if isinstance(mixer, GatedDelta):
        keys = mixer.v_heads if mixer.rule == "kda" else mixer.k_heads
        width = 2 * keys * mixer.k_dim + mixer.v_heads * mixer.v_dim
        state = mixer.v_heads // ranks * mixer.k_dim * mixer.v_dim
        rows = mixer.conv_kernel - 1
    elif isinstance(mixer, Mamba):
        groups = 2 * mixer.groups * mixer.state if mixer.generation == 2 else 0
        if groups and mixer.groups % ranks:
            groups = 2 * ranks * mixer.state  # groups are copied so that every rank has a whole one
        width, rows = mixer.inner_width + groups, mixer.conv_kernel - 1
        state = mixer.inner_width // ranks * mixer.state
    else:
        raise TypeError(type(mixer).__name__)
    tag = CHECKPOINTED if isinstance(mixer, Mamba) and mixer.generation == 2 else ""
    return KvSpec("state", page_bytes=(rows + drafted) * (width // ranks) * dtype_bytes + state * element, tag=tag)


def _drafted(shape: ModelShape, options: Options, drafter: ModelShape | None) -> Specs:
    """Caches of the drafter's layers: its own shape, else as many full layers like the model's own."""
    element = _Element(options.kv_dtype, options.dtype_bytes)
    if drafter is not None and options.speculation.method:
        return _specs(drafter, Split(options.tensor_parallel), element, options.state_bytes, 0)
    if not options.speculation.layers:
        return ()
    kept = [
        spec
        for layer in reversed(dict.fromkeys(shape.layers))
        for spec in _layer(shape, layer, options.tensor_parallel, element, 0, 0)
        if spec.kind == "full" and spec.every == 1 and not spec.tag
    ]
    if not kept:
        return ()
    tag = "draft" if options.speculation.method == "dflash" else ""
    return ((msgspec.structs.replace(kept[0], tag=tag), options.speculation.layers),)


def _as_full(found: Counter[KvSpec]) -> Counter[KvSpec]:
    """Without the hybrid manager, windows and chunks are stored for the whole length."""
    if not any(spec.kind == "full" for spec in found):
        return found
    merged: Counter[KvSpec] = Counter()
    for spec, count in found.items():
        local = spec.kind in ("sliding", "chunked")
        merged[msgspec.structs.replace(spec, kind="full", span=0) if local else spec] += count
    return merged
