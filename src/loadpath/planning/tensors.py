"""A model's weight tensors as one rank of a parallel deployment holds them.

Rules of the split (vLLM and SGLang alike): tensor parallelism divides projections by heads and feed-forward width, the
vocabulary and the experts' width; KV heads fewer than ranks are repeated; latent down-projections, routers, norms and
indexers are whole on every rank. Expert parallelism divides experts instead of their width. Pipeline stages own a run
of layers each. Projections that engines merge (query, key and value; gate and up) are one tensor.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
    ModelShape,
    Role,
)


class Split(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """How a model is divided, and which part of it is looked at.

    `stage` of `pp` pipeline stages; `partition`: layers of each stage where the user set them. `ep`: ranks that share
    the experts (0: their width is divided by `tp`). `attention_tp`: where attention is divided less than the rest
    (data-parallel attention). `whole_towers`: encoders are repeated on every rank. `vocab_multiple`: rows of the
    vocabulary are padded to it.
    """

    tp: int = 1
    pp: int = 1
    stage: int = 0
    ep: int = 0
    attention_tp: int = 0
    partition: tuple[int, ...] = ()
    whole_towers: bool = False
    vocab_multiple: int = 1

    @property
    def heads(self) -> int:
        """Ranks that share the attention heads."""
        return self.attention_tp or self.tp


WHOLE = Split()
"""No split at all: the tensors are the model's parameters."""


