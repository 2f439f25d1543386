"""The peak rate of a card for a number format and a shape: only where the path for it exists, and why where it does not.

Rates come from the GPU table: dense, with 32-bit accumulation. A rate is a ceiling; kernels reach a part of it. Weight-only
quantisation (int4, or 8 and 4 bits on a card without their path) multiplies in 16 bits, so it runs at the 16-bit rate.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.knowledge.gpus import Gpu

Path = Literal["tensor-cores", "cuda-cores", "none"]
Version = tuple[int, int]

FIRST_CAPABILITY: dict[str, Version] = {
    "fp16": (7, 0), "fp16_fp16acc": (7, 0), "int8": (7, 2), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "fp4": (10, 0),
}  # fmt: skip
"""The compute capability from which on tensor cores multiply a format (matrix instructions of the PTX ISA)."""
BITS = {"fp32": 32, "tf32": 32, "fp16": 16, "fp16_fp16acc": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}
ALIASES = {
    "float16": "fp16", "half": "fp16", "f16": "fp16", "bfloat16": "bf16", "float32": "fp32", "f32": "fp32",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e4m3": "fp8", "e5m2": "fp8", "float8": "fp8", "mxfp8": "fp8",
    "nvfp4": "fp4", "mxfp4": "fp4", "i8": "int8", "w8a8": "int8", "fp16-acc16": "fp16_fp16acc",
}  # fmt: skip
WEIGHT_ONLY = frozenset({"int4", "w4a16", "w8a16", "awq", "gptq", "nf4", "bnb"})
"""Names of formats whose weights are unpacked to 16 bits before the product: they have no rate of their own."""
VECTOR_BYTES = 16
"""Rows must start on so many bytes for the tensor-core kernels of cuBLASLt and CUTLASS (FP8, INT8, FP4: else refused)."""
TILE, WIDE_TILE = 64, 128
"""Columns of the smaller and the usual output tile of a matrix kernel: the last tile is computed whole."""


class BadFormat(ValueError):
    """A number format that is not known."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A peak rate, or why there is none (`refused`). `basis`: `read` from the table, or `computed` from another format's."""

    gpu: str
    dtype: str
    flops_per_s: float | None
    path: Path
    basis: Literal["read", "computed", ""] = ""
    confidence: str = ""
    source: tuple[str, ...] = ()
    refused: str = ""
    notes: tuple[str, ...] = ()


class Matmul(msgspec.Struct, frozen=True, kw_only=True):
    """A weight of `k` inputs and `n` outputs of the whole model, and how tensor parallelism cuts it."""

    name: str
    k: int
    n: int
    split: Literal["outputs", "inputs", "none"] = "none"


class ShapeRate(msgspec.Struct, frozen=True, kw_only=True):
    """A product's ceiling on one GPU. `useful_share`: part of the computed tiles that is wanted (`n` over `n` rounded up)."""

    name: str
    k: int
    n: int
    dtype: str
    flops_per_s: float | None
    useful_share: float
    refused: str = ""
    notes: tuple[str, ...] = ()


def canonical(dtype: str) -> str:
    """The table's name of a format (`bfloat16` → `bf16`); raises `BadFormat` where it is none that is multiplied."""
    name = dtype.strip().lower().replace(" ", "")
    name = ALIASES.get(name, name)
    if name in WEIGHT_ONLY:
        raise BadFormat(
            f"{dtype} is a format of stored weights: they are multiplied in 16 bits, so ask for bf16 or fp16"
        )
    if name not in BITS:
        raise BadFormat(f"no number format is called {dtype!r}: {', '.join(sorted(BITS))}")
    return name


