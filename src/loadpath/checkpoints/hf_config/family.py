"""What an architecture's code fixes and its configuration does not state: biases, norms, gates, patterns of layers.

One row a `model_type`. Read in the model classes of `transformers` (each row's parameter count is tested against them),
and for models with code of their own in the repositories' modelling files.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Switch = bool | str
"""Always, never, or the configuration key that decides."""


class Family(msgspec.Struct, frozen=True, omit_defaults=True):
    """`windows`: which layers slide where no `layer_types` says so. `all`: every layer once a window is set;
    `pattern`: every n-th layer is full (`sliding_window_pattern`, or `pattern`); `upper`: layers from
    `max_window_layers` on; `never`: the code ignores the key."""

    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    lm_head_bias: Switch = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qk_norm_key: str = ""
    """The flag that turns the norm on; "": always on."""
    gated: bool = True
    norms: int = 2
    norm_vectors: int = 1
    parallel_key: str = ""
    """The flag by which attention and feed-forward share one input norm."""
    output_gate: Switch = False
    sinks: Switch = False
    windows: Literal["all", "pattern", "upper", "never"] = "all"
    pattern: int = 0
    linear: Literal["", "gdn", "kda", "mamba1", "mamba2", "lightning", "short-conv"] = ""
    """What `linear_attention` layers are."""
    shared: Literal["", "always", "gate"] = ""
    """Of mixtures: a shared expert of the experts' own width without a key that says so; or one with a gate."""
    router_bias: Switch = False
    """A bias of the router, or the correction of its scores."""
    expert_bias: bool = False
    scaled_embedding_norm: bool = False
    """The embedding is normalised before the first layer."""
    learned_positions: int | None = None
    """Rows of learned positions beyond the longest sequence; None: the model has none."""
    state_float32: bool = False
    """Recurrent states are kept in float32 whatever the model's dtype, unless the configuration says otherwise."""
    rope: bool = True
    local_rope: bool = False
    """Window layers have a rotary table of their own, which no stretching applies to."""
    tied: bool = False
    """Input and output embedding are one, where the configuration does not say."""
    mtp_own_embeddings: bool = False
    mtp_layers: int = 0
    """Multi-token-prediction layers that the published checkpoints carry although no key says so."""
    bare_layers: bool = False
    """A layer is one block only: mixer, experts or feed-forward."""
    layer_other: int = 0
    """Parameters of each layer that no other field counts (Apertus: two of its activation)."""
    feeds: bool = True
    """False: the layers have no feed-forward part at all."""
    parallel: bool = False
    """Every layer runs attention and its recurrent mixer side by side."""


_B = "attention_bias"
_LLAMA = Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias")
_QWEN3 = Family(qkv_bias=_B, o_bias=_B, qk_norm="head", windows="upper", shared="gate")
_DEEPSEEK = Family(windows="never", router_bias=True, mtp_own_embeddings=True)
_GPT = Family(qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_vectors=2, rope=False, tied=True)
_MAMBA = Family(windows="never", norms=1, rope=False, feeds=False)
_HYBRID = Family(windows="never", linear="mamba2")
_COHERE = Family(qkv_bias=_B, o_bias=_B, norms=1, tied=True, qk_norm="full", qk_norm_key="use_qk_norm")

