"""Bytes of a model's weights on one rank: as an engine that allocates with PyTorch counts them, and as stored.

What an engine keeps beside the checkpoint's tensors is stated in `Keeping`; engines set it by version and card.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from loadpath.core.plan import Basis
from loadpath.core.shape import Attention, LatentAttention, ModelShape, Quantisation
from loadpath.planning.allocator import counted
from loadpath.planning.formats import SCALE_BYTES, dtype_bytes, scheme_of, stored
from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.mxfp4 import Mxfp4Kernel, bias_arrays, matrix_arrays
from loadpath.planning.split import Split, ceil_div, kv_heads, stage_layers
from loadpath.planning.tensors import Group, drafter_tensors, tensors


class Keeping(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """How an engine keeps weights in GPU memory.

    `allocator`: figures count whole allocator blocks. `vocab_multiple`: the vocabulary is padded to it. `rope_tables`:
    every rank holds the cos/sin tables in the model's dtype; `rope_per_layer`: every layer holds its own.
    `latent_copies`: MLA's up-projection is kept a second time in 16 bits for decoding. `value_copies`: where values are
    the keys (Gemma 4), the key projection is loaded a second time as theirs. `mxfp4`: the kernel that the experts are
    laid out for; `nvfp4_rows`: the multiple to which NVFP4 experts without a gate are padded. `zero_points`: those of
    symmetric GPTQ files stay loaded though no kernel reads them. `casts_float32`: float32 checkpoints are served in 16
    bits. `stored`: nothing of all this, the files' own bytes.
    """

    allocator: bool = True
    vocab_multiple: int = 64
    rope_tables: bool = True
    rope_per_layer: bool = False
    latent_copies: bool = True
    value_copies: bool = True
    mxfp4: Mxfp4Kernel = ""
    nvfp4_rows: int = 1
    zero_points: bool = False
    casts_float32: bool = True
    stored: bool = False


TORCH_ENGINE = Keeping()
"""vLLM and SGLang without a card's or version's particulars."""
AS_STORED = Keeping(
    allocator=False,
    vocab_multiple=1,
    rope_tables=False,
    latent_copies=False,
    value_copies=False,
    casts_float32=False,
    stored=True,
)
"""The checkpoint's own bytes."""


class Weights(msgspec.Struct, frozen=True):
    """`bytes` on one rank; `by_role`: their parts (`rope`: cos/sin tables, `copies`: second copies, `drafter`: MTP);
    `notes`: what was assumed."""

    bytes: int
    by_role: dict[str, int]
    basis: Basis
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def weights(
    shape: ModelShape,
    split: Split = Split(),  # noqa: B008 (frozen)
    keeping: Keeping = TORCH_ENGINE,
    dtype: str = "",
    drafter: bool = False,
) -> Weights:
    """Weights of `shape` on the rank that `split` names. `dtype`: of unquantised weights, "": the model's own;
    `drafter`: with the MTP layers that the checkpoint carries."""
    width = element_bytes(shape, keeping, dtype)
    split = msgspec.structs.replace(split, vocab_multiple=keeping.vocab_multiple)
    arrays = list(_arrays(shape, tensors(shape, split), width, keeping))
    if drafter:
        extra = _of_groups(drafter_tensors(shape, split), shape.quantisation, width, keeping)
        arrays += [("drafter", size) for _, size in extra]
    if keeping.latent_copies:
        arrays += [("copies", size) for size in _latent_copies(shape, split)]
    if keeping.value_copies:
        arrays += [("copies", size) for size in _value_copies(shape, split, width)]
    sizes = [size for _, size in arrays]
    blocks = counted(sizes) if keeping.allocator else sizes
    by_role: dict[str, int] = {}
    for (role, _), block in zip(arrays, blocks, strict=True):
        by_role[role] = by_role.get(role, 0) + block
    notes = tuple(
        f"the {tower.kind} tower's {tower.parameters / 1e6:,.0f} million parameters are assumed"
        for tower in shape.towers
        if tower.assumed
    )
    return Weights(sum(by_role.values()), by_role, "assumed" if shape.basis == "inferred" else "exact", notes)


def element_bytes(shape: ModelShape, keeping: Keeping, dtype: str = "") -> int:
    """Bytes of an unquantised weight's element."""
    if not dtype and shape.dtype == "float32" and keeping.casts_float32:
        return 2
    return dtype_bytes(dtype or shape.dtype)


