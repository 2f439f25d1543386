"""Parameters of a model: in all, per token, and by what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from loadpath.core.shape import Experts, ModelShape, Role
from loadpath.planning.layer_tensors import Tensor
from loadpath.planning.split import WHOLE
from loadpath.planning.tensors import Group, drafter_tensors, tensors

_NOT_PER_TOKEN = frozenset({"vision", "audio", "position"})


class Parameters(msgspec.Struct, frozen=True):
    """`total` without MTP layers; `active`: those that one token passes through (embedding rows once, towers not);
    `drafter`: the MTP layers that the checkpoint carries besides."""

    total: int
    active: int
    drafter: int
    by_role: dict[Role, int]


def each(groups: tuple[Group, ...]) -> Iterator[tuple[Tensor, int]]:
    """Every different tensor and how often it is there."""
    for group in groups:
        for tensor in group.tensors:
            yield tensor, group.times


@lru_cache(maxsize=512)
def parameters(shape: ModelShape) -> Parameters:
    """Counted from the shape."""
    groups = tensors(shape, WHOLE)
    by_role: dict[Role, int] = {}
    for tensor, times in each(groups):
        by_role[tensor.role] = by_role.get(tensor.role, 0) + tensor.elements * times
    total = sum(by_role.values())
    idle = sum(
        sum(_idle(feed, shape.hidden) for feed in layer.feeds if isinstance(feed, Experts)) for layer in shape.layers
    )
    beside = sum(count for role, count in by_role.items() if role in _NOT_PER_TOKEN)
    if not shape.tied:
        beside += shape.vocab * shape.hidden
    if shape.per_layer_embedding:
        beside += shape.per_layer_vocab * shape.per_layer_embedding * len(shape.layers)
    drafter = sum(tensor.elements * times for tensor, times in each(drafter_tensors(shape, WHOLE)))
    return Parameters(total, total - idle - beside, drafter, by_role)


def _idle(feed: Experts, hidden: int) -> int:
    """Parameters of the experts that a token does not visit."""
    one = (3 if feed.gated else 2) * (feed.latent or hidden) * feed.width
    return (feed.count - feed.active) * one
