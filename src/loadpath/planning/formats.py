"""Bytes of one weight in each stored format: its data, scales, zero points and permutations, one figure a tensor.

Sources: the layouts that the formats' own tools write and that vLLM's loaders expect (facts/vllm.md, C.5).
"""

from __future__ import annotations

import math
from functools import lru_cache

from loadpath.core.shape import DTYPE_BYTES, Quantisation
from loadpath.knowledge.ggml_types import average_bits
from loadpath.planning.layer_tensors import Tensor

SCALE_BYTES = 2
"""Scales of integer formats have the activations' 16-bit type."""


def dtype_bytes(name: str) -> int:
    return DTYPE_BYTES.get(name, 2)


def scheme_of(tensor: Tensor, quantisation: Quantisation | None, kept: bool = False) -> str:
    """How `tensor` is stored: `plain`, `fp8`, `nvfp4`, `mxfp4`, `nf4`, `gguf`, `int8`, `int4`, … (bits of integers).

    `kept`: it is in a layer that the checkpoint leaves in the model's dtype.
    """
    q = quantisation
    if q is None:
        return "plain"
    if q.method == "gguf":
        return "gguf" if tensor.cols > 1 and tensor.role not in ("norm", "bias", "router", "position") else "plain"
    if not tensor.linear or kept:
        return "plain"
    if tensor.role == "experts" and q.expert_format:
        return q.expert_format
    if tensor.role in q.fp8_modules:
        return "fp8"
    if tensor.role not in q.modules:
        return "plain"
    return q.format or (f"{q.type or 'int'}{q.bits}").replace("float8", "fp8")


@lru_cache(maxsize=8192)
def stored(
    tensor: Tensor, quantisation: Quantisation | None, width: int, kept: bool = False, resident: bool = True
) -> tuple[int, ...]:
    """Bytes of each array that holds `tensor`; `width`: bytes of an element in the model's dtype.

    `resident`: as a serving engine keeps it after loading; else as the checkpoint's file has it.
    """
    scheme = scheme_of(tensor, quantisation, kept)
    count = tensor.elements
    if scheme == "plain" or quantisation is None:
        return (count * (dtype_bytes(tensor.dtype) if tensor.dtype else width),)
    if scheme == "fp8":
        return (count, _fp8_scales(tensor, quantisation))
    if scheme == "nvfp4":  # e2m1, an FP8 scale for 16 inputs, one float32 scale for each merged projection
        return (count // 2, count // 16, 4 * tensor.stack * tensor.parts)
    if scheme == "mxfp4":  # e2m1 and a power of two for 32 inputs
        return (count // 2, count // 32)
    if scheme == "mxfp8":
        return (count, count // 32)
    if scheme == "nf4":
        return (count // 2, *_nf4_scales(count, quantisation, resident))
    if scheme == "gguf":
        return (math.ceil(count * (average_bits(quantisation.format) or quantisation.bits) / 8),)
    if scheme == "int8" and quantisation.method != "gptq" and not quantisation.group_size:
        return (count, 4 * tensor.stack * tensor.rows)
    return _grouped(tensor, quantisation, resident)


def _fp8_scales(tensor: Tensor, quantisation: Quantisation) -> int:
    """Bytes of float32 scales: one for a block, an output channel, or a merged projection."""
    if quantisation.block and tensor.role not in quantisation.fp8_modules:
        rows, cols = quantisation.block
        return 4 * tensor.stack * math.ceil(tensor.rows / rows) * math.ceil(tensor.cols / cols)
    if quantisation.strategy == "channel":
        return 4 * tensor.stack * tensor.rows
    return 4 * tensor.stack * tensor.parts


def _nf4_scales(count: int, quantisation: Quantisation, resident: bool) -> tuple[int, ...]:
    """Absolute maxima of groups: float32, or 8 bits that share a float32 for 256 of them (double quantisation, which
    vLLM undoes while it loads)."""
    groups = count // (quantisation.group_size or 64)
    return (4 * groups,) if resident else (groups, 4 * math.ceil(groups / 256))


def _grouped(tensor: Tensor, quantisation: Quantisation, resident: bool) -> tuple[int, ...]:
    """Integer weights whose inputs share scales by group (no group: a scale for each output channel)."""
    bits = quantisation.bits
    groups = math.ceil(tensor.cols / quantisation.group_size) if quantisation.group_size > 0 else 1
    scales = tensor.stack * tensor.rows * groups
    data = [math.ceil(tensor.elements * bits / 8), SCALE_BYTES * scales]
    gptq = quantisation.method in ("gptq", "auto-round")
    if quantisation.zero_point or (gptq and (not resident or tensor.role == "experts")):
        data.append(math.ceil(scales * bits / 8))  # symmetric GPTQ files store zero points that Marlin drops
    if quantisation.desc_act or (gptq and not resident):
        order = 4 * tensor.stack * tensor.cols
        data += [order, order] if quantisation.desc_act and resident else [order]
    return tuple(data)


def bits_per_weight(quantisation: Quantisation | None, width: int = 2) -> float:
    """Bits of a large linear weight with all its metadata."""
    tensor = Tensor(
        "linear", next(iter(quantisation.modules), "mlp") if quantisation else "mlp", 4096, 4096, linear=True
    )
    return 8 * sum(stored(tensor, quantisation, width)) / tensor.elements
