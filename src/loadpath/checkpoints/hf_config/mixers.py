"""The token mixers of a layer, from the keys that the families share."""

from __future__ import annotations

from loadpath.checkpoints.hf_config.family import Family, Switch
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.kinds import Kind, window
from loadpath.core.shape import Attention, GatedDelta, LatentAttention, Mamba, Mixer

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups")
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")


def switch(f: Fields, value: Switch, default: bool = False) -> bool:
    """Whether a family's switch is on in this configuration."""
    return f.flag(value, default=default) if isinstance(value, str) else value


def mixers(f: Fields, family: Family, kind: Kind, index: int = 0) -> tuple[Mixer, ...]:
    """The mixers of layer `index`, which is of that kind."""
    if kind in ("mlp", "experts", "none"):
        return ()
    if kind == "linear":
        mixer = recurrence(f, family)
        return (mixer,) if mixer else ()
    if kind == "parallel":
        mixer = recurrence(f, family)
        return (attention(f, family, "full"), mixer) if mixer else (attention(f, family, "full"),)
    if f.value("kv_lora_rank"):
        kinds = f.items("indexer_types")
        return (latent(f, index_shared=index < len(kinds) and kinds[index] == "shared"),)
    return (attention(f, family, kind),)


def head_dim(f: Fields) -> int:
    """Width of a head: stated, or the model's width shared out."""
    stated = f.value("head_dim", "attention_head_dim", "kv_channels")
    return int(stated) if stated else f.integer(*HIDDEN) // f.integer(*HEADS)


def kv_heads(f: Fields) -> int:
    heads = f.integer(*HEADS)
    if f.flag("multi_query") and not f.flag("new_decoder_architecture"):
        return 1
    if f.states("multi_query_attention") and not f.flag("multi_query_attention"):
        return heads
    return f.integer(*KV_HEADS, default=heads)


def attention(f: Fields, family: Family, kind: Kind) -> Attention:
    """Grouped-query attention."""
    on = not family.qk_norm_key or f.flag(family.qk_norm_key)
    return Attention(
        heads=f.integer(*HEADS),
        kv_heads=kv_heads(f),
        head_dim=head_dim(f),
        window=window(f) if kind == "sliding" else 0,
        chunk=f.integer("attention_chunk_size") if kind == "chunked" else 0,
        qkv_bias=switch(f, family.qkv_bias),
        o_bias=switch(f, family.o_bias),
        qk_norm=family.qk_norm if on else "none",
        output_gate=switch(f, family.output_gate),
        sinks=switch(f, family.sinks),
    )


def latent(f: Fields, *, index_shared: bool = False) -> LatentAttention:
    """Multi-head latent attention, with the indexer of its sparse variant where one is stated."""
    return LatentAttention(
        heads=f.integer(*HEADS),
        kv_rank=f.integer("kv_lora_rank"),
        nope_dim=f.integer("qk_nope_head_dim"),
        rope_dim=f.integer("qk_rope_head_dim"),
        v_dim=f.integer("v_head_dim"),
        q_rank=f.integer("q_lora_rank", default=0),
        index_heads=f.integer("index_n_heads", default=0),
        index_dim=f.integer("index_head_dim", default=0) if f.value("index_n_heads") else 0,
        index_shared=index_shared,
        index_pool=f.integer("index_kpool", default=0),
    )


def recurrence(f: Fields, family: Family) -> Mixer | None:
    """The recurrent mixer of this family; None where this vocabulary has no word for it (short convolutions)."""
    match family.linear:
        case "gdn":
            return GatedDelta(
                rule="gdn",
                k_heads=f.integer("linear_num_key_heads"),
                v_heads=f.integer("linear_num_value_heads"),
                k_dim=f.integer("linear_key_head_dim"),
                v_dim=f.integer("linear_value_head_dim"),
                conv_kernel=f.integer("linear_conv_kernel_dim", default=4),
            )
        case "kda":
            return _kda(f)
        case "mamba1":
            return _mamba1(f)
        case "mamba2":
            return _mamba2(f)
        case _:
            return None


def _kda(f: Fields) -> GatedDelta:
    section = f.section("linear_attn_config") or f
    heads = section.integer("num_heads", "linear_num_heads") if section is not f else f.integer("linear_num_heads")
    width = section.integer("head_dim") if section is not f else f.integer("linear_head_dim")
    kernel = section.integer("short_conv_kernel_size", "linear_conv_kernel_dim", default=4)
    return GatedDelta(rule="kda", k_heads=heads, v_heads=heads, k_dim=width, v_dim=width, conv_kernel=kernel)


def _mamba1(f: Fields) -> Mamba:
    hidden = f.integer(*HIDDEN)
    inner = f.integer("expand", "mamba_expand", default=2) * hidden
    if f.states("intermediate_size") and f.kind in ("mamba", "falcon_mamba"):
        inner = f.integer("intermediate_size")
    rank = f.value("time_step_rank", "mamba_dt_rank")
    return Mamba(
        generation=1,
        state=f.integer("state_size", "mamba_d_state"),
        inner=inner,
        dt_rank=int(rank) if isinstance(rank, int) else -(-hidden // 16),
        conv_kernel=f.integer("conv_kernel", "mamba_d_conv", default=4),
        gated_norm=f.kind == "jamba",  # its norms of dt, B and C
    )


def _mamba2(f: Fields) -> Mamba:
    heads = f.integer("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    inner = f.value("mamba_d_ssm")
    width = f.value("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim")
    if not isinstance(width, int):  # "auto"
        width = (inner or f.integer("mamba_expand", "expand", default=2) * f.integer(*HIDDEN)) // heads
    return Mamba(
        generation=2,
        state=f.integer("ssm_state_size", "mamba_d_state", "state_size"),
        heads=heads,
        head_dim=width,
        groups=f.integer("n_groups", "mamba_n_groups", "mamba_ngroups", default=1),
        conv_kernel=f.integer("conv_kernel", "mamba_d_conv", default=4),
        gated_norm=f.flag("mamba_rms_norm", default=True),
    )


def unnamed(f: Fields, family: Family, kind: Kind) -> int:
    """Parameters of a layer's mixer that its fields do not count: Kimi K3's gate of full rank."""
    section = f.section("linear_attn_config")
    if kind != "linear" or family.linear != "kda" or section is None or not section.flag("use_full_rank_gate"):
        return 0
    mixer, hidden = _kda(f), f.integer(*HIDDEN)
    wide = mixer.v_heads * mixer.v_dim
    return hidden * wide - mixer.v_dim * (hidden + wide)
