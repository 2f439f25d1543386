"""CUDA graphs: which sizes are captured, and what they take (shared facts, vllm.md C.4)."""

from __future__ import annotations

from loadpath.core.shape import ModelShape
from loadpath.core.units import KIB
from loadpath.engines.vllm.planning import releases
from loadpath.engines.vllm.planning.options import Options, mixture, recurrent

LARGEST, LARGEST_BLACKWELL = 512, 1024
GPT_OSS = "GptOssForCausalLM"  # captured up to the larger size on every card
ERROR, ERROR_ELSEWHERE = 0.09, 0.6
"""Mean error of the modelled bytes on logged starts, as a share of them: of the kind that it was fitted to, and of others
(before 0.18, recurrent layers, boards without NVSwitch: 18 public starts that nothing was fitted to)."""
NODE_BYTES, QUANTISED_BYTES, EXPERTS_BYTES = 202 * KIB, 36 * KIB, 46 * KIB
"""For each layer and graph: a layer's kernels, and the further ones of quantised products and of routing."""
SHARE_BEFORE = 0.5
"""Captures before 0.18 were logged with 0.2 to 1.3 of the later estimate (nine starts of 0.9 to 0.17)."""


def capture_sizes(shape: ModelShape, options: Options, capability: tuple[int, int] | None = None) -> list[int]:
    """Batch sizes for which a graph is captured, ascending."""
    version = options.version
    if options.eager:
        return []
    if options.graph_sizes:
        return [size for size in options.graph_sizes if size <= options.max_num_batched_tokens]
    if options.v0:
        return [size for size in (1, 2, 4, *range(8, 8193, 8)) if size <= _padded(options.max_num_seqs)]
    top = LARGEST
    blackwell = capability is not None and capability[0] == 10 and version >= releases.LARGE_CARD_TIER
    if blackwell or (shape.architecture == GPT_OSS and version >= (0, 10, 1)):
        top = LARGEST_BLACKWELL
    if version >= (0, 10):
        drafted = options.speculation.tokens if version >= (0, 14) else 0
        top = min(2 * options.max_num_seqs * (1 + drafted), top)
    small = list(range(8, min(top, 255) + 1, 8)) if version >= (0, 11, 1) else list(range(8, top + 1, 8))
    large = list(range(256, top + 1, 16)) if version >= (0, 11, 1) else []
    return [size for size in (1, 2, 4, *small, *large) if size <= min(top, options.max_num_batched_tokens)]


def _padded(seqs: int) -> int:
    return seqs if seqs <= 2 else 4 if seqs <= 4 else -(-seqs // 8) * 8


def graph_counts(options: Options, sizes: list[int]) -> tuple[int, int]:
    """Graphs of pieces of the model and of the whole of it (decode only)."""
    if not sizes or options.v0:
        return 0, len(sizes)
    if options.version < releases.FULL_GRAPHS:
        return len(sizes), 0
    decode = options.max_num_seqs * (1 + options.speculation.tokens)
    return len(sizes), sum(size <= decode for size in sizes)


def graph_bytes(shape: ModelShape, options: Options, sizes: list[int]) -> int:
    """What the graphs take: from 0.18 on the engine's own estimate of it, before that what the capture took.

    A node for each kernel of every layer and graph; fitted to fourteen logged estimates (0.18 and 0.19, H100, 24 to 80
    layers) with three coefficients, 9 % off where a start is left out of the fit.
    """
    layers = len(shape.layers) / options.pipeline_parallel
    node = NODE_BYTES + (QUANTISED_BYTES if shape.quantisation else 0) + (EXPERTS_BYTES if mixture(shape) else 0)
    share = 1 if options.version >= releases.GRAPH_ESTIMATE else SHARE_BEFORE
    return round(sum(graph_counts(options, sizes)) * layers * node * share)


def error(shape: ModelShape, options: Options, switched: bool) -> float:
    """Mean error to be expected of `graph_bytes`."""
    fitted = options.version >= releases.GRAPH_ESTIMATE and not recurrent(shape)
    return ERROR if fitted and switched else ERROR_ELSEWHERE
