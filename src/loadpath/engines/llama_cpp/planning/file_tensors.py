"""The tensors of a GGUF file: those of a real file, or those that a conversion of the shape would write.

Names are llama.cpp's: they decide about types, and placement rules match them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from loadpath.core.checkpoint import Checkpoint
from loadpath.core.shape import Attention, Dense, Experts, GatedDelta, LatentAttention, Layer, Mamba, Mixer, ModelShape
from loadpath.engines.llama_cpp.planning.mixes import Category, Model, tensor_type
from loadpath.knowledge.ggml_types import GGML_TYPES, ggml_bytes

Place = Literal["input", "layer", "output"]
_BLOCK = re.compile(r"^blk\.(\d+)\.")
_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")


class FileTensor(msgspec.Struct, frozen=True):
    """One tensor. `layer` is -1 outside the layers; `columns`: the length of its rows, in elements."""

    name: str
    place: Place
    layer: int
    kind: str
    bytes: int
    columns: int
    elements: int

    @property
    def expert(self) -> bool:
        return "_exps" in self.name or "_chexps" in self.name


class _Planned(msgspec.Struct, frozen=True):
    """A tensor before its type is chosen. `rows` by `columns`; `fixed`: a type that no mix changes."""

    name: str
    rows: int
    columns: int
    category: Category = "other"
    fixed: str = ""


def of_checkpoint(checkpoint: Checkpoint) -> tuple[FileTensor, ...]:
    """The tensors of a GGUF file in its own order. Those of towers (in files of their own) are left out."""
    found: list[FileTensor] = []
    for tensor in checkpoint.tensors:
        if tensor.name.startswith(("v.", "mm.", "a.")):
            continue
        block = _BLOCK.match(tensor.name)
        place: Place = "layer" if block else "input" if tensor.name.startswith(_INPUT) else "output"
        columns = tensor.shape[0] if checkpoint.format == "gguf" and tensor.shape else tensor.elements
        found.append(
            FileTensor(tensor.name, place, int(block[1]) if block else -1, tensor.dtype, tensor.bytes, columns, tensor.elements)
        )  # fmt: skip
    return tuple(found)


def of_shape(shape: ModelShape, file_type: str) -> tuple[FileTensor, ...]:
    """The tensors that llama-quantize would write for this shape as `file_type`."""
    model = _model(shape)
    planned = [(-1, tensor) for tensor in _outside(shape)]
    for index, layer in enumerate(shape.layers):
        planned += [(index, tensor) for tensor in _layer(layer, shape)]
    seen: dict[Category, int] = {}
    made: list[FileTensor] = []
    values: tuple[Category, ...] = ("attn-v", "attn-qkv")
    projections = sum(1 for _, tensor in planned if tensor.category in values)
    for index, tensor in planned:
        kind = tensor.fixed
        if not kind:
            # Value projections are counted together; feed-forward parts by their layer.
            group: Category = "attn-v" if tensor.category in values else tensor.category
            place = index if tensor.category.startswith("ffn") else seen.get(group, 0)
            seen[group] = seen.get(group, 0) + 1
            of = len(shape.layers) if tensor.category.startswith("ffn") else projections
            kind = tensor_type(file_type, tensor.category, tensor.columns, model, max(place, 0), max(of, 1))
        made.append(_sized(tensor, index, kind))
    return tuple(made)


def _sized(tensor: _Planned, index: int, kind: str) -> FileTensor:
    elements = tensor.rows * tensor.columns
    name = f"blk.{index}.{tensor.name}" if index >= 0 else tensor.name
    place: Place = "layer" if index >= 0 else "input" if tensor.name.startswith(_INPUT) else "output"
    return FileTensor(name, place, index, kind, ggml_bytes(kind, elements) or 0, tensor.columns, elements)


def padded_on_gpu(tensor: FileTensor) -> int:
    """Bytes in a CUDA buffer: rows of quantised types are filled up to 512 elements, tensors start at multiples of 128."""
    size = tensor.bytes
    block, block_bytes = GGML_TYPES.get(tensor.kind.upper(), (1, 1))
    if block > 1 and tensor.columns % 512:
        size += (512 - tensor.columns % 512) // block * block_bytes
    return -(-size // 128) * 128


def _model(shape: ModelShape) -> Model:
    mixers = [m for layer in shape.layers for m in layer.mixers if isinstance(m, Attention)]
    experts = [f.count for layer in shape.layers for f in layer.feeds if isinstance(f, Experts)]
    ratio = mixers[0].heads // max(mixers[0].kv_heads, 1) if mixers else 1
    seventy = shape.family.startswith("llama") and len(shape.layers) == 80 and ratio == 8
    return Model(len(shape.layers), ratio, max(experts, default=0), shape.tied, seventy)


def _outside(shape: ModelShape) -> Iterator[_Planned]:
    yield _Planned("token_embd.weight", shape.vocab, shape.hidden, "token-embedding")
    if shape.per_layer_embedding:
        width = shape.per_layer_embedding * len(shape.layers)
        yield _Planned("per_layer_token_embd.weight", shape.per_layer_vocab or shape.vocab, width, "token-embedding")
        yield _Planned("per_layer_model_proj.weight", width, shape.hidden, fixed="F16")
    if shape.learned_positions:
        yield _Planned("position_embd.weight", shape.learned_positions, shape.hidden, fixed="F32")
    yield _Planned("output_norm.weight", shape.norm_vectors, shape.hidden, fixed="F32")
    if not shape.tied:
        yield _Planned("output.weight", shape.vocab, shape.hidden, "output")


def _layer(layer: Layer, shape: ModelShape) -> Iterator[_Planned]:
    hidden = shape.hidden
    yield _Planned("norms.weight", layer.norms * shape.norm_vectors, hidden, fixed="F32")
    for mixer in layer.mixers:
        yield from _mixer(mixer, hidden)
    for feed in layer.feeds:
        yield from _dense(feed, hidden) if isinstance(feed, Dense) else _experts(feed, hidden)
    if shape.per_layer_embedding:
        yield _Planned("inp_gate.weight", shape.per_layer_embedding, hidden, fixed="F32")
        yield _Planned("proj.weight", hidden, shape.per_layer_embedding, fixed="F32")


def _mixer(mixer: Mixer, hidden: int) -> Iterator[_Planned]:
    if isinstance(mixer, Attention):
        yield from _attention(mixer, hidden)
    elif isinstance(mixer, LatentAttention):
        yield from _latent(mixer, hidden)
    elif isinstance(mixer, GatedDelta):
        yield from _delta(mixer, hidden)
    elif isinstance(mixer, Mamba):
        yield from _mamba(mixer, hidden)
    else:
        yield _Planned("attn_q_a.weight", mixer.q_rank, hidden)
        yield _Planned("attn_q_b.weight", mixer.heads * mixer.head_dim, mixer.q_rank)
        yield _Planned("attn_kv.weight", mixer.head_dim, hidden)
        yield _Planned(
            "attn_out_a.weight", mixer.o_groups * mixer.o_rank, mixer.heads * mixer.head_dim // mixer.o_groups
        )
        yield _Planned("attn_out_b.weight", hidden, mixer.o_groups * mixer.o_rank)


def _attention(mixer: Attention, hidden: int) -> Iterator[_Planned]:
    query = mixer.heads * mixer.head_dim
    yield _Planned("attn_q.weight", query * (2 if mixer.output_gate else 1), hidden, "attn-q")
    if not mixer.reuses_cache:
        yield _Planned("attn_k.weight", mixer.kv_heads * mixer.head_dim, hidden, "attn-k")
        if not mixer.value_is_key:
            yield _Planned("attn_v.weight", mixer.kv_heads * mixer.value_dim, hidden, "attn-v")
    yield _Planned("attn_output.weight", hidden, mixer.heads * mixer.value_dim, "attn-output")
    if mixer.qkv_bias:
        yield _Planned("attn_qkv.bias", 1, query + mixer.kv_heads * (mixer.head_dim + mixer.value_dim), fixed="F32")
    if mixer.o_bias:
        yield _Planned("attn_output.bias", 1, hidden, fixed="F32")
    if mixer.qk_norm != "none":
        width = 2 * mixer.head_dim if mixer.qk_norm == "head" else query + mixer.kv_heads * mixer.head_dim
        yield _Planned("attn_qk_norm.weight", 1, width, fixed="F32")
    if mixer.sinks:
        yield _Planned("attn_sinks.weight", 1, mixer.heads, fixed="F32")


def _latent(mixer: LatentAttention, hidden: int) -> Iterator[_Planned]:
    query = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    if mixer.q_rank:
        yield _Planned("attn_q_a.weight", mixer.q_rank, hidden)
        yield _Planned("attn_q_b.weight", query, mixer.q_rank)
    else:
        yield _Planned("attn_q.weight", query, hidden, "attn-q")
    yield _Planned("attn_kv_a_mqa.weight", mixer.kv_rank + mixer.rope_dim, hidden)
    yield _Planned("attn_k_b.weight", mixer.kv_rank * mixer.heads, mixer.nope_dim)
    yield _Planned("attn_v_b.weight", mixer.v_dim * mixer.heads, mixer.kv_rank)
    yield _Planned("attn_output.weight", hidden, mixer.heads * mixer.v_dim, "attn-output")
    if mixer.index_heads and not mixer.index_shared:
        yield _Planned("indexer.attn_q_b.weight", mixer.index_heads * mixer.index_dim, mixer.q_rank or hidden)
        yield _Planned("indexer.attn_k.weight", mixer.index_dim, hidden)
        yield _Planned("indexer.proj.weight", mixer.index_heads, hidden)


def _delta(mixer: GatedDelta, hidden: int) -> Iterator[_Planned]:
    keys, values = mixer.k_heads * mixer.k_dim, mixer.v_heads * mixer.v_dim
    yield _Planned("attn_qkv.weight", 2 * keys + values, hidden, "attn-qkv")
    yield _Planned("attn_gate.weight", values, hidden)
    yield _Planned("ssm_ba.weight", 2 * mixer.v_heads, hidden)
    yield _Planned("ssm_conv1d.weight", 2 * keys + values, mixer.conv_kernel, fixed="F32")
    yield _Planned("ssm_out.weight", hidden, values)


def _mamba(mixer: Mamba, hidden: int) -> Iterator[_Planned]:
    inner = mixer.inner_width
    if mixer.generation == 1:
        yield _Planned("ssm_in.weight", 2 * inner, hidden)
        yield _Planned("ssm_x.weight", mixer.dt_rank + 2 * mixer.state, inner)
        yield _Planned("ssm_dt.weight", inner, mixer.dt_rank)
        yield _Planned("ssm_a", inner, mixer.state, fixed="F32")
        channels = inner
    else:
        yield _Planned("ssm_in.weight", 2 * inner + 2 * mixer.groups * mixer.state + mixer.heads, hidden)
        channels = inner + 2 * mixer.groups * mixer.state
    yield _Planned("ssm_conv1d.weight", channels, mixer.conv_kernel, fixed="F32")
    yield _Planned("ssm_out.weight", hidden, inner)


def _dense(feed: Dense, hidden: int) -> Iterator[_Planned]:
    if feed.gated:
        yield _Planned("ffn_gate.weight", feed.width, hidden, "ffn-gate")
    yield _Planned("ffn_up.weight", feed.width, hidden, "ffn-up")
    yield _Planned("ffn_down.weight", hidden, feed.width, "ffn-down")


def _experts(feed: Experts, hidden: int) -> Iterator[_Planned]:
    width = feed.latent or hidden
    yield _Planned("ffn_gate_inp.weight", feed.count, hidden, fixed="F32")
    if feed.gated:
        yield _Planned("ffn_gate_exps.weight", feed.count * feed.width, width, "ffn-gate")
    yield _Planned("ffn_up_exps.weight", feed.count * feed.width, width, "ffn-up")
    yield _Planned("ffn_down_exps.weight", feed.count * width, feed.width, "ffn-down")
    if feed.expert_bias:
        yield _Planned("ffn_exps.bias", feed.count, 2 * feed.width + width, fixed="F32")
    if feed.shared_width:
        yield _Planned("ffn_gate_shexp.weight", feed.shared_width, hidden, "ffn-gate")
        yield _Planned("ffn_up_shexp.weight", feed.shared_width, hidden, "ffn-up")
        yield _Planned("ffn_down_shexp.weight", hidden, feed.shared_width, "ffn-down")


def in_file_order(tensors: Sequence[FileTensor]) -> Iterator[tuple[FileTensor, int]]:
    """Every tensor with its offset in the file's data, 32-byte aligned."""
    offset = 0
    for tensor in tensors:
        yield tensor, offset
        offset += -(-tensor.bytes // 32) * 32
