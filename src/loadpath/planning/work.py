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
from loadpath.planning.tensors import WHOLE, Split, tensors
from loadpath.planning.weights import AS_STORED, weights

_NOT_READ = frozenset({"embedding", "vision", "audio", "position", "experts"})
REDUCES_PER_LAYER = 2
"""After the token mixer's output projection and after the feed-forward part."""


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
        all_reduces=REDUCES_PER_LAYER * len(shape.layers),
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
    alike: dict[int, tuple[float, float]] = {}
    for layer in shape.layers:
        for window, size, flops in _layer_caches(layer, element):
            have = alike.get(window, (0.0, 0.0))
            alike[window] = (have[0] + size, have[1] + flops)
    return tuple(Cache(bytes_per_token=s, flops_per_pair=f, window=w) for w, (s, f) in sorted(alike.items()))


def _layer_caches(layer: Layer, element: float) -> list[tuple[int, float, float]]:
    """(window, bytes per token, FLOP per pair of query and cached token) of each cache of a layer."""
    found: list[tuple[int, float, float]] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention) and not mixer.cross:
            wide = mixer.head_dim + mixer.value_dim
            found.append((mixer.window or mixer.chunk, mixer.kv_heads * wide * element, 2 * mixer.heads * wide))
        elif isinstance(mixer, LatentAttention):
            latent = mixer.kv_rank + mixer.rope_dim
            found.append((0, latent * element, 2 * mixer.heads * (latent + mixer.kv_rank)))
        elif isinstance(mixer, CompressedAttention):
            found.append((mixer.window, mixer.head_dim * element, 4 * mixer.heads * mixer.head_dim))
            if mixer.ratio:
                flops = 4 * mixer.heads * mixer.head_dim / mixer.ratio
                found.append((0, mixer.head_dim * element / mixer.ratio, flops))
    return found


def _state(mixer: Mixer, shape: ModelShape) -> float:
    """Bytes of the recurrent state of one sequence in one layer, without the short convolution's."""
    element = dtype_bytes(shape.state_dtype or shape.dtype)
    if isinstance(mixer, GatedDelta):
        return mixer.v_heads * mixer.k_dim * mixer.v_dim * element
    if isinstance(mixer, Mamba):
        return mixer.inner_width * mixer.state * element
    return 0.0
