"""A model's shape and a board → the work of a step and the rates it runs at, for the bounds in `planning.speed`."""

from __future__ import annotations

import msgspec

from loadpath.core.shape import ModelShape
from loadpath.knowledge.gpus import Gpu
from loadpath.planning.collectives import link_of
from loadpath.planning.formats import dtype_bytes
from loadpath.planning.rates import Rate, ggml_rate, product_rate, rate
from loadpath.planning.speed import Cards, Load
from loadpath.planning.split import WHOLE
from loadpath.planning.weights import AS_STORED, weights
from loadpath.planning.work import cache_ways, load_of


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`stored_bytes`: all weights of the model, `load.weight_bytes` those that every step reads. `dtype`: of its products."""

    load: Load
    cards: Cards
    stored_bytes: float
    dtype: str


def step_of(shape: ModelShape, gpu: Gpu, count: int = 1, kv_element_bytes: float | None = None) -> Step | None:
    """The step of a model on `count` such boards, tensor-parallel; None for a board whose rates are not known.

    `kv_element_bytes`: of the cache; None: as the model computes.
    """
    peak = peak_of(shape, gpu)
    if not gpu.bandwidth_gbs or not peak.flops_per_s:
        return None
    wide = rate(gpu, "bf16")
    wide = wide if wide.flops_per_s else rate(gpu, "fp16")
    cards = Cards(
        bandwidth_bytes_per_s=gpu.bandwidth_gbs * 1e9,
        flops_per_s=peak.flops_per_s,
        attention_flops_per_s=wide.flops_per_s or 0.0,
        tensor_parallel=count,
        cache_ways=cache_ways(shape, count),
        link=link_of(gpu),
    )
    stored = sum(weights(shape, WHOLE, AS_STORED).by_role.values())
    element = kv_element_bytes if kv_element_bytes is not None else dtype_bytes(shape.dtype)
    return Step(load=load_of(shape, element), cards=cards, stored_bytes=stored, dtype=peak.dtype)


def peak_of(shape: ModelShape, gpu: Gpu) -> Rate:
    """The rate of the model's products on the board, by how its weights are stored."""
    scheme = shape.quantisation
    dtype = {"float16": "fp16", "bfloat16": "bf16"}.get(shape.dtype, "fp16")
    if scheme is not None and scheme.method == "gguf":
        return ggml_rate(gpu, quantised=True)
    if scheme is None:
        return product_rate(gpu, dtype, dtype=dtype)
    kind = (
        scheme.format
        if scheme.format in ("nvfp4", "mxfp4")
        else f"{'fp' if scheme.type == 'float' else 'int'}{scheme.bits}"
    )
    return product_rate(gpu, kind, scheme.activation_bits or 16, dtype)
