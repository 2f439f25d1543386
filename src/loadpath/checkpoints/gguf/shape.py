"""A GGUF file → a shape. What a layer holds is read off its own tensors; the metadata adds windows, heads and ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Literal

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.gguf.file import GgufFile
from loadpath.core.checkpoint import StoredTensor
from loadpath.core.shape import (
    Attention,
    Dense,
    Drafter,
    Dtype,
    Experts,
    FeedForward,
    GatedDelta,
    LatentAttention,
    Layer,
    Mamba,
    Mixer,
    ModelShape,
    Quantisation,
    Role,
    Rope,
)

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_MODULES: frozenset[Role] = frozenset(
    {"attention", "mlp", "experts", "shared-experts", "recurrent", "embedding", "lm_head"}
)
# Where the metadata gives a window but no pattern: every n-th layer is full (llama.cpp's own table).
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4, "llama4": 4,
               "gemma4": 6, "exaone-moe": 4, "afmoe": 4, "smallthinker": 4}  # fmt: skip
_NO_WINDOW = frozenset({"qwen2", "qwen2moe", "llama", "starcoder2", "mistral3"})
"""Architectures whose window llama.cpp ignores."""
_BITS = {"F32": 32, "F16": 16, "BF16": 16}

_DELTA = frozenset({"ssm_ba.weight", "ssm_beta_alpha.weight", "ssm_beta.weight", "ssm_alpha.weight"})
"""Tensors that tell Qwen3-Next's recurrence from Mamba."""

Block = dict[str, StoredTensor]


def shape_of(file: GgufFile) -> ModelShape:
    """The shape of the language model in `file`."""
    architecture = file.architecture
    if architecture in ("clip", "mmproj"):
        raise ModelError(f"{file.path} is the image projector of a model, not the model itself")
    blocks, outside = _blocks(file)
    count = _integer(file, "block_count")
    drafted = _optional(file, "nextn_predict_layers")
    if not blocks:
        raise ModelError(f"{file.path} ({architecture or 'no architecture'}) has no layers: not a language model")
    reader = _Reader(file)
    one: dict[Layer, Layer] = {}
    layers = [reader.layer(index, blocks.get(index, {})) for index in range(count - drafted)]
    embedding = outside.get("token_embd.weight")
    limit = _optional(file, "context_length")
    rotary = _optional(file, "rope.dimension_count")
    return ModelShape(
        id=str(file.metadata.get("general.name") or "") or file.path.rsplit("/", 1)[-1],
        family=architecture,
        architecture=architecture,
        hidden=reader.hidden,
        vocab=embedding.shape[0] if embedding else _optional(file, "vocab_size"),
        tied="output.weight" not in outside,
        max_position=limit,
        dtype=_dtype(file),
        layers=tuple(one.setdefault(layer, layer) for layer in layers),
        rope=(Rope(limit, rotary, str(file.key("rope.scaling.type") or "")),) if rotary and limit else (),
        learned_positions=outside["position_embd.weight"].shape[0] if "position_embd.weight" in outside else 0,
        norm_vectors=2 if "output_norm.bias" in outside else 1,
        lm_head_bias="output.bias" in outside,
        per_layer_embedding=_optional(file, "embedding_length_per_layer_input"),
        per_layer_vocab=outside["per_layer_token_embd.weight"].elements // max(1, _per_layer(file, count))
        if "per_layer_token_embd.weight" in outside
        else 0,
        state_dtype="float32"
        if any(isinstance(m, Mamba | GatedDelta) for layer in layers for m in layer.mixers)
        else None,
        drafter=Drafter(drafted) if drafted else None,
        quantisation=_quantisation(file),
        parameters=sum(tensor.elements for tensor in file.tensors if not _is_beside(tensor.name, count - drafted)),
        basis="checkpoint",
        source=file.path,
        note="" if file.complete else "some parts of the split file are missing: figures of weights are too low",
    )


def _is_beside(name: str, layers: int) -> bool:
    """Tables that are no parameters, and layers of a drafter."""
    found = _BLOCK.match(name)
    return name.startswith("rope_") or "rope_freqs" in name or bool(found and int(found[1]) >= layers)


def _per_layer(file: GgufFile, count: int) -> int:
    return _optional(file, "embedding_length_per_layer_input") * count


def _blocks(file: GgufFile) -> tuple[dict[int, Block], Block]:
    """Tensors by layer and short name, and those outside the layers."""
    blocks: dict[int, Block] = defaultdict(dict)
    outside: Block = {}
    for tensor in file.tensors:
        if found := _BLOCK.match(tensor.name):
            blocks[int(found[1])][found[2]] = tensor
        else:
            outside[tensor.name] = tensor
    return blocks, outside


def _integer(file: GgufFile, name: str) -> int:
    value = file.key(name)
    if not isinstance(value, int):
        raise ModelError(f"{file.path}: no `{file.architecture}.{name}`")
    return value