def rate(gpu: Gpu, dtype: str) -> Rate:
    """The card's dense peak for a format; `refused` says why where it has none."""
    name = canonical(dtype)
    path: Path = "tensor-cores" if _has_path(gpu, name) else "none"
    if name in gpu.tflops and (path != "none" or capability(gpu) < (7, 0)):
        notes = () if path != "none" else ("no tensor cores: the rate of the CUDA cores",)
        return _rate(gpu, name, gpu.tflops[name], "read", path if path != "none" else "cuda-cores", notes)
    if path == "none":
        return _refused(gpu, name, _no_path(gpu, name))
    if derived := _derived(gpu, name):
        value, note = derived
        return _rate(gpu, name, value, "computed", path, (note,))
    return _refused(gpu, name, f"the GPU table has no confirmed {name} figure for {gpu.names[0]}")


def product_rate(gpu: Gpu, weights: str, activation_bits: int = 16, dtype: str = "bf16") -> Rate:
    """The rate of products with weights stored as `weights` and activations of so many bits, in a model of `dtype`.

    Where the card lacks the narrow path, engines unpack the weights and multiply in 16 bits: that rate, and a note.
    """
    stored = ALIASES.get(weights.lower(), weights.lower())
    notes: list[str] = []
    if activation_bits < 16 and stored not in WEIGHT_ONLY:
        narrow = rate(gpu, stored)
        if not narrow.refused:
            return narrow
        notes.append(f"{narrow.refused}: weights are unpacked and multiplied in 16 bits")
    elif stored in WEIGHT_ONLY or BITS.get(stored, 16) < 16:
        notes.append(f"{weights} weights with 16-bit activations are unpacked and multiplied in 16 bits")
    wide = rate(gpu, dtype)
    if wide.refused and canonical(dtype) == "bf16":
        notes.append(f"{wide.refused}: engines run the model in fp16")
        wide = rate(gpu, "fp16")
    return msgspec.structs.replace(wide, notes=wide.notes + tuple(notes))


def ggml_rate(gpu: Gpu, *, quantised: bool) -> Rate:
    """The rate of llama.cpp's products: its kernels multiply quantised weights in int8 (MMQ), else in fp16.

    Some of its fp16 products keep 16-bit sums, which GeForce boards do twice as fast: the greatest of what it may use.
    """
    names = ("fp16", "fp16_fp16acc", "int8") if quantised else ("fp16", "fp16_fp16acc", "bf16")
    found = [one for name in names if (one := rate(gpu, name)).flops_per_s]
    if not found:
        return rate(gpu, names[0])
    best = max(found, key=lambda one: one.flops_per_s or 0.0)
    return msgspec.structs.replace(
        best, notes=(*best.notes, f"llama.cpp: {best.dtype} is the fastest of its products here")
    )


def matmul_rate(
    matmul: Matmul,
    peak: Rate,
    tensor_parallel: int = 1,
    *,
    wide: Rate | None = None,
    block: tuple[int, int] | None = None,
) -> ShapeRate:
    """The ceiling of one product on one of `tensor_parallel` GPUs.

    `wide`: the 16-bit rate, which serves where the narrow kernels refuse the shape; `block`: inputs x outputs that share
    a scale (FP8 with block scales): a shard must be whole blocks, or the engine refuses to load.
    """
    k, n, refused = _shard(matmul, tensor_parallel)
    if not refused and block and (k % block[0] or n % block[1]):
        refused = (
            f"a shard of {k} x {n} is not whole scale blocks of {block[0]} x {block[1]}: engines refuse to load it"
        )
    used, notes = peak, list[str]()
    if not refused and (unaligned := _unaligned(k, n, peak.dtype)):
        if BITS[peak.dtype] < 16:
            used = wide or msgspec.structs.replace(peak, flops_per_s=None, refused=unaligned)
            notes.append(f"{unaligned}: the {peak.dtype} kernels refuse it")
        else:
            notes.append(f"{unaligned}: a slower kernel runs, the rate stays a ceiling")
    share = tile_share(n)
    if not refused and share < 1:
        notes.append(f"{n} columns fill {share:.0%} of tiles of {TILE} ({tile_share(n, WIDE_TILE):.0%} of {WIDE_TILE})")
    reached = used.flops_per_s * share if used.flops_per_s and not refused else None
    return ShapeRate(
        name=matmul.name,
        k=k,
        n=n,
        dtype=used.dtype,
        flops_per_s=reached,
        useful_share=share,
        refused=refused or used.refused,
        notes=tuple(notes),
    )


