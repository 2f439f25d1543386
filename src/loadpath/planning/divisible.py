"""Whether quantised matrices can be cut over ranks: a block or group of inputs that shares a scale cannot be.

Engines refuse such a start while they build the model (vLLM and SGLang: "not divisible by weight quantization
block_n", "input size is not aligned with the quantized weight shape").
"""

from __future__ import annotations

import msgspec

from loadpath.core.shape import Dense, Experts, ModelShape, Quantisation, Role
from loadpath.planning.per_shape import per_shape
from loadpath.planning.split import Split

_LESS = (64, 32, 16, 8, 4, 2, 1)


class Uncut(msgspec.Struct, frozen=True):
    """`share`: columns of `part` on one rank, no multiple of the `block` that shares a scale; `ranks`: the most (powers
    of two, below those asked for) over which it divides; `experts`: expert parallelism avoids the cut."""

    part: str
    share: int
    block: int
    ranks: int
    experts: bool


@per_shape
def uncut(shape: ModelShape, split: Split) -> Uncut | None:
    """The first feed-forward width that does not divide over the split's ranks in whole blocks; None: all do."""
    quantisation = shape.quantisation
    if quantisation is None or split.tp == 1:
        return None
    for layer in dict.fromkeys(shape.layers):
        for feed in layer.feeds:
            for part, role, width in _widths(feed, split):
                block = _block(quantisation, role)
                if block and width % (split.tp * block):
                    ranks = next(r for r in _LESS if r < split.tp and (r == 1 or width % (r * block) == 0))
                    return Uncut(part, width // split.tp, block, ranks, role == "experts")
    return None


def _widths(feed: Dense | Experts, split: Split) -> list[tuple[str, Role, int]]:
    """Widths that tensor parallelism cuts."""
    if isinstance(feed, Dense):
        return [("feed-forward width", "mlp", feed.width)]
    found: list[tuple[str, Role, int]] = []
    if not split.ep:
        found.append(("expert width", "experts", feed.width))
    if feed.shared_width:
        found.append(("shared experts' width", "shared-experts", feed.shared_width))
    return found


def _block(quantisation: Quantisation, role: Role) -> int:
    """Columns that share a scale; 0: they may be cut anywhere."""
    if role not in quantisation.modules or (role == "experts" and quantisation.expert_format):
        return 0
    if quantisation.block:
        return max(quantisation.block)
    integers = quantisation.method in ("awq", "gptq", "compressed-tensors", "auto-round") and not quantisation.format
    return quantisation.group_size if integers and role == "mlp" and quantisation.group_size > 0 else 0
