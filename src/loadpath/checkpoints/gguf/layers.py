"""What the layers of a GGUF file are: read off their own tensors; the metadata adds windows, heads and ranks."""

from __future__ import annotations

from typing import Any, Literal

from loadpath.checkpoints.gguf.file import GgufFile
from loadpath.core.checkpoint import StoredTensor
from loadpath.core.shape import (
    Attention,
    Dense,
    Experts,
    FeedForward,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
)

Block = dict[str, StoredTensor]
"""A layer's tensors by their short names (`attn_q.weight`)."""

# Where the metadata gives a window but no pattern: every n-th layer is full (llama.cpp's own table).
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4, "gemma4": 6,
               "exaone-moe": 4, "afmoe": 4, "smallthinker": 4}  # fmt: skip
_NO_WINDOW = frozenset({"qwen2", "qwen2moe", "llama", "starcoder2", "mistral3"})
"""Architectures whose window llama.cpp ignores."""
_DELTA = frozenset({"ssm_ba.weight", "ssm_beta_alpha.weight", "ssm_beta.weight", "ssm_alpha.weight"})
"""Tensors that tell Qwen3-Next's recurrence from Mamba."""
_OTHER = ("altup_", "laurel_", "shortconv.", "time_mix_", "channel_mix_")
"""Parts that no other field counts: Gemma 3n's side paths, LFM2's convolutions, RWKV's mixers."""
LLAMA4_CHUNK = 8192
"""Tokens of a chunk of Llama 4, where the file does not say."""