def blended(shapes: tuple[ShapeRate, ...]) -> float | None:
    """FLOP/s of one pass over all the products: total work over total time; None where one has no rate or there is none."""
    work = [(shape.k * shape.n, shape.flops_per_s) for shape in shapes]
    seconds = 0.0
    for size, speed in work:
        if not speed:
            return None
        seconds += size / speed
    return sum(size for size, _ in work) / seconds if seconds else None


def tile_share(n: int, tile: int = TILE) -> float:
    """The wanted part of the columns that a kernel with tiles of so many computes."""
    return n / (-(-n // tile) * tile) if n else 1.0


def capability(gpu: Gpu) -> Version:
    """`(8, 9)` of a board whose row says `8.9`."""
    major, _, minor = gpu.capability.partition(".")
    return int(major), int(minor or 0)


def _has_path(gpu: Gpu, dtype: str) -> bool:
    first = FIRST_CAPABILITY.get(dtype)
    return first is not None and capability(gpu) >= first


def _no_path(gpu: Gpu, dtype: str) -> str:
    first = FIRST_CAPABILITY.get(dtype)
    if first is None:
        return f"tensor cores do not multiply {dtype}, and the GPU table holds no rate of the CUDA cores"
    return f"{gpu.names[0]} (compute capability {gpu.capability}) has no {dtype} path: tensor cores have it from {first[0]}.{first[1]} on"


def _derived(gpu: Gpu, dtype: str) -> tuple[float, str] | None:
    """TFLOPS that follow from another format's: equal for both 16-bit formats, half per doubling of the width."""
    known = gpu.tflops
    if dtype == "bf16" and "fp16" in known:
        return known["fp16"], "bf16 runs at the fp16 rate on tensor cores from 8.0 on"
    if dtype in ("fp16", "bf16") and "fp8" in known:
        return known["fp8"] / 2, "half the fp8 figure, as on every listed card that states both"
    if dtype == "tf32" and "fp16" in known:
        return known["fp16"] / 2, "half the 16-bit figure"
    return None


def _rate(
    gpu: Gpu, dtype: str, tflops: float, basis: Literal["read", "computed"], path: Path, notes: tuple[str, ...]
) -> Rate:
    return Rate(
        gpu=gpu.names[0],
        dtype=dtype,
        flops_per_s=tflops * 1e12,
        path=path,
        basis=basis,
        confidence=gpu.confidence,
        source=gpu.source,
        notes=notes,
    )


def _refused(gpu: Gpu, dtype: str, why: str) -> Rate:
    return Rate(gpu=gpu.names[0], dtype=dtype, flops_per_s=None, path="none", refused=why)


def _shard(matmul: Matmul, ways: int) -> tuple[int, int, str]:
    """Inputs and outputs of one GPU's part, and why it cannot be cut so."""
    size = {"outputs": matmul.n, "inputs": matmul.k, "none": 0}[matmul.split]
    if size % ways:
        return (
            matmul.k,
            matmul.n,
            f"{size} {matmul.split} of {matmul.name} do not divide by tensor parallel size {ways}",
        )
    k = matmul.k // ways if matmul.split == "inputs" else matmul.k
    n = matmul.n // ways if matmul.split == "outputs" else matmul.n
    return k, n, ""


def _unaligned(k: int, n: int, dtype: str) -> str:
    """Which side is no multiple of 16 bytes; "" where both are."""
    unit = VECTOR_BYTES * 8 // BITS[dtype]
    odd = [f"{name} = {size}" for name, size in (("k", k), ("n", n)) if size % unit]
    return f"{' and '.join(odd)} not in multiples of {unit} ({VECTOR_BYTES} bytes)" if odd else ""
