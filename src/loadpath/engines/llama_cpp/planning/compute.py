"""The compute buffer: what the graph of one batch keeps alive at once, as ggml's allocator lays it out.

Measured on real graphs (llama.cpp b11549, 130 combinations of shape, batch, context and attention): 0.7 % off on average
for plain heads, dense or mixture, 4 % for latent attention. Figures are float32 elements of one token, times the batch.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from loadpath.core.shape import Attention, Dense, Experts, GatedDelta, LatentAttention, Layer, Mamba
from loadpath.engines.llama_cpp.planning import builds

PLAIN_ERROR, LATENT_ERROR, RECURRENT_ERROR = 0.02, 0.05, 0.3
"""Errors of plain heads, of latent attention, and of recurrent layers, whose graphs differ from build to build."""
FUSED_DELTA = 8600
"""Gated delta layers are one operation that needs little beside (early 2026); before, a chain of many."""
COPIES = 4
"""Copies of a batch's inputs where several GPUs work in a pipeline."""


class Widths(msgspec.Struct, frozen=True):
    """The widest moments of a model's graph, in elements of one token: feed-forward, attention of plain heads, latent
    attention, recurrence. `heads`: those whose rows of scores are kept without flash attention."""

    feed: int
    plain: int
    latent: int
    recurrent: int
    heads: int
    hidden: int
    vocab: int

    def error(self, build: int) -> float:
        if self.recurrent and build < FUSED_DELTA:
            return RECURRENT_ERROR
        return LATENT_ERROR if self.latent else PLAIN_ERROR


@lru_cache(maxsize=512)
def widths(layers: tuple[Layer, ...], hidden: int, vocab: int) -> Widths:
    feed = plain = latent = recurrent = heads = 0
    for layer in layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                query, key = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
                plain = max(plain, 3 * hidden + (4 if mixer.output_gate else 3) * query + 2 * key)
                heads = max(heads, mixer.heads)
            elif isinstance(mixer, LatentAttention):
                row = 2 * mixer.kv_rank + mixer.nope_dim + 4 * mixer.rope_dim
                latent = max(latent, mixer.heads * row + 5 * hidden)
                heads = max(heads, mixer.heads)
            elif isinstance(mixer, GatedDelta):
                recurrent = max(recurrent, 3 * hidden + 4 * mixer.v_heads * mixer.v_dim)
            elif isinstance(mixer, Mamba):
                recurrent = max(recurrent, 3 * hidden + 6 * mixer.inner_width)
        feed = max([feed, *(_feed(part, hidden) for part in layer.feeds)])
    return Widths(feed, plain, latent, recurrent, heads, hidden, vocab)


def _feed(part: Dense | Experts, hidden: int) -> int:
    """Gate, up and their product beside the residual stream; of a mixture for every expert that a token visits, and
    their outputs where these do not fit in what gate and up leave."""
    if isinstance(part, Dense):
        return 3 * part.width + (5 if part.width > hidden else 3) * hidden
    inner, outer = part.active * part.width, part.active * (part.latent or hidden)
    mixture = 3 * inner + 5 * hidden + (outer if 2 * inner < outer else 0)
    return max(mixture, 3 * part.shared_width + outer + 5 * hidden) if part.shared_width else mixture


class Graph(msgspec.Struct, frozen=True):
    """What a batch needs. `ubatch` tokens, `context` cells that they attend to, `outputs`: tokens whose logits are made."""

    ubatch: int
    context: int
    window: int
    outputs: int
    flash: bool
    build: int
    copies: int = 1
    on_gpu: bool = False
    """A GPU gets a copy of the mask, which is gone when the logits are made; the host's own mask stays."""


def device_bytes(wide: Widths, graph: Graph) -> int:
    """The compute buffer of one GPU (or of the CPU, where it computes everything)."""
    half = graph.flash and graph.build >= builds.HALF_MASK
    mask = graph.ubatch * (graph.context + graph.window) * (2 if half else 4)
    if graph.flash and not half:
        mask += graph.ubatch * (graph.context + graph.window) * 2  # and once more in 16 bits, for the kernel
    inner = max(wide.feed, wide.latent, wide.recurrent)
    if not graph.flash or not inner:  # flash attention of plain heads needs less than the feed-forward part
        inner = max(inner, wide.plain)
    if not graph.flash:
        inner = max(inner, max(wide.plain, wide.latent) + wide.heads * graph.context)
    logits = wide.vocab * graph.outputs + wide.hidden * graph.ubatch
    if graph.on_gpu and graph.copies == 1:
        return max(4 * inner * graph.ubatch + mask, 4 * logits)
    return 4 * max(inner * graph.ubatch, logits) + graph.copies * mask


def host_bytes(wide: Widths, graph: Graph) -> int:
    """The buffer in host memory from which a GPU's batch starts: embedded tokens and the mask."""
    half = graph.flash and graph.build >= builds.HALF_MASK
    return 4 * wide.hidden * graph.ubatch + graph.ubatch * (graph.context + graph.window) * (2 if half else 4)


def outputs(build: int, ubatch: int, slots: int) -> int:
    """Tokens of a batch whose logits are reserved."""
    return slots if build >= builds.FEW_OUTPUTS else ubatch
