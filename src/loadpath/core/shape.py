"""A model's shape: what its configuration states, in one vocabulary for every family. Counts of elements, heads, tokens.

A model is a stack of `Layer`s; a layer holds token mixers (attention, latent attention, recurrence) and feed-forward
parts. Equal layers are one object, so counting them is cheap. Nothing here is arithmetic: parameters, bytes and cache
sizes are computed in `planning`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal[
    "embedding", "lm_head", "attention", "mlp", "experts", "shared-experts", "recurrent", "router", "indexer", "norm",
    "bias", "vision", "audio", "projector", "position", "adapter",
]  # fmt: skip
"""What a weight tensor is for; quantisation schemes and parallel splits go by it."""

Dtype = Literal["float32", "float16", "bfloat16", "float8", "int8"]
DTYPE_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1}


class _Part(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, cache_hash=True):
    """Base of the parts: immutable, hashable, told apart in JSON by `kind`."""


class Attention(_Part, frozen=True, tag="attention"):
    """Multi-head, grouped-query (kv_heads < heads) or multi-query (kv_heads = 1) attention.

    `window`: sliding window in tokens; `chunk`: attention inside chunks of so many tokens; neither: full attention.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int = 0
    """Width of a value head where it differs from `head_dim`; 0: the same."""
    window: int = 0
    chunk: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norms of query and key: one of head width for each, or over all heads of the layer."""
    output_gate: bool = False
    """The query projection is twice as wide: the second half gates the output."""
    value_is_key: bool = False
    """No value projection: the key is used again. The cache still holds both."""
    sinks: bool = False
    """One learned attention sink per head."""
    reuses_cache: bool = False
    """Reads the cache of an earlier layer: no key and value projections, no cache of its own."""
    borrowed: bool = False
    """Its weights are another layer's (Zamba2's shared blocks): a cache of its own, no weights here."""
    cross: bool = False
    """Attends to an encoder's output (text or image): its cache grows with the encoder's tokens."""
    index_heads: int = 0
    """Heads of an indexer that picks the tokens to attend to (a key of `index_dim` per token beside the cache)."""
    index_dim: int = 0

    @property
    def value_dim(self) -> int:
        return self.v_head_dim or self.head_dim


class LatentAttention(_Part, frozen=True, tag="latent-attention"):
    """Multi-head latent attention (MLA): the cache holds one latent of kv_rank + rope_dim per token, for all heads.

    `index_heads`, `index_dim`: the indexer of sparse attention (a key of `index_dim` per token beside the latent);
    `index_shared`: an earlier layer's indexer is used; `index_pool`: pooled indexer with caches of its own.
    """

    heads: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    q_rank: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_shared: bool = False
    index_pool: int = 0


class CompressedAttention(_Part, frozen=True, tag="compressed-attention"):
    """DeepSeek-V4: every layer keeps a window of `head_dim`-wide entries; ratio r > 0 adds one entry per r tokens."""

    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    window: int
    ratio: int
    o_groups: int
    o_rank: int
    index_heads: int = 0
    index_dim: int = 0


class GatedDelta(_Part, frozen=True, tag="gated-delta"):
    """Linear attention of the delta rule: `gdn` (Qwen3-Next, Qwen3.5) or `kda` (Kimi Linear). State k_dim x v_dim per value head."""

    rule: Literal["gdn", "kda"]
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv_kernel: int = 4


class Mamba(_Part, frozen=True, tag="mamba"):
    """State-space mixer. Generation 2: heads x head_dim = inner width; generation 1: `inner` and `dt_rank`."""

    generation: Literal[1, 2]
    state: int
    heads: int = 0
    head_dim: int = 0
    groups: int = 1
    inner: int = 0
    dt_rank: int = 0
    conv_kernel: int = 4
    gated_norm: bool = True

    @property
    def inner_width(self) -> int:
        return self.inner or self.heads * self.head_dim


Mixer = Attention | LatentAttention | CompressedAttention | GatedDelta | Mamba


class Dense(_Part, frozen=True, tag="dense"):
    """A feed-forward block: gated (gate, up, down) or plain (up, down)."""

    width: int
    gated: bool = True
    bias: bool = False


class Experts(_Part, frozen=True, tag="experts"):
    """A mixture of experts: `active` of `count` are used per token; `shared_width`: all always-on experts together.

    `latent`: the experts work on this width instead of the model's (0: the model's).
    """

    count: int
    active: int
    width: int
    gated: bool = True
    latent: int = 0
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


FeedForward = Dense | Experts


class Layer(_Part, frozen=True, tag="layer"):
    """One layer: its mixers (two where attention and Mamba run in parallel, none where it was pruned) and feed-forward parts.

    `norms`: vectors of the model's width that normalise its inputs and outputs.
    """

    mixers: tuple[Mixer, ...] = ()
    feeds: tuple[FeedForward, ...] = ()
    norms: int = 2
    other: int = 0
    """Parameters of small parts that this vocabulary has no word for (AltUp, Laurel, hyper-connections of some families):
    unquantised, whole on every rank."""


class Rope(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rotary positions: `rows` x `width` elements of cos/sin table that an engine may keep, and how they were stretched."""

    rows: int
    width: int
    scaling: str = ""