class Tensor(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """One weight on one rank: `stack` matrices of `rows` outputs by `cols` inputs in one allocation.

    `name` tells what it is (`qkv`, `gate_up`, `w13`, …); `parts`: merged projections in it; `dtype`: fixed by the model
    (float32 state decay); `linear`: a quantisation scheme applies to it if its role is among the scheme's modules.
    """

    name: str
    role: Role
    rows: int
    cols: int = 1
    stack: int = 1
    parts: int = 1
    dtype: str = ""
    linear: bool = False

    @property
    def elements(self) -> int:
        return self.stack * self.rows * self.cols


class Group(msgspec.Struct, frozen=True):
    """Tensors that `layers` have alike, once each; no layers: tensors outside the layers, once in all."""

    layers: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    @property
    def times(self) -> int:
        return len(self.layers) or 1


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def stage_layers(layers: int, split: Split) -> range:
    """Layers of the split's stage. A remainder goes to the stages before the last, which also holds the head."""
    sizes = list(split.partition)
    if len(sizes) != split.pp or sum(sizes) != layers:
        sizes = [layers // split.pp] * split.pp
        for extra in range(layers % split.pp):
            sizes[split.pp - 2 - extra if split.pp > 1 else 0] += 1
    start = sum(sizes[: split.stage])
    return range(start, start + sizes[split.stage])


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
        found += _dense(feed, hidden, split.tp) if isinstance(feed, Dense) else _experts(feed, hidden, split)
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


def mixer_tensors(mixer: Mixer, hidden: int, split: Split) -> list[Tensor]:
    """Weights of one token mixer."""
    if isinstance(mixer, Attention):
        if mixer.borrowed:
            return []
        return _attention(mixer, hidden, split.heads)
    if isinstance(mixer, LatentAttention):
        return _latent(mixer, hidden, split.heads)
    if isinstance(mixer, CompressedAttention):
        return _compressed(mixer, hidden, split.heads)
    if isinstance(mixer, GatedDelta):
        return _gated_delta(mixer, hidden, split.heads)
    return _mamba(mixer, hidden, split.heads)


def kv_heads(mixer: Attention, tp: int) -> int:
    """KV heads that one rank holds: at least one, so that they are repeated where ranks outnumber them."""
    return max(1, ceil_div(mixer.kv_heads, tp))


def _attention(mixer: Attention, hidden: int, tp: int) -> list[Tensor]:
    heads, own_kv = ceil_div(mixer.heads, tp), kv_heads(mixer, tp)
    queries = heads * mixer.head_dim * (2 if mixer.output_gate else 1)
    keys, values = own_kv * mixer.head_dim, 0 if mixer.value_is_key else own_kv * mixer.value_dim
    if mixer.reuses_cache:
        keys = values = 0
    rows, parts = queries + keys + values, 1 + (keys > 0) + (values > 0)
    found = [
        Tensor("qkv", "attention", rows, hidden, parts=parts, linear=True),
        Tensor("o", "attention", hidden, heads * mixer.value_dim, linear=True),
    ]
    if mixer.qkv_bias:
        found.append(Tensor("qkv.bias", "bias", rows))
    if mixer.o_bias:
        found.append(Tensor("o.bias", "bias", hidden))
    if mixer.qk_norm == "head":
        found += [
            Tensor(name, "norm", mixer.head_dim) for name in ("q_norm", "k_norm")[: 1 if mixer.reuses_cache else 2]
        ]
    elif mixer.qk_norm == "full":
        found += [Tensor("q_norm", "norm", heads * mixer.head_dim), Tensor("k_norm", "norm", own_kv * mixer.head_dim)]
    if mixer.sinks:
        found.append(Tensor("sinks", "norm", heads))
    if mixer.index_heads:
        found += [Tensor("index_q", "indexer", mixer.index_heads * mixer.index_dim, hidden, linear=True),
                  Tensor("index_k", "indexer", mixer.index_dim, hidden, linear=True),
                  Tensor("index_norm", "norm", 2 * mixer.index_dim)]  # fmt: skip
    return found


def _latent(mixer: LatentAttention, hidden: int, tp: int) -> list[Tensor]:
    heads, rank = ceil_div(mixer.heads, tp), mixer.q_rank
    down = mixer.kv_rank + mixer.rope_dim
    wide = heads * (mixer.nope_dim + mixer.rope_dim)
    if rank:
        found = [
            Tensor("qkv_a", "attention", rank + down, hidden, parts=2, linear=True),
            Tensor("q_norm", "norm", rank),
            Tensor("q_b", "attention", wide, rank, linear=True),
        ]
    else:
        found = [Tensor("q", "attention", wide, hidden, linear=True),
                 Tensor("kv_a", "attention", down, hidden, linear=True)]  # fmt: skip
    found += [
        Tensor("kv_norm", "norm", mixer.kv_rank),
        Tensor("kv_b", "attention", heads * (mixer.nope_dim + mixer.v_dim), mixer.kv_rank, linear=True),
        Tensor("o", "attention", hidden, heads * mixer.v_dim, linear=True),
    ]
    if mixer.index_heads and not mixer.index_shared:
        found += [
            Tensor("index_q", "indexer", mixer.index_heads * mixer.index_dim, rank or hidden, linear=True),
            Tensor("index_k", "indexer", mixer.index_dim, hidden, linear=True),
            Tensor("index_norm", "norm", 2 * mixer.index_dim),
            Tensor("index_weights", "indexer", mixer.index_heads, hidden),
        ]
        if mixer.index_pool:
            found += [Tensor("index_pool", "indexer", mixer.index_pool + hidden, mixer.index_dim)]
    return found


def _compressed(mixer: CompressedAttention, hidden: int, tp: int) -> list[Tensor]:
    heads, groups = ceil_div(mixer.heads, tp), ceil_div(mixer.o_groups, tp)
    width = mixer.heads * mixer.head_dim // mixer.o_groups
    found = [
        Tensor("qkv_a", "attention", mixer.q_rank + mixer.head_dim, hidden, parts=2, linear=True),
        Tensor("q_b", "attention", heads * mixer.head_dim, mixer.q_rank, linear=True),
        Tensor("o_a", "attention", mixer.o_rank, width, stack=groups, linear=True),
        Tensor("o_b", "attention", hidden, groups * mixer.o_rank, linear=True),
        Tensor("norms", "norm", mixer.q_rank + mixer.head_dim),
        Tensor("sinks", "norm", heads, dtype="float32"),
    ]
    if mixer.ratio:
        found += _compressor(mixer.head_dim, mixer.ratio, hidden, overlap=mixer.index_heads > 0)
    if mixer.index_heads:
        found += _compressor(mixer.index_dim, mixer.ratio, hidden, overlap=True)
        found += [Tensor("index_q", "indexer", mixer.index_heads * mixer.index_dim, mixer.q_rank, linear=True),
                  Tensor("index_weights", "indexer", mixer.index_heads, hidden)]  # fmt: skip
    return found


def _compressor(width: int, ratio: int, hidden: int, *, overlap: bool) -> list[Tensor]:
    """Weights that make one entry of `ratio` tokens; overlapping windows take twice the width."""
    rows = 2 * width if overlap else width
    return [
        Tensor("compressor", "indexer", 2 * rows, hidden, parts=2),
        Tensor("compressor.positions", "norm", ratio * rows, dtype="float32"),
        Tensor("compressor.norm", "norm", width),
    ]


def _gated_delta(mixer: GatedDelta, hidden: int, tp: int) -> list[Tensor]:
    k_heads, v_heads = ceil_div(mixer.k_heads, tp), ceil_div(mixer.v_heads, tp)
    keys, values = k_heads * mixer.k_dim, v_heads * mixer.v_dim
    if mixer.rule == "gdn":
        return [
            Tensor("qkvz", "recurrent", 2 * keys + 2 * values, hidden, parts=4, linear=True),
            Tensor("ba", "recurrent", 2 * v_heads, hidden),
            Tensor("conv", "recurrent", 2 * keys + values, mixer.conv_kernel),
            Tensor("dt_bias", "norm", v_heads),
            Tensor("A_log", "norm", v_heads, dtype="float32"),
            Tensor("norm", "norm", mixer.v_dim),
            Tensor("o", "recurrent", hidden, values, linear=True),
        ]
    low = [Tensor(name, "recurrent", mixer.v_dim, hidden) for name in ("f_a", "g_a")]
    high = [Tensor(name, "recurrent", values, mixer.v_dim) for name in ("f_b", "g_b")]
    return [
        *(Tensor(name, "recurrent", values, hidden, linear=True) for name in ("q", "k", "v")),
        *low,
        *high,
        Tensor("beta", "recurrent", v_heads, hidden),
        *(Tensor(f"{name}_conv", "recurrent", values, mixer.conv_kernel) for name in ("q", "k", "v")),
        Tensor("dt_bias", "norm", values, dtype="float32"),
        Tensor("A_log", "norm", v_heads, dtype="float32"),
        Tensor("norm", "norm", mixer.v_dim),
        Tensor("o", "recurrent", hidden, values, linear=True),
    ]


def _mamba(mixer: Mamba, hidden: int, tp: int) -> list[Tensor]:
    inner, state, kernel = ceil_div(mixer.inner_width, tp), mixer.state, mixer.conv_kernel
    if mixer.generation == 1:
        low = mixer.dt_rank
        return [
            Tensor("in", "recurrent", 2 * inner, hidden, parts=2, linear=True),
            Tensor("conv", "recurrent", inner, kernel),
            Tensor("conv.bias", "bias", inner),
            Tensor("x", "recurrent", low + 2 * state, inner, linear=True),
            Tensor("dt", "recurrent", inner, low, linear=True),
            Tensor("dt.bias", "bias", inner),
            Tensor("A", "norm", inner, state, dtype="float32"),
            Tensor("D", "norm", inner, dtype="float32"),
            *([Tensor("norms", "norm", low + 2 * state)] if mixer.gated_norm else []),
            Tensor("out", "recurrent", hidden, inner, linear=True),
        ]
    heads, groups = ceil_div(mixer.heads, tp), max(1, ceil_div(mixer.groups, tp))
    conv = inner + 2 * groups * state
    found = [
        Tensor("in", "recurrent", 2 * inner + 2 * groups * state + heads, hidden, parts=5, linear=True),
        Tensor("conv", "recurrent", conv, kernel),
        Tensor("conv.bias", "bias", conv),
        Tensor("A", "norm", heads, dtype="float32"),
        Tensor("D", "norm", 2 * heads),
        Tensor("out", "recurrent", hidden, inner, linear=True),
    ]
    if mixer.gated_norm:
        found.append(Tensor("norm", "norm", inner))
    return found


def _dense(feed: Dense, hidden: int, tp: int, role: Role = "mlp") -> list[Tensor]:
    width, up = ceil_div(feed.width, tp), 2 if feed.gated else 1
    found = [
        Tensor("gate_up", role, up * width, hidden, parts=up, linear=True),
        Tensor("down", role, hidden, width, linear=True),
    ]
    if feed.bias:
        found += [Tensor("gate_up.bias", "bias", up * width), Tensor("down.bias", "bias", hidden)]
    return found


def _experts(feed: Experts, hidden: int, split: Split) -> list[Tensor]:
    count = ceil_div(feed.count, split.ep) if split.ep else feed.count
    width = feed.width if split.ep else ceil_div(feed.width, split.tp)
    inside, up = feed.latent or hidden, 2 if feed.gated else 1
    found = [
        Tensor("router", "router", feed.count, hidden),
        Tensor("w13", "experts", up * width, inside, stack=count, parts=up, linear=True),
        Tensor("w2", "experts", inside, width, stack=count, linear=True),
    ]
    if feed.router_bias:
        found.append(Tensor("router.bias", "bias", feed.count, dtype="float32"))
    if feed.expert_bias:
        found += [Tensor("w13.bias", "bias", up * width, stack=count), Tensor("w2.bias", "bias", inside, stack=count)]
    if feed.latent:
        found += [Tensor("latent_in", "shared-experts", inside, hidden, linear=True),
                  Tensor("latent_out", "shared-experts", hidden, inside, linear=True)]  # fmt: skip
    if feed.shared_width:
        found += _dense(Dense(feed.shared_width, gated=feed.gated), hidden, split.tp, "shared-experts")
    if feed.shared_gate:
        found.append(Tensor("shared_gate", "router", 1, hidden))
    return found


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