FAMILIES: dict[str, Family] = {
    # Llama and its likes
    "llama": _LLAMA,
    "mistral": Family(),
    "ministral": Family(windows="pattern"),
    "ministral3": Family(),
    "mixtral": Family(),
    "cwm": Family(),
    "seed_oss": Family(qkv_bias=_B, o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "smollm3": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", windows="never"),
    "arcee": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", gated=False),
    "helium": Family(qkv_bias=_B),
    "hyperclovax": msgspec.structs.replace(_LLAMA, norms=4),
    "granite": _LLAMA,
    "granitemoe": Family(qkv_bias=_B, o_bias=_B),
    "granitemoeshared": Family(qkv_bias=_B, o_bias=_B),
    "granitemoehybrid": Family(qkv_bias=_B, o_bias=_B, windows="never", state_float32=True, linear="mamba2"),
    "exaone": Family(windows="never"),
    "exaone4": Family(qk_norm="head", windows="pattern"),
    "exaone_moe": Family(qk_norm="head", windows="pattern", router_bias=True),
    "baichuan": Family(windows="never"),
    "internlm2": Family(qkv_bias="bias", o_bias="bias", windows="never"),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias", windows="never"),
    "chatglm": Family(qkv_bias="add_qkv_bias", windows="never"),
    "qwen": Family(qkv_bias=True, windows="never"),
    "step3p5": Family(qk_norm="head"),
    "solar_open": Family(router_bias=True, windows="never"),
    "hy_v3": Family(qk_norm="head", router_bias=True),
    "dots1": Family(qk_norm="head", qkv_bias=_B, o_bias=_B, router_bias=True, windows="upper"),
    "jais2": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", gated=False, norm_vectors=2),
    "granite_swa": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", sinks=True),
    "granitemoe_swa": Family(qkv_bias=_B, o_bias=_B, sinks=True),
    "mellum": Family(qkv_bias=_B, o_bias=_B, qk_norm="head"),
    "kolibri1": Family(qk_norm="head", norms=4, router_bias=True),
    "bitnet": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", norms=3),
    "flint": Family(qkv_bias=_B, o_bias=_B, qk_norm="head", sinks=True),
    "lara_mini": Family(qkv_bias=_B, o_bias=_B, qk_norm="head", linear="gdn"),
    # Qwen
    "qwen2": Family(qkv_bias=True, windows="upper"),
    "qwen2_moe": Family(qkv_bias="qkv_bias", windows="upper", shared="gate"),
    "mimo": Family(qkv_bias=True, windows="upper"),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_next": Family(
        qk_norm="head", qkv_bias=_B, o_bias=_B, output_gate=True, linear="gdn", shared="gate", windows="never", mtp_layers=1
    ),
    "qwen3_5_text": Family(qk_norm="head", qkv_bias=_B, o_bias=_B, output_gate=True, linear="gdn", windows="never", state_float32=True),
    "qwen3_5_moe_text": Family(
        qk_norm="head", qkv_bias=_B, o_bias=_B, output_gate=True, linear="gdn", shared="gate", windows="never", state_float32=True
    ),
    # Gemma
    "gemma": Family(qkv_bias=_B, o_bias=_B, tied=True),
    "gemma2": Family(qkv_bias=_B, o_bias=_B, norms=4, windows="pattern", pattern=2, tied=True),
    "gemma3_text": Family(
        qkv_bias=_B, o_bias=_B, norms=4, qk_norm="head", windows="pattern", pattern=6, local_rope=True, tied=True
    ),
    "vaultgemma": Family(qkv_bias=_B, o_bias=_B, windows="pattern", pattern=2, tied=True),
    # Phi
    "phi": Family(qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norms=1, norm_vectors=2, lm_head_bias=True),
    "phi3": Family(),
    "phimoe": Family(qkv_bias=_B, o_bias=_B, norm_vectors=2, lm_head_bias="lm_head_bias"),
    # GLM
    "glm": Family(qkv_bias=_B),
    "glm4": Family(qkv_bias=_B, norms=4),
    "glm4v_text": Family(qkv_bias=True, norms=4),
    "glm4_moe": Family(qkv_bias=_B, qk_norm="head", qk_norm_key="use_qk_norm", mtp_own_embeddings=True, router_bias=True),
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    # Latent attention
    "deepseek_v2": Family(windows="never"),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": Family(windows="never", router_bias=True),
    "kimi_linear": Family(rope=False, windows="never", state_float32=True, router_bias=True, linear="kda"),
    "minicpm3": Family(windows="never"),
    "mistral4": Family(windows="never"),
    # Windows, chunks, sinks
    "gpt_oss": Family(
        qkv_bias=True, o_bias=True, sinks=True, router_bias=True, expert_bias=True, windows="pattern", pattern=2
    ),
    "llama4_text": Family(qkv_bias=_B, o_bias=_B, shared="always"),
    "cohere": _COHERE,
    "cohere2": msgspec.structs.replace(_COHERE, qk_norm="none", windows="pattern", pattern=4),
    "cohere2_moe": Family(qkv_bias=_B, o_bias=_B, norms=1, tied=True, windows="pattern", pattern=4),
    "olmo": Family(qkv_bias=_B, o_bias=_B, norm_vectors=0),
    "olmo2": Family(qkv_bias=_B, o_bias=_B, qk_norm="full"),
    "olmo3": Family(qkv_bias=_B, o_bias=_B, qk_norm="full", windows="pattern", pattern=4),
    "olmoe": Family(qkv_bias=_B, o_bias=_B, qk_norm="full"),
    "flex_olmo": Family(qkv_bias=_B, o_bias=_B, qk_norm="full"),
    "apertus": Family(qkv_bias=_B, o_bias=_B, gated=False, qk_norm="head", layer_other=2),
    "afmoe": Family(qk_norm="head", norms=4, output_gate=True, router_bias=True, windows="pattern"),
    "minimax_m2": Family(qk_norm="full", router_bias=True),
    "minimax": Family(linear="lightning", windows="never"),
    # ERNIE, Hunyuan, Nemotron
    "ernie4_5": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", router_bias=True),
    "hunyuan_v1_dense": Family(qkv_bias=_B, o_bias=_B, qk_norm="head"),
    "hunyuan_v1_moe": Family(qkv_bias=_B, o_bias=_B, qk_norm="head"),
    "nemotron": Family(qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", gated=False, norm_vectors=2),
    # Recurrent and hybrid
    "mamba": msgspec.structs.replace(_MAMBA, linear="mamba1", tied=True),
    "falcon_mamba": msgspec.structs.replace(_MAMBA, linear="mamba1", tied=True),
    "mamba2": msgspec.structs.replace(_MAMBA, linear="mamba2"),
    "jamba": Family(windows="never", linear="mamba1", rope=False),
    "bamba": _HYBRID,
    "falcon_h1": msgspec.structs.replace(_LLAMA, windows="never", linear="mamba2", parallel=True),
    "nemotron_h": Family(
        qkv_bias=_B, o_bias=_B, mlp_bias="mlp_bias", gated=False, norms=1, bare_layers=True, linear="mamba2",
        windows="never", rope=False, router_bias=True,
    ),
    "lfm2": Family(qk_norm="head", linear="short-conv", tied=True),
    "lfm2_moe": Family(qk_norm="head", linear="short-conv", tied=True, router_bias="use_expert_bias"),
    # Older
    "gpt2": msgspec.structs.replace(_GPT, learned_positions=0),
    "gpt_bigcode": msgspec.structs.replace(_GPT, learned_positions=0),
    "gpt_neox": msgspec.structs.replace(_GPT, qkv_bias=_B, o_bias=_B, rope=True, tied=False),
    "gptj": Family(mlp_bias=True, gated=False, norms=1, norm_vectors=2, lm_head_bias=True),
    "opt": msgspec.structs.replace(
        _GPT, qkv_bias="enable_bias", o_bias="enable_bias", mlp_bias="enable_bias", learned_positions=2
    ),
    "bloom": msgspec.structs.replace(_GPT, scaled_embedding_norm=True),
    "mpt": Family(gated=False, rope=False, tied=True),
    "starcoder2": Family(
        qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", gated=False, norm_vectors=2, tied=True
    ),
    "stablelm": Family(
        qkv_bias="use_qkv_bias", norm_vectors=2, parallel_key="use_parallel_residual", windows="never",
        qk_norm="full", qk_norm_key="qk_layernorm",
    ),
    "persimmon": Family(
        qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_vectors=2, windows="never",
    ),
}  # fmt: skip
