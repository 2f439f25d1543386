"""The weights of a layer's mixers and feed-forward parts as one rank holds them.

Rules of the split (vLLM and SGLang alike): tensor parallelism divides projections by heads and feed-forward width and
the experts' width; KV heads fewer than ranks are repeated; latent down-projections, routers, norms and indexers are
whole on every rank. Expert parallelism divides experts instead of their width. Projections that engines merge (query,
key and value; gate and up) are one tensor.
"""

from __future__ import annotations

import msgspec

from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Mamba,
    Mixer,
    Role,
)
from loadpath.planning.split import Split, ceil_div, kv_heads


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


def dense_tensors(feed: Dense, hidden: int, tp: int, role: Role = "mlp") -> list[Tensor]:
    width, up = ceil_div(feed.width, tp), 2 if feed.gated else 1
    found = [
        Tensor("gate_up", role, up * width, hidden, parts=up, linear=True),
        Tensor("down", role, hidden, width, linear=True),
    ]
    if feed.bias:
        found += [Tensor("gate_up.bias", "bias", up * width), Tensor("down.bias", "bias", hidden)]
    return found


def expert_tensors(feed: Experts, hidden: int, split: Split) -> list[Tensor]:
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
        found += dense_tensors(Dense(feed.shared_width, gated=feed.gated), hidden, split.tp, "shared-experts")
    if feed.shared_gate:
        found.append(Tensor("shared_gate", "router", 1, hidden))
    return found
