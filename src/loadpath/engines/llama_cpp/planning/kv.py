"""llama.cpp's caches: cells of key and value rows, a window's own cache, recurrent states. Exact, bytes per layer."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from loadpath.core.shape import Attention, CompressedAttention, GatedDelta, LatentAttention, Layer, Mamba
from loadpath.engines.llama_cpp.planning import builds
from loadpath.knowledge.ggml_types import GGML_TYPES


class Rows(msgspec.Struct, frozen=True):
    """One layer's cache. `key`, `value`: elements of one token's rows; `window`: 0 for all tokens; `conv`, `state`:
    float32 elements of one sequence's recurrent state. `ratio`: the layer keeps its window and, beside it, a row of
    `key + index` elements for every so many tokens (DeepSeek-V4; 0: the window only)."""

    key: int = 0
    value: int = 0
    window: int = 0
    conv: int = 0
    state: int = 0
    compressed: bool = False
    ratio: int = 0
    index: int = 0


class Caches(msgspec.Struct, frozen=True):
    """The caches of one context. `layer_bytes`: keys, values and states of each layer; the totals are what the log's
    lines state: (cells, layers, key bytes, value bytes) of the full and of the window's cache."""

    context: int
    slot_context: int
    layer_bytes: tuple[int, ...]
    state_bytes: tuple[int, ...]
    full: tuple[int, int, int, int]
    window: tuple[int, int, int, int] | None
    streams: int

    @property
    def bytes(self) -> int:
        return sum(self.layer_bytes)

    @property
    def states(self) -> int:
        return sum(self.state_bytes)


def row_bytes(kind: str, elements: int) -> int:
    """Bytes of a row; quantised types come in blocks (of 32 elements)."""
    block, size = GGML_TYPES.get(kind.upper(), (1, 2))
    return -(-elements // block) * size


@lru_cache(maxsize=512)
def rows(layers: tuple[Layer, ...], build: int) -> tuple[Rows, ...]:
    """What each layer keeps, by llama.cpp of that build."""
    return tuple(_layer(layer, build) for layer in layers)


def _layer(layer: Layer, build: int) -> Rows:
    out = Rows()
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            if mixer.reuses_cache:
                continue
            window = (mixer.window or mixer.chunk) if build >= builds.WINDOW_CACHE else 0
            key, value = mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.value_dim
            out = msgspec.structs.replace(out, key=key, value=value, window=window)
        elif isinstance(mixer, LatentAttention):
            if build < builds.LATENT_CACHE:
                key, value = mixer.heads * (mixer.nope_dim + mixer.rope_dim), mixer.heads * mixer.v_dim
            else:
                index = mixer.index_dim if mixer.index_heads and not mixer.index_shared else 0
                key = mixer.kv_rank + mixer.rope_dim + index
                value = mixer.kv_rank if build < builds.LATENT_WITHOUT_VALUES else 0
            out = msgspec.structs.replace(out, key=key, value=value)
        elif isinstance(mixer, CompressedAttention):
            out = _compressed(mixer)
        else:
            conv, state = _recurrent(mixer)
            out = msgspec.structs.replace(out, conv=conv, state=state)
    return out


def _compressed(mixer: CompressedAttention) -> Rows:
    """DeepSeek-V4: states hold, in float32, keys and scores of the tokens that the next compressed row is made of."""
    index = mixer.index_dim if mixer.ratio == 4 else 0
    gathered = {4: 8 * 2 * (mixer.head_dim + index), 128: 128 * mixer.head_dim}.get(mixer.ratio, 0)
    return Rows(
        key=mixer.head_dim, window=mixer.window, state=2 * gathered, compressed=True, ratio=mixer.ratio, index=index
    )  # fmt: skip


def _recurrent(mixer: GatedDelta | Mamba) -> tuple[int, int]:
    if isinstance(mixer, GatedDelta):
        channels = 2 * mixer.k_heads * mixer.k_dim + mixer.v_heads * mixer.v_dim
        return (mixer.conv_kernel - 1) * channels, mixer.v_heads * mixer.v_dim * mixer.k_dim
    groups = 2 * mixer.groups * mixer.state if mixer.generation == 2 else 0
    return (mixer.conv_kernel - 1) * (mixer.inner_width + groups), mixer.inner_width * mixer.state


@lru_cache(maxsize=8192)
def caches(
    kept: tuple[Rows, ...], context: int, slots: int, unified: bool, ubatch: int, types: tuple[str, str],
    window_full: bool = False,
) -> Caches:  # fmt: skip
    """The caches for a context of `context` tokens over all slots."""
    context = -(-context // 256) * 256
    slot = context if unified else -(-(context // slots) // 256) * 256
    streams = 1 if unified else slots
    if not unified:
        context = slot * slots
    span = next((row.window for row in kept if row.window), 0)
    short = slot if window_full else min(slot, -(-min(slot, span * (slots if unified else 1) + ubatch) // 256) * 256)
    sizes: list[int] = []
    states: list[int] = []
    sums = {False: [0, 0, 0], True: [0, 0, 0]}
    for row in kept:
        states.append((row.conv + row.state) * 4 * slots)
        if row.compressed:  # one stream for each slot, however the slots share the rest
            near = -(-min(slot, row.window + ubatch) // 256) * 256 * slots * row_bytes(types[0], row.key)
            far = _far(row, slot, types[0]) * slots
            _add(sums[True], near, 0)
            if far:
                _add(sums[False], far, 0)
            sizes.append(near + far)
            continue
        cells = (short if row.window else slot) * streams
        key, value = cells * row_bytes(types[0], row.key), cells * row_bytes(types[1], row.value)
        sizes.append(key + value)
        if row.key:
            _add(sums[bool(row.window)], key, value)
    full, window = sums[False], sums[True]
    return Caches(
        context, slot, tuple(sizes), tuple(states), (slot, full[0], full[1], full[2]),
        (short, window[0], window[1], window[2]) if window[0] else None, streams,
    )  # fmt: skip


def _far(row: Rows, slot: int, kind: str) -> int:
    """Bytes of one slot's compressed rows."""
    if not row.ratio:
        return 0
    cells = -(-max(1, -(-slot // row.ratio)) // 256) * 256
    return cells * (row_bytes(kind, row.key) + (row_bytes(kind, row.index) if row.index else 0))


def _add(total: list[int], key: int, value: int) -> None:
    total[0], total[1], total[2] = total[0] + 1, total[1] + key, total[2] + value