def _arrays(shape: ModelShape, groups: tuple[Group, ...], width: int, keeping: Keeping) -> Iterator[tuple[str, int]]:
    """Role and bytes of every array, in about the order in which a model's constructor makes them."""
    outside = [group for group in groups if not group.layers]
    first = tuple(tensor for group in outside for tensor in group.tensors if tensor.role == "embedding")
    rest = tuple(tensor for group in outside for tensor in group.tensors if tensor.role != "embedding")
    yield from _of_tensors(first, shape.quantisation, width, keeping)
    ropes = [("rope", table.rows * table.width * width) for table in shape.rope] if keeping.rope_tables else []
    if not keeping.rope_per_layer:
        yield from ropes
    layers = {layer: group for group in groups for layer in group.layers}
    made = {id(group): list(_of_groups((group,), shape.quantisation, width, keeping)) for group in layers.values()}
    for layer in sorted(layers):
        yield from made[id(layers[layer])]
        if keeping.rope_per_layer:
            yield from ropes
    yield from _of_tensors(rest, shape.quantisation, width, keeping)


def _of_groups(
    groups: tuple[Group, ...], quantisation: Quantisation | None, width: int, keeping: Keeping
) -> Iterator[tuple[str, int]]:
    """Role and bytes of the arrays of each group's tensors, once a group."""
    kept = quantisation.kept_layers if quantisation else frozenset()
    for group in groups:
        yield from _of_tensors(group.tensors, quantisation, width, keeping, bool(kept.intersection(group.layers)))


def _of_tensors(
    these: tuple[Tensor, ...], quantisation: Quantisation | None, width: int, keeping: Keeping, plain: bool = False
) -> Iterator[tuple[str, int]]:
    ungated = any(tensor.name == "w13" and tensor.parts == 1 for tensor in these)
    for tensor in these:
        if ungated and tensor.role == "experts" and scheme_of(tensor, quantisation, plain) == "nvfp4":
            tensor = _padded_expert(tensor, keeping.nvfp4_rows)
        for size in _sizes(tensor, quantisation, width, keeping, plain):
            yield tensor.role, size


def _padded_expert(tensor: Tensor, multiple: int) -> Tensor:
    """An expert matrix whose width (the up-projection's rows, the down-projection's columns) is a multiple."""
    if tensor.name == "w13":
        return msgspec.structs.replace(tensor, rows=ceil_div(tensor.rows, multiple) * multiple)
    return msgspec.structs.replace(tensor, cols=ceil_div(tensor.cols, multiple) * multiple)


def _sizes(
    tensor: Tensor, quantisation: Quantisation | None, width: int, keeping: Keeping, plain: bool
) -> tuple[int, ...]:
    """Bytes of the arrays that hold one tensor."""
    if keeping.mxfp4 and quantisation and not plain and "mxfp4" in (quantisation.format, quantisation.expert_format):
        if tensor.role == "experts":
            return matrix_arrays(tensor, keeping.mxfp4)
        if tensor.name in ("w13.bias", "w2.bias"):
            return bias_arrays(tensor, keeping.mxfp4)
    sizes = stored(tensor, quantisation, width, plain, not keeping.stored)
    if keeping.zero_points and quantisation and scheme_of(tensor, quantisation, plain) == "int4":
        symmetric = quantisation.method in ("gptq", "auto-round") and not quantisation.zero_point
        if symmetric and tensor.role != "experts":
            return (*sizes, sizes[1] * quantisation.bits // (8 * SCALE_BYTES))
    return sizes


def _latent_copies(shape: ModelShape, split: Split) -> Iterator[int]:
    """Bytes of MLA's up-projections, kept once more in 16 bits: one figure a layer."""
    for index in stage_layers(len(shape.layers), split):
        for mixer in shape.layers[index].mixers:
            if isinstance(mixer, LatentAttention):
                heads = ceil_div(mixer.heads, split.heads)
                yield 2 * heads * (mixer.nope_dim + mixer.v_dim) * mixer.kv_rank


def _value_copies(shape: ModelShape, split: Split, width: int) -> Iterator[int]:
    """Bytes of key projections that stand for those of the values too: one figure a layer."""
    kept = shape.quantisation.kept_layers if shape.quantisation else frozenset()
    for index in stage_layers(len(shape.layers), split):
        for mixer in shape.layers[index].mixers:
            if isinstance(mixer, Attention) and mixer.value_is_key and not mixer.reuses_cache:
                rows = kv_heads(mixer, split.heads) * mixer.head_dim
                copy = Tensor("v", "attention", rows, shape.hidden, linear=True)
                yield sum(stored(copy, shape.quantisation, width, index in kept))