class LayerReader:
    """The layers of one file."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.hidden = file.required("embedding_length")

    def layer(self, index: int, block: Block) -> Layer:
        """Layer `index`, whose tensors are `block`."""
        return Layer(
            mixers=self.mixers(index, block),
            feeds=self.feeds(block),
            norms=sum(_is_norm(name, tensor, self.hidden) for name, tensor in block.items()),
            other=sum(tensor.elements for name, tensor in block.items() if name.startswith(_OTHER)),
        )

    # ------------------------------------------------------------------ mixers
    def mixers(self, index: int, block: Block) -> tuple[Mixer, ...]:
        found: list[Mixer] = []
        if "attn_kv_a_mqa.weight" in block:
            found.append(self.latent(block))
        elif ("attn_q.weight" in block or "attn_qkv.weight" in block) and "ssm_a" not in block:
            found.append(self.attention(index, block))
        elif "attn_q.weight" in block and "ssm_in.weight" in block:
            found.append(self.attention(index, block))  # both side by side (Falcon-H1)
        if any(name.startswith("ssm_") for name in block):
            found.append(self.recurrence(block))
        return tuple(found)

    def attention(self, index: int, block: Block) -> Attention:
        heads = self.file.number("attention.head_count", index)
        stated = self.file.key("attention.head_count_kv")
        kv_heads = self.file.number("attention.head_count_kv", index) if stated is not None else heads
        window, chunk = self.reach(index)
        local = window and self.file.number("attention.key_length_swa")
        width = local or self.file.number("attention.key_length")
        shares = "attn_q.weight" in block and "attn_k.weight" not in block
        gate = False
        if "attn_q.weight" in block:
            rows = block["attn_q.weight"].shape[0]
            gate = bool(width) and rows == 2 * heads * width and "attn_q_norm.weight" in block
            width = width or rows // heads
        elif "attn_qkv.weight" in block:
            width = width or block["attn_qkv.weight"].shape[0] // (heads + 2 * kv_heads)
        if not shares and "attn_k.weight" in block and width:
            kv_heads = block["attn_k.weight"].shape[0] // width
        value = self.file.number("attention.value_length_swa") if local else self.file.number("attention.value_length")
        return Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=width,
            v_head_dim=value if value and value != width else 0,
            window=window,
            chunk=chunk,
            qkv_bias="attn_q.bias" in block or "attn_qkv.bias" in block,
            o_bias="attn_output.bias" in block,
            qk_norm=_norm(block, width),
            output_gate=gate,
            sinks="attn_sinks.weight" in block or "attn_sinks" in block,
            reuses_cache=shares or self.shared(index),
            value_is_key="attn_v.weight" not in block and "attn_k.weight" in block,
        )

    def shared(self, index: int) -> bool:
        last = self.file.number("attention.shared_kv_layers")
        return bool(last) and index >= self.file.number("block_count") - last

    def reach(self, index: int) -> tuple[int, int]:
        """(window, chunk) of a layer; zeros: it attends to everything."""
        architecture = self.file.architecture
        window = self.file.number("attention.sliding_window")
        if architecture == "llama4":
            chunk = self.file.number("attention.chunk_size") or LLAMA4_CHUNK
            return 0, 0 if (index + 1) % 4 == 0 else chunk
        if not window or architecture in _NO_WINDOW or window >= self.file.number("context_length") > 0:
            return 0, 0
        pattern: Any = self.file.key("attention.sliding_window_pattern")
        if isinstance(pattern, list) and index < len(pattern):
            return (window if pattern[index] else 0), 0
        every = pattern if isinstance(pattern, int) and pattern else _FULL_EVERY.get(architecture, 0)
        return (0 if every and (index + 1) % every == 0 else window), 0

    def latent(self, block: Block) -> LatentAttention:
        rope = self.file.number("rope.dimension_count")
        key = self.file.number("attention.key_length_mla") or self.file.number("attention.key_length")
        value = self.file.number("attention.value_length_mla") or self.file.number("attention.value_length")
        return LatentAttention(
            heads=self.file.number("attention.head_count"),
            kv_rank=self.file.required("attention.kv_lora_rank"),
            nope_dim=key - rope,
            rope_dim=rope,
            v_dim=value,
            q_rank=self.file.number("attention.q_lora_rank") if "attn_q_a.weight" in block else 0,
            index_heads=self.file.number("attention.indexer.head_count"),
            index_dim=self.file.number("attention.indexer.key_length"),
        )

    def recurrence(self, block: Block) -> Mixer:
        kernel = self.file.number("ssm.conv_kernel") or 4
        state, inner = self.file.number("ssm.state_size"), self.file.number("ssm.inner_size")
        rank, groups = self.file.number("ssm.time_step_rank"), self.file.number("ssm.group_count") or 1
        if "ssm_f_a.weight" in block:
            heads = self.file.number("attention.head_count")
            width = self.file.number("kda.head_dim") or block["ssm_f_a.weight"].shape[0]
            return GatedDelta(rule="kda", k_heads=heads, v_heads=heads, k_dim=width, v_dim=width, conv_kernel=kernel)
        if not block.keys().isdisjoint(_DELTA):
            width = inner // max(1, rank)
            return GatedDelta(rule="gdn", k_heads=groups, v_heads=rank, k_dim=state, v_dim=width, conv_kernel=kernel)
        if "ssm_x.weight" in block:
            return Mamba(generation=1, state=state, inner=inner, dt_rank=rank, conv_kernel=kernel,
                         gated_norm="ssm_dt_norm.weight" in block)  # fmt: skip
        heads = rank or 1
        return Mamba(generation=2, state=state, heads=heads, head_dim=inner // heads, groups=groups, conv_kernel=kernel,
                     gated_norm="ssm_norm.weight" in block)  # fmt: skip

    # ------------------------------------------------------------------ feed-forward
    def feeds(self, block: Block) -> tuple[FeedForward, ...]:
        found: list[FeedForward] = []
        if "ffn_up.weight" in block:
            fused = (
                "ffn_gate.weight" not in block
                and block["ffn_down.weight"].shape[-1] * 2 == block["ffn_up.weight"].shape[0]
            )
            width = block["ffn_down.weight"].shape[-1]
            found.append(Dense(width, gated=fused or "ffn_gate.weight" in block, bias="ffn_up.bias" in block))
        if "ffn_down_exps.weight" in block:
            found.append(self.experts(block))
        return tuple(found)

    def experts(self, block: Block) -> Experts:
        down = block["ffn_down_exps.weight"]
        shared = block.get("ffn_down_shexp.weight")
        return Experts(
            count=down.shape[0],
            active=self.file.number("expert_used_count") or 1,
            width=down.shape[-1],
            gated=any(name in block for name in ("ffn_gate_exps.weight", "ffn_gate_up_exps.weight")),
            latent=down.shape[1] if down.shape[1] != self.hidden else 0,
            shared_width=shared.shape[-1] if shared else 0,
            shared_gate="ffn_gate_inp_shexp.weight" in block,
            router_bias="exp_probs_b.bias" in block or "exp_probs_b" in block or "ffn_gate_inp.bias" in block,
            expert_bias="ffn_down_exps.bias" in block,
        )


def _norm(block: Block, width: int) -> Literal["none", "head", "full"]:
    norm = block.get("attn_q_norm.weight")
    if norm is None:
        return "none"
    return "head" if norm.shape == (width,) else "full"


def _is_norm(name: str, tensor: StoredTensor, hidden: int) -> bool:
    """Whether a tensor normalises the layer's input or output: as wide as the model, and no norm of a part."""
    part = name.startswith(("ssm", "attn_q_norm", "attn_k_norm", "post_norm", *_OTHER))
    return name.endswith("norm.weight") and tensor.shape == (hidden,) and not part
