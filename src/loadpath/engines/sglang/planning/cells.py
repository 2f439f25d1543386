"""Bytes of SGLang's cache: of one token in each pool, and of one request's recurrent state, on one rank.

Source: `pool_configurator.py`, `kv_cache_configurator.py` and `configs/mamba_utils.py` of 0.5.23, `model_runner.py` and
`model_runner_kv_cache_mixin.py` before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from loadpath.core.shape import Attention, CompressedAttention, GatedDelta, LatentAttention, Layer, Mamba, Mixer
from loadpath.planning.deployment import Version

WINDOW_POOLS: tuple[tuple[Version, tuple[str, ...]], ...] = (
    ((0, 4, 9), ("Llama4ForConditionalGeneration",)),
    ((0, 5, 1), ("GptOssForCausalLM",)),
    ((0, 5, 7), ("MiMoV2FlashForCausalLM",)),
    ((0, 5, 9), ("Step3p5ForCausalLM",)),
    ((0, 5, 11), ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "LagunaForCausalLM", "MiMoV2ForCausalLM")),
    ((0, 5, 12), ("DeepseekV4ForCausalLM",)),
    ((0, 5, 16), ("Step3p7ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration", "MellumForCausalLM")),
    ((0, 5, 23), ("GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM", "MuseGlimmerForCausalLM")),
)
"""Architectures whose window layers get a pool of their own, and since when (at the latest): in every other model,
Gemma 2 and 3 among them, window layers keep every token as full layers do."""
COMPRESSED_PAGE, COMPRESSED_RING = 256, 8
"""DeepSeek-V4: tokens of a page, and entries of the ring in which a ratio-4 layer collects the next one."""
SCALE_GROUP = 128
"""Elements of a latent or of an index key that share a 4-byte scale (FP8 sparse attention)."""


class Cells(msgspec.Struct, frozen=True):
    """Bytes on one rank: per token in layers that keep every token and in those of the window pool, per request of state."""

    full: float
    window: float = 0
    window_tokens: int = 0
    full_layers: int = 0
    window_layers: int = 0
    key_share: float = 0.5
    """Keys' part of the bytes (SGLang prints keys and values apart); 1: one latent for both."""
    conv_state: int = 0
    main_state: int = 0
    sized: float = 0
    """Bytes of a token in the layers that keep all, as the pool is sized by; 0: what it really takes."""

    @property
    def state(self) -> int:
        return self.conv_state + self.main_state


def has_window_pool(architecture: str, version: Version) -> bool:
    return any(version >= since and architecture in names for since, names in WINDOW_POOLS)


def stage(layers: Sequence[Layer], stages: int) -> tuple[Layer, ...]:
    """The layers of the pipeline stage that holds most of them."""
    if stages <= 1:
        return tuple(layers)
    return tuple(layers[: -(-len(layers) // stages)])


@lru_cache(maxsize=256)
def cells(
    layers: tuple[Layer, ...], ranks: int, kv_bytes: float, windowed: bool, state_bytes: int, packed_latent: bool = True
) -> Cells:
    """The cells of `layers` with the attention split over `ranks` and cache elements of `kv_bytes`."""
    full = window = 0.0
    full_layers = window_layers = span = conv = main = 0
    latent = False
    for layer in layers:
        for mixer in layer.mixers:
            if isinstance(mixer, GatedDelta | Mamba):
                conv_part, main_part = _state(mixer, ranks, state_bytes)
                conv, main = conv + conv_part, main + main_part
                continue
            if isinstance(mixer, CompressedAttention):
                kept, near = _compressed(mixer)
                full, window = full + kept, window + near
                full_layers, window_layers, span = full_layers + 1, window_layers + 1, mixer.window
                latent = True
                continue
            size = _token(mixer, ranks, kv_bytes, packed_latent)
            reach = mixer.window or mixer.chunk if isinstance(mixer, Attention) else 0
            latent = latent or isinstance(mixer, LatentAttention)
            if windowed and reach:
                window, window_layers, span = window + size, window_layers + 1, reach
            else:
                full, full_layers = full + size, full_layers + 1
    return Cells(
        full=full, window=window, window_tokens=span, full_layers=full_layers, window_layers=window_layers,
        key_share=1 if latent else _key_share(layers), conv_state=conv, main_state=main,
    )  # fmt: skip


def _token(mixer: Mixer, ranks: int, kv_bytes: float, packed_latent: bool) -> float:
    """Bytes of one token in one layer. Key-value heads are split over the ranks, and repeated once each holds one."""
    if isinstance(mixer, Attention):
        elements = max(1, mixer.kv_heads // ranks) * (mixer.head_dim + mixer.value_dim)
        return _stored(elements, kv_bytes)
    if isinstance(mixer, LatentAttention):
        if not mixer.index_heads:
            return _stored(mixer.kv_rank + mixer.rope_dim, kv_bytes)
        index = 0 if mixer.index_shared else mixer.index_dim + mixer.index_dim // SCALE_GROUP * 4
        if kv_bytes == 1 and packed_latent:
            return mixer.kv_rank + mixer.kv_rank // SCALE_GROUP * 4 + 2 * mixer.rope_dim + index
        return (mixer.kv_rank + mixer.rope_dim) * kv_bytes + index
    return 0


def _compressed(mixer: CompressedAttention) -> tuple[float, float]:
    """DeepSeek-V4: bytes per token of the whole sequence (a latent for every `ratio` tokens, and its index key) and per
    token of the window (every layer's own latent; ratio-4 layers also their states in float32). Latents are FP8 with
    16-bit rotary parts and 8 bytes of scales: 584 of 512 elements."""
    row = mixer.head_dim - mixer.rope_dim + 2 * mixer.rope_dim + 8
    if not mixer.ratio:
        return 0, row
    index = mixer.index_dim + mixer.index_dim // SCALE_GROUP * 4 if mixer.ratio == 4 else 0
    states = 4 * 4 * (mixer.head_dim + mixer.index_dim) * COMPRESSED_RING / COMPRESSED_PAGE if mixer.ratio == 4 else 0
    return (row + index) / mixer.ratio, row + states


def _stored(elements: int, kv_bytes: float) -> float:
    """Elements in their format; FP4 keeps a scale of 1 byte for every 16."""
    return elements * kv_bytes + (elements / 16 if kv_bytes < 1 else 0)


def _key_share(layers: Sequence[Layer]) -> float:
    first = next((m for layer in layers for m in layer.mixers if isinstance(m, Attention)), None)
    return first.head_dim / (first.head_dim + first.value_dim) if first else 0.5


def _state(mixer: GatedDelta | Mamba, ranks: int, state_bytes: int) -> tuple[int, int]:
    """(convolution, main state) bytes of one request in one layer; the convolution is kept in 16 bits."""
    if isinstance(mixer, GatedDelta):
        groups = mixer.k_heads if mixer.rule == "kda" else _groups(mixer.k_heads, ranks)
        channels = mixer.v_heads * mixer.v_dim + 2 * groups * mixer.k_dim
        main = mixer.v_heads // ranks * mixer.v_dim * mixer.k_dim
    elif mixer.generation == 1:
        channels, main = mixer.inner_width, mixer.inner_width // ranks * mixer.state
    else:
        channels = mixer.inner_width + 2 * _groups(mixer.groups, ranks) * mixer.state
        main = mixer.heads // ranks * mixer.head_dim * mixer.state
    return channels // ranks * (mixer.conv_kernel - 1) * 2, main * state_bytes


def _groups(groups: int, ranks: int) -> int:
    """Groups after those were repeated that do not divide over the ranks."""
    return groups if groups % ranks == 0 else ranks
