"""The numerical identity of a deployment: what its numbers are made of, and how two that sound alike differ.

"4-bit" says little: groups, zero points, the type of the scales, what the activations become, in which type products
are taken and summed, and the kernel that a card gets decide about accuracy and speed.
"""

from __future__ import annotations

from loadpath.core.plan import Identity
from loadpath.core.shape import Experts, ModelShape, Quantisation
from loadpath.knowledge.kernels import Capability, Kernel, Part, kernel_for
from loadpath.planning.per_shape import per_shape

_TYPES = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
_KV_TYPES = {
    "fp8": "FP8 e4m3", "fp8_e4m3": "FP8 e4m3", "fp8_e5m2": "FP8 e5m2", "fp8_ds_mla": "FP8 e4m3, BF16 for the rotary part",
    "int8": "INT8", "nvfp4": "FP4 e2m1, FP8 scales of 16", "q8_0": "q8_0 (8 bits, blocks of 32)",
    "q4_0": "q4_0 (4 bits, blocks of 32)", "f16": "FP16", "bf16": "BF16", "f32": "FP32",
}  # fmt: skip
_SAID = (
    ("weights", "weights"), ("activations", "activations"), ("kv_cache", "KV cache"), ("multiply", "products"),
    ("accumulate", "sums"), ("kernel", "kernel"), ("fallback", "native path"),
)  # fmt: skip


@per_shape
def identity(
    shape: ModelShape,
    engine: str,
    capability: Capability | None,
    version: tuple[int, ...] | None = None,
    kv_dtype: str = "auto",
    dtype: str = "",
) -> Identity:
    """What `engine` computes with on a card of this compute capability. Unknown card or row: kernel and types left open."""
    name = dtype or shape.dtype
    served = _TYPES.get(name, name)
    quantisation = shape.quantisation
    scheme = scheme_key(quantisation)
    row = kernel_for(engine, scheme, _part(shape), capability, version) if capability else None
    return Identity(
        weights=weights_text(quantisation, served),
        activations=_filled(row, "activations", served),
        kv_cache=_kv_text(kv_dtype, quantisation, served),
        multiply=_filled(row, "multiply", served),
        accumulate=row.accumulate if row else "",
        kernel=row.kernel if row else "",
        fallback=row.fallback if row else "",
    )


def differences(one: Identity, other: Identity) -> tuple[str, ...]:
    """What differs between two deployments, a sentence each; empty: numerically the same kind."""
    found = []
    for field, said in _SAID:
        left, right = getattr(one, field), getattr(other, field)
        if left != right:
            none = "used" if field == "fallback" else "not known"
            found.append(f"{said}: {left or none} against {right or none}")
    return tuple(found)


def scheme_key(quantisation: Quantisation | None) -> str:
    """The kernel table's word for a stored format."""
    q = quantisation
    if q is None or (q.method == "gguf" and q.bits >= 16):
        return "plain"
    if q.method == "gguf":
        return "gguf"
    if q.format in ("nvfp4", "mxfp4", "nf4"):
        return q.format
    if q.bits == 8 and q.type == "float":
        return "fp8-block" if q.block else "fp8" if q.activation_bits else "fp8-weights"
    if q.bits == 8 and q.method != "gptq":
        return "int8" if q.activation_bits else "int8-weights"
    return "awq" if q.method == "awq" else "gptq" if q.method in ("gptq", "auto-round") else "wna16"


def weights_text(quantisation: Quantisation | None, served: str = "BF16") -> str:
    """`INT4 (GPTQ), groups of 128, FP16 scales; the rest BF16`."""
    q = quantisation
    if q is None:
        return served
    if q.method == "gguf":
        return f"GGUF {q.format or f'{q.bits} bits'}"
    parts = [f"{_element(q)} ({q.method}{', made at load' if q.online else ''})", *_scales(q, served)]
    if q.desc_act:
        parts.append("inputs reordered by activation size")
    if q.expert_format:
        parts.append(f"experts {q.expert_format.upper()}")
    if q.fp8_modules:
        parts.append(f"FP8 for {' and '.join(sorted(q.fp8_modules))}")
    kept = (
        f"; layers {', '.join(map(str, sorted(q.kept_layers)))} and the rest {served}"
        if q.kept_layers
        else f"; the rest {served}"
    )
    return ", ".join(parts) + kept


def _element(q: Quantisation) -> str:
    named = {"nvfp4": "FP4 e2m1", "mxfp4": "FP4 e2m1", "nf4": "NF4"}
    return named.get(q.format) or ("FP8 e4m3" if q.type == "float" and q.bits == 8 else f"INT{q.bits}")


def _scales(q: Quantisation, served: str) -> list[str]:
    """Groups, the type of their scales, zero points."""
    if q.format == "nvfp4":
        return ["groups of 16 with FP8 scales and one FP32 scale a matrix"]
    if q.format == "mxfp4":
        return ["groups of 32 with powers of two as scales"]
    if q.format == "nf4":
        return [f"groups of {q.group_size or 64} by their largest value"]
    if q.block:
        return [f"blocks of {q.block[0]} x {q.block[1]} with FP32 scales"]
    if q.group_size > 0:
        zeros = "zero points" if q.zero_point else "symmetric"
        return [f"groups of {q.group_size} with {served} scales, {zeros}"]
    return [
        {"channel": "one scale an output channel", "tensor": "one scale a matrix"}.get(q.strategy, "scales as stored")
    ]


def _part(shape: ModelShape) -> Part:
    """Which weights decide: experts where they are quantised (or nothing is) and the model has any."""
    experts = any(isinstance(feed, Experts) for layer in shape.layers[-1:] for feed in layer.feeds)
    quantised = shape.quantisation is None or "experts" in shape.quantisation.modules
    return "experts" if experts and quantised else "linear"


def _kv_text(kv_dtype: str, quantisation: Quantisation | None, served: str) -> str:
    name = kv_dtype.lower()
    if name in ("auto", ""):
        return "FP8 e4m3 (asked for by the checkpoint)" if quantisation and quantisation.kv_bits == 8 else served
    return _KV_TYPES.get(name) or _TYPES.get(name, kv_dtype)


def _filled(row: Kernel | None, field: str, served: str) -> str:
    return getattr(row, field).replace("{dtype}", served) if row else ""
