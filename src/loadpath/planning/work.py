"""What a token costs a model, from its shape: bytes read, operations, cache; for the bounds in `planning.speed`."""

from __future__ import annotations

from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
    ModelShape,
)
from loadpath.planning.formats import dtype_bytes
from loadpath.planning.parameters import parameters
from loadpath.planning.rates import Matmul
from loadpath.planning.speed import Cache, Load
from loadpath.planning.split import WHOLE, Split
from loadpath.planning.tensors import tensors
from loadpath.planning.weights import AS_STORED, weights

_NOT_READ = frozenset({"embedding", "vision", "audio", "position", "experts"})
SPARSE_TOKENS = 2048
"""Tokens that sparse latent attention picks for a query (index_topk of DeepSeek-V3.2; a shape does not hold it)."""


def load_of(shape: ModelShape, kv_element_bytes: float = 2.0) -> Load:
    """The whole model's work per token; cache elements of so many bytes."""
    by_role = weights(shape, WHOLE, AS_STORED).by_role
    read = sum(size for role, size in by_role.items() if role not in _NOT_READ)
    if shape.tied:
        read += by_role.get("embedding", 0)  # the head reads the embedding's rows
    experts = next((f for layer in shape.layers for f in layer.feeds if isinstance(f, Experts)), None)
    head = shape.vocab * shape.hidden
    return Load(
        weight_bytes=read,
        expert_bytes=by_role.get("experts", 0),
        experts=experts.count if experts else 0,
        experts_active=experts.active if experts else 0,
        flops_per_token=2 * (parameters(shape).active - head),
        head_flops=2 * head,
        caches=_caches(shape, kv_element_bytes),
        state_bytes=sum(_state(mixer, shape) for layer in shape.layers for mixer in layer.mixers),
        all_reduces=sum(bool(layer.mixers) + bool(layer.feeds) for layer in shape.layers),
        all_reduce_bytes_per_token=shape.hidden * 2,
    )


def cache_ways(shape: ModelShape, tensor_parallel: int) -> int:
    """GPUs over which the cache is divided: no more than there are KV heads; a latent is whole on every one."""
    heads = [m.kv_heads for layer in shape.layers for m in layer.mixers if isinstance(m, Attention)]
    return min(tensor_parallel, max(heads)) if heads else 1


def products(shape: ModelShape, tensor_parallel: int) -> tuple[Matmul, ...]:
    """The matrix products of one rank, once each: they tell which tiles are wasted and which rows are not aligned."""
    found = {
        Matmul(name=t.name, k=t.cols, n=t.rows)
        for group in tensors(shape, Split(tp=tensor_parallel))
        for t in group.tensors
        if t.linear and group.layers
    }
    return tuple(sorted(found, key=lambda m: (m.name, m.k, m.n)))


def _caches(shape: ModelShape, element: float) -> tuple[Cache, ...]:
    """Layers that keep their cache alike, added up."""
    alike: dict[int, Cache] = {}
    for layer in shape.layers:
        for one in _layer_caches(layer, element):
            have = alike.get(one.window, Cache(bytes_per_token=0.0, window=one.window))
            alike[one.window] = Cache(
                bytes_per_token=have.bytes_per_token + one.bytes_per_token,
                flops_per_pair=have.flops_per_pair + one.flops_per_pair,
                prefill_flops_per_pair=have.prefill + one.prefill,
                window=one.window,
            )
    return tuple(alike[window] for window in sorted(alike))


def _layer_caches(layer: Layer, element: float) -> list[Cache]:
    """Each cache of a layer. Where a kernel may read less (sparse picks), the least: the bounds must stay bounds."""
    found: list[Cache] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention) and not mixer.cross:
            wide = mixer.head_dim + mixer.value_dim
            size = 0.0 if mixer.reuses_cache else mixer.kv_heads * wide * element
            window = mixer.window or mixer.chunk
            found.append(Cache(bytes_per_token=size, flops_per_pair=2 * mixer.heads * wide, window=window))
        elif isinstance(mixer, LatentAttention):
            found.append(_latent_cache(mixer, element))
        elif isinstance(mixer, CompressedAttention):
            flops = 4 * mixer.heads * mixer.head_dim
            size = mixer.head_dim * element
            found.append(Cache(bytes_per_token=size, flops_per_pair=flops, window=mixer.window))
            if mixer.ratio and not mixer.index_heads:
                found.append(Cache(bytes_per_token=size / mixer.ratio, flops_per_pair=flops / mixer.ratio))
    return found


def _latent_cache(mixer: LatentAttention, element: float) -> Cache:
    """Decode works on the latent itself; prefill on the heads that are made of it, which is less work for long prompts."""
    latent = mixer.kv_rank + mixer.rope_dim
    return Cache(
        bytes_per_token=latent * element,
        flops_per_pair=2 * mixer.heads * (latent + mixer.kv_rank),
        prefill_flops_per_pair=2 * mixer.heads * (mixer.nope_dim + mixer.rope_dim + mixer.v_dim),
        window=SPARSE_TOKENS if mixer.index_heads else 0,
    )


def _state(mixer: Mixer, shape: ModelShape) -> float:
    """Bytes of the recurrent state of one sequence in one layer, without the short convolution's."""
    element = dtype_bytes(shape.state_dtype or shape.dtype)
    if isinstance(mixer, GatedDelta):
        return mixer.v_heads * mixer.k_dim * mixer.v_dim * element
    if isinstance(mixer, Mamba):
        return mixer.inner_width * mixer.state * element
    return 0.0
