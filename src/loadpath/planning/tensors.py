"""A model's weight tensors as one rank of a parallel deployment holds them, equal layers together.

Tensor parallelism divides the vocabulary, and layers by the rules of `layer_tensors`; pipeline stages own a run of
layers each; what lies outside the layers is on the first stage or the last.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from loadpath.core.shape import CompressedAttention, Dense, GatedDelta, Layer, Mamba, ModelShape
from loadpath.planning.layer_tensors import Tensor, dense_tensors, expert_tensors, mixer_tensors
from loadpath.planning.split import WHOLE, Split, ceil_div, stage_layers


class Group(msgspec.Struct, frozen=True):
    """Tensors that `layers` have alike, once each; no layers: tensors outside the layers, once in all."""

    layers: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    @property
    def times(self) -> int:
        return len(self.layers) or 1


@lru_cache(maxsize=512)
def tensors(shape: ModelShape, split: Split = WHOLE) -> tuple[Group, ...]:
    """All weight tensors of `shape` on one rank, grouped by equal layers. MTP layers are apart: `drafter_tensors`."""
    alike: dict[Layer, list[int]] = {}
    for index in stage_layers(len(shape.layers), split):
        alike.setdefault(shape.layers[index], []).append(index)
    kept = shape.quantisation.kept_layers if shape.quantisation else frozenset()
    groups = [Group((), _outside(shape, split))]
    for layer, indices in alike.items():
        of_layer = _layer(layer, shape.hidden, shape.norm_vectors, shape.per_layer_embedding, shape.hyper_connections, split)  # fmt: skip
        for part in (tuple(i for i in indices if i not in kept), tuple(i for i in indices if i in kept)):
            if part:
                groups.append(Group(part, of_layer))
    if shape.encoder and split.stage == 0:
        for layer in dict.fromkeys(shape.encoder):
            count = shape.encoder.count(layer)
            whole = _layer(layer, shape.hidden, shape.norm_vectors, 0, 0, split)
            groups.extend(Group((), whole) for _ in range(count))
    return tuple(groups)


def vocab_rows(shape: ModelShape, split: Split) -> int:
    """Rows of the embedding on one rank, padded."""
    return ceil_div(shape.vocab, split.vocab_multiple) * split.vocab_multiple // split.tp


def _outside(shape: ModelShape, split: Split) -> tuple[Tensor, ...]:
    """Embeddings, head, final norm, towers: what is in no layer."""
    first, last, hidden = split.stage == 0, split.stage == split.pp - 1, shape.hidden
    rows, found = vocab_rows(shape, split), []
    if first or (shape.tied and last):
        found.append(Tensor("embedding", "embedding", rows, hidden))
    if shape.learned_positions and first:
        found.append(Tensor("positions", "position", shape.learned_positions, hidden))
    if last and not shape.tied:
        found.append(Tensor("lm_head", "lm_head", rows, hidden, linear=True))
        if shape.lm_head_bias:
            found.append(Tensor("lm_head.bias", "bias", rows))
    if (width := shape.per_layer_embedding) and first:
        all_layers = width * len(shape.layers)
        found.append(Tensor("per_layer_embedding", "embedding", shape.per_layer_vocab // split.tp, all_layers))
        found.append(Tensor("per_layer_projection", "projector", all_layers, hidden))
        found.append(Tensor("per_layer_norm", "norm", width))
    if first:
        for tower in shape.towers:
            share = 1 if split.whole_towers else split.tp
            found.append(Tensor(tower.kind, tower.kind, tower.parameters // share))
        if shape.other:
            found.append(Tensor("other", "norm", shape.other))
    if last:
        found.append(Tensor("norm", "norm", hidden * shape.norm_vectors))
        ways = shape.hyper_connections
        if ways and any(isinstance(mixer, CompressedAttention) for mixer in shape.layers[-1].mixers):
            found.append(Tensor("hyper_head", "router", ways, ways * hidden, dtype="float32"))
            found.append(Tensor("hyper_head.base", "norm", ways + 1, dtype="float32"))
    return tuple(found)


@lru_cache(maxsize=4096)
def _layer(layer: Layer, hidden: int, norm_vectors: int, per_layer: int, ways: int, split: Split) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    for mixer in layer.mixers:
        found += mixer_tensors(mixer, hidden, split)
    for feed in layer.feeds:
        found += (
            dense_tensors(feed, hidden, split.tp) if isinstance(feed, Dense) else expert_tensors(feed, hidden, split)
        )
    found += [Tensor("norms", "norm", hidden * norm_vectors)] * layer.norms
    if layer.other:
        found.append(Tensor("other", "norm", layer.other))
    if per_layer:
        found.append(Tensor("per_layer_gate", "projector", per_layer, hidden))
        found.append(Tensor("per_layer_up", "projector", hidden, per_layer))
        found.append(Tensor("per_layer_norm", "norm", hidden))
    if ways:  # mixing weights of the residual streams, before each of the two blocks
        rows = ways * (ways + 2)
        found += [Tensor("hyper", "router", rows, ways * hidden, dtype="float32"),
                  Tensor("hyper.base", "norm", rows + 3, dtype="float32")] * 2  # fmt: skip
    return tuple(found)


@lru_cache(maxsize=512)
def drafter_tensors(shape: ModelShape, split: Split = WHOLE) -> tuple[Group, ...]:
    """The MTP layers that a checkpoint carries: each one more attention layer, with the projection that joins hidden
    state and embedding. Empty where it carries none."""
    drafter = shape.drafter
    if drafter is None:
        return ()
    like = next(
        (x for x in reversed(shape.layers) if any(not isinstance(m, GatedDelta | Mamba) for m in x.mixers)), None
    )
    layer = like or shape.layers[-1]
    hidden, found = shape.hidden, []
    whole = msgspec.structs.replace(split, stage=0, pp=1, partition=())
    for _ in range(drafter.layers):
        found += list(_layer(layer, hidden, shape.norm_vectors, 0, 0, whole))
        found.append(Tensor("joins", "projector", hidden, 2 * hidden))
        found.append(Tensor("norms", "norm", 3 * hidden))
    if drafter.own_embeddings:
        rows = vocab_rows(shape, whole)
        found += [Tensor("embedding", "embedding", rows, hidden), Tensor("lm_head", "lm_head", rows, hidden)]
    return (Group((), tuple(found)),)
