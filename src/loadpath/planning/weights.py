"""Bytes of a model's weights on one rank: as an engine that allocates with PyTorch counts them, and as stored.

What an engine keeps beside the checkpoint's tensors is stated in `Keeping`; engines set it by version and card.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from loadpath.core.plan import Basis
from loadpath.core.shape import LatentAttention, ModelShape, Quantisation, Role
from loadpath.core.units import MIB
from loadpath.planning.formats import dtype_bytes, stored
from loadpath.planning.tensors import (
    Group,
    Split,
    Tensor,
    ceil_div,
    drafter_tensors,
    stage_layers,
    tensors,
)


class Keeping(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """How an engine keeps weights in GPU memory.

    `allocator`: figures count whole allocator blocks. `vocab_multiple`: the vocabulary is padded to it. `rope_tables`:
    every rank holds the cos/sin tables in the model's dtype. `latent_copies`: MLA's up-projection is kept a second
    time in 16 bits for decoding. `mxfp4_multiples`: expert width and hidden width are padded to these for the MXFP4
    kernel. `casts_float32`: float32 checkpoints are served in 16 bits.
    """

    allocator: bool = True
    vocab_multiple: int = 64
    rope_tables: bool = True
    latent_copies: bool = True
    mxfp4_multiples: tuple[int, int] = (1, 1)
    casts_float32: bool = True


TORCH_ENGINE = Keeping()
"""vLLM and SGLang without a card's or version's particulars."""
AS_STORED = Keeping(allocator=False, vocab_multiple=1, rope_tables=False, latent_copies=False, casts_float32=False)
"""The checkpoint's own bytes."""


class Weights(msgspec.Struct, frozen=True):
    """`bytes` on one rank; `by_role`: their parts (`rope`: cos/sin tables, `copies`: second copies, `drafter`: MTP);
    `notes`: what was assumed."""

    bytes: int
    by_role: dict[str, int]
    basis: Basis
    notes: tuple[str, ...] = ()


def allocated(size: int) -> int:
    """What PyTorch's caching allocator counts for a tensor of `size` bytes: multiples of 512; from 10 MiB on whole
    segments of 2 MiB where at most 1 MiB would be left over, which is not split off."""
    size = ceil_div(size, 512) * 512
    if size >= 10 * MIB:
        segment = ceil_div(size, 2 * MIB) * 2 * MIB
        if segment - size <= MIB:
            return segment
    return size


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
    by_role: dict[str, int] = {}
    resident = keeping is not AS_STORED and keeping != AS_STORED
    quantisation = shape.quantisation
    for role, size in _sizes(tensors(shape, split), quantisation, width, keeping, resident):
        by_role[role] = by_role.get(role, 0) + size
    if drafter:
        own = _sizes(drafter_tensors(shape, split), quantisation, width, keeping, resident)
        by_role["drafter"] = sum(size for _, size in own)
    if keeping.latent_copies and (copies := _latent_copies(shape, split, keeping)):
        by_role["copies"] = copies
    if keeping.rope_tables and shape.rope:
        round_up = allocated if keeping.allocator else int
        by_role["rope"] = sum(round_up(table.rows * table.width * width) for table in shape.rope)
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


def _sizes(
    groups: tuple[Group, ...], quantisation: Quantisation | None, width: int, keeping: Keeping, resident: bool
) -> Iterator[tuple[Role, int]]:
    """Role and bytes of every tensor, equal layers together."""
    kept = quantisation.kept_layers if quantisation else frozenset()
    for group in groups:
        plain = bool(group.layers) and group.layers[0] in kept
        for tensor in group.tensors:
            arrays = stored(_padded(tensor, quantisation, keeping), quantisation, width, plain, resident)
            size = sum(allocated(x) for x in arrays) if keeping.allocator else sum(arrays)
            yield tensor.role, size * group.times


def _padded(tensor: Tensor, quantisation: Quantisation | None, keeping: Keeping) -> Tensor:
    """An expert matrix as the MXFP4 kernel wants it: expert width and hidden width rounded up."""
    if keeping.mxfp4_multiples == (1, 1) or quantisation is None or not tensor.name.startswith(("w13", "w2")):
        return tensor
    if "mxfp4" not in (quantisation.format, quantisation.expert_format):
        return tensor
    width_to, hidden_to = keeping.mxfp4_multiples
    changes: dict[str, Any] = {}
    if tensor.name.startswith("w13"):
        changes["rows"] = ceil_div(tensor.rows // tensor.parts, width_to) * width_to * tensor.parts
        changes["cols"] = ceil_div(tensor.cols, hidden_to) * hidden_to if tensor.cols > 1 else 1
    else:
        changes["rows"] = ceil_div(tensor.rows, hidden_to) * hidden_to
        changes["cols"] = ceil_div(tensor.cols, width_to) * width_to if tensor.cols > 1 else 1
    return msgspec.structs.replace(tensor, **changes)


def _latent_copies(shape: ModelShape, split: Split, keeping: Keeping) -> int:
    """Bytes of MLA's up-projection kept once more in 16 bits."""
    total = 0
    for index in stage_layers(len(shape.layers), split):
        for mixer in shape.layers[index].mixers:
            if isinstance(mixer, LatentAttention):
                heads = ceil_div(mixer.heads, split.heads)
                size = 2 * heads * (mixer.nope_dim + mixer.v_dim) * mixer.kv_rank
                total += allocated(size) if keeping.allocator else size
    return total