def _optional(file: GgufFile, name: str, layer: int = 0) -> int:
    """A whole number, or one a layer; 0 where absent."""
    value = file.key(name)
    if isinstance(value, list):
        value = value[layer] if layer < len(value) else 0
    return int(value) if isinstance(value, (int, float)) else 0


def _dtype(file: GgufFile) -> Dtype:
    """The type of most weights where they are not quantised, else that of the half floats."""
    kinds = {tensor.dtype for tensor in file.tensors if len(tensor.shape) > 1}
    if "BF16" in kinds:
        return "bfloat16"
    return "float16" if kinds - {"F32"} else "float32"


def _quantisation(file: GgufFile) -> Quantisation | None:
    sizes: dict[str, int] = defaultdict(int)
    for tensor in file.tensors:
        if len(tensor.shape) > 1:
            sizes[tensor.dtype] += tensor.elements
    most = max(sizes, key=lambda kind: sizes[kind], default="F16")
    if most in _BITS:
        return None
    digits = re.search(r"\d", most)
    return Quantisation(
        method="gguf", bits=int(digits[0]) if digits else 4, format=file.file_type or most, modules=_MODULES
    )


class _Reader:
    """Layers of one file."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.hidden = _integer(file, "embedding_length")

    def layer(self, index: int, block: Block) -> Layer:
        norms = sum(1 for name, tensor in block.items() if name.endswith("norm.weight") and tensor.shape == (self.hidden,)
                    and not name.startswith(("ssm", "attn_q_norm", "attn_k_norm")))  # fmt: skip
        if "ssm_norm.weight" in block and "attn_norm.weight" not in block and norms == 0:
            norms = 1
        return Layer(mixers=self.mixers(index, block), feeds=self.feeds(index, block), norms=norms)

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
        heads = _optional(self.file, "attention.head_count", index) or _optional(self.file, "attention.head_count")
        stated = self.file.key("attention.head_count_kv")
        kv_heads = _optional(self.file, "attention.head_count_kv", index) if stated is not None else heads
        window, chunk = self.reach(index)
        local = window and _optional(self.file, "attention.key_length_swa")
        width = local or _optional(self.file, "attention.key_length")
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
        value = (
            _optional(self.file, "attention.value_length_swa")
            if local
            else _optional(self.file, "attention.value_length")
        )
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
        last = _optional(self.file, "attention.shared_kv_layers")
        return bool(last) and index >= _optional(self.file, "block_count") - last

    def reach(self, index: int) -> tuple[int, int]:
        """(window, chunk) of a layer; zeros: it attends to everything."""
        architecture = self.file.architecture
        window = _optional(self.file, "attention.sliding_window")
        if architecture == "llama4":
            chunk = _optional(self.file, "attention.chunk_size") or 8192
            return 0, 0 if (index + 1) % 4 == 0 else chunk
        if not window or architecture in _NO_WINDOW:
            return 0, 0
        pattern: Any = self.file.key("attention.sliding_window_pattern")
        if isinstance(pattern, list) and index < len(pattern):
            return (window if pattern[index] else 0), 0
        every = pattern if isinstance(pattern, int) and pattern else _FULL_EVERY.get(architecture, 0)
        return (0 if every and (index + 1) % every == 0 else window), 0

    def latent(self, block: Block) -> LatentAttention:
        rope = _optional(self.file, "rope.dimension_count")
        key = _optional(self.file, "attention.key_length_mla") or _optional(self.file, "attention.key_length")
        value = _optional(self.file, "attention.value_length_mla") or _optional(self.file, "attention.value_length")
        return LatentAttention(
            heads=_integer(self.file, "attention.head_count"),
            kv_rank=_integer(self.file, "attention.kv_lora_rank"),
            nope_dim=key - rope,
            rope_dim=rope,
            v_dim=value,
            q_rank=_optional(self.file, "attention.q_lora_rank") if "attn_q_a.weight" in block else 0,
            index_heads=_optional(self.file, "attention.indexer.head_count"),
            index_dim=_optional(self.file, "attention.indexer.key_length"),
        )

    def recurrence(self, block: Block) -> Mixer:
        kernel = _optional(self.file, "ssm.conv_kernel") or 4
        state, inner = _optional(self.file, "ssm.state_size"), _optional(self.file, "ssm.inner_size")
        rank, groups = _optional(self.file, "ssm.time_step_rank"), _optional(self.file, "ssm.group_count") or 1
        if "ssm_f_a.weight" in block:
            heads = _optional(self.file, "attention.head_count")
            width = _optional(self.file, "kda.head_dim") or block["ssm_f_a.weight"].shape[0]
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
    def feeds(self, index: int, block: Block) -> tuple[FeedForward, ...]:
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
            active=_optional(self.file, "expert_used_count") or 1,
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