class Tower(msgspec.Struct, frozen=True, omit_defaults=True):
    """An encoder beside the language model. `parameters` include its projector; `assumed`: not read from a checkpoint.

    `hidden`, `layers`, `tokens` (the most of one item, after merging): 0 where unknown.
    """

    kind: Literal["vision", "audio"]
    parameters: int
    assumed: bool = False
    hidden: int = 0
    layers: int = 0
    tokens: int = 0


class Drafter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Multi-token-prediction layers that the checkpoint itself carries."""

    layers: int
    own_embeddings: bool = False


class Quantisation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the weights are stored: the numerical identity of a checkpoint, as its files state it.

    `modules` are stored in this scheme; `fp8_modules` in FP8 in a mixed checkpoint; everything else in the model's dtype.
    `format`: `nvfp4`, `mxfp4`, `nf4`, … where bits and type do not say it all; `block`: rows x columns of one scale
    (FP8); `group_size`: inputs that share a scale; `strategy`: `tensor`, `channel`, `group`, `block`, `token`.
    """

    method: str
    bits: int
    type: Literal["int", "float", ""] = ""
    format: str = ""
    group_size: int = 0
    block: tuple[int, int] | None = None
    zero_point: bool = False
    desc_act: bool = False
    strategy: str = ""
    activation_bits: int = 0
    """Bits of the activations in the product; 0: they stay in the model's dtype (weight-only)."""
    modules: frozenset[Role] = frozenset()
    fp8_modules: frozenset[Role] = frozenset()
    kept_layers: frozenset[int] = frozenset()
    """Layers that stay in the model's dtype."""
    kv_bits: int = 0
    """The checkpoint asks for a cache of so many bits; 0: it says nothing."""
    expert_format: str = ""
    """The experts' own format where it differs (`mxfp4` in an FP8 checkpoint)."""
    online: bool = False
    """Quantised by the engine at load, not stored so."""


class ModelShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole model. `dtype` is that of unquantised weights. `basis`: how well the shape is known (`checkpoint`, `config`,
    `table`, `defaults`, `recalled`, `inferred`), `source`: from where; `note`: what the shape leaves out."""

    id: str
    family: str
    architecture: str
    hidden: int
    vocab: int
    tied: bool
    max_position: int
    dtype: Dtype
    layers: tuple[Layer, ...]
    encoder: tuple[Layer, ...] = ()
    """Layers of a text or audio encoder (encoder-decoder models)."""
    rope: tuple[Rope, ...] = ()
    learned_positions: int = 0
    norm_vectors: int = 1
    """Vectors of one norm: 1 (RMS norm) or 2 (layer norm with bias)."""
    lm_head_bias: bool = False
    per_layer_embedding: int = 0
    """Width of the embedding that every layer has of its own (Gemma 3n, Gemma 4), 0: none."""
    per_layer_vocab: int = 0
    state_dtype: Dtype | None = None
    """Recurrent state; None: the model's dtype."""
    hyper_connections: int = 0
    other: int = 0
    """Parameters outside the layers that no other field counts (norm of the embedding, relative positions)."""
    drafter: Drafter | None = None
    towers: tuple[Tower, ...] = ()
    quantisation: Quantisation | None = None
    parameters: int | None = None
    """Published or counted total, without MTP layers; None: unknown (compute it)."""
    active_parameters: int | None = None
    basis: str = ""
    source: str = ""
    note: str = ""
