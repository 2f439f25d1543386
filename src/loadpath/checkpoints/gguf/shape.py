"""A GGUF file → a shape: what its layers are (`layers`), and what lies around them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.gguf.file import GgufFile
from loadpath.checkpoints.gguf.layers import Block, LayerReader
from loadpath.core.shape import Drafter, Dtype, GatedDelta, Layer, Mamba, ModelShape, Quantisation, Role, Rope

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_MODULES: frozenset[Role] = frozenset(
    {"attention", "mlp", "experts", "shared-experts", "recurrent", "embedding", "lm_head"}
)
_UNQUANTISED = frozenset({"F32", "F16", "BF16"})
_EMPTY_MOST = 256
"""Layers without tensors at the end (pruned ones) beyond which the metadata is taken for damaged."""
_DAMAGE = (KeyError, IndexError, ZeroDivisionError, OverflowError)
"""What tensors that are missing or of another rank make of the reading."""
_OTHER = ("altup_proj.weight", "altup_unembd_proj.weight")
"""Tensors outside the layers without a field of their own (Gemma 3n)."""


def shape_of(file: GgufFile) -> ModelShape:
    """The shape of the language model in `file`. ModelError where tensors are missing or make no sense together."""
    try:
        return _shape(file)
    except _DAMAGE as error:
        raise ModelError(f"{file.path}: its tensors are not those of a whole model ({error!r})") from error


def _shape(file: GgufFile) -> ModelShape:
    architecture = file.architecture
    if architecture in ("clip", "mmproj"):
        raise ModelError(f"{file.path} is the image projector of a model, not the model itself")
    blocks, outside = _blocks(file)
    count, drafted = file.required("block_count"), file.number("nextn_predict_layers")
    if not blocks:
        raise ModelError(f"{file.path} ({architecture or 'no architecture'}) has no layers: not a language model")
    if count - max(blocks) > _EMPTY_MOST:
        raise ModelError(f"{file.path} says {count:,} layers and holds tensors of {max(blocks) + 1:,}")
    reader, one = LayerReader(file), dict[Layer, Layer]()
    layers = [reader.layer(index, blocks.get(index, {})) for index in range(count - drafted)]
    embedding = outside.get("token_embd.weight")
    limit, rotary = file.number("context_length"), file.number("rope.dimension_count")
    recurrent = any(isinstance(mixer, Mamba | GatedDelta) for layer in layers for mixer in layer.mixers)
    return ModelShape(
        id=str(file.metadata.get("general.name") or "") or file.path.rsplit("/", 1)[-1],
        family=architecture,
        architecture=architecture,
        hidden=reader.hidden,
        vocab=embedding.shape[0] if embedding else file.number("vocab_size"),
        tied="output.weight" not in outside,
        max_position=limit,
        dtype=_dtype(file),
        layers=tuple(one.setdefault(layer, layer) for layer in layers),
        rope=(Rope(limit, rotary, str(file.key("rope.scaling.type") or "")),) if rotary and limit else (),
        learned_positions=outside["position_embd.weight"].shape[0] if "position_embd.weight" in outside else 0,
        norm_vectors=2 if "output_norm.bias" in outside else 1,
        lm_head_bias="output.bias" in outside,
        per_layer_embedding=file.number("embedding_length_per_layer_input"),
        per_layer_vocab=_per_layer_rows(file, outside, count),
        state_dtype="float32" if recurrent else None,
        other=sum(outside[name].elements for name in _OTHER if name in outside),
        drafter=Drafter(drafted) if drafted else None,
        quantisation=_quantisation(file),
        parameters=sum(tensor.elements for tensor in file.tensors if not _is_beside(tensor.name, count - drafted)),
        basis="checkpoint",
        source=file.path,
        note="; ".join(_notes(file, layers)),
    )


def _notes(file: GgufFile, layers: list[Layer]) -> Iterator[str]:
    if not file.complete:
        yield "some parts of the split file are missing: figures of weights are too low"
    if any(not layer.mixers and layer.other for layer in layers):
        yield "the state of its convolutions or recurrent mixers is left out"


def _per_layer_rows(file: GgufFile, outside: Block, count: int) -> int:
    """Rows of the embedding that every layer has of its own."""
    table, width = outside.get("per_layer_token_embd.weight"), file.number("embedding_length_per_layer_input")
    return table.elements // (width * count) if table and width else 0


def _is_beside(name: str, layers: int) -> bool:
    """Tables that are no parameters, and layers of a drafter."""
    found = _BLOCK.match(name)
    return name.startswith("rope_") or "rope_freqs" in name or bool(found and int(found[1]) >= layers)


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
    if most in _UNQUANTISED:
        return None
    digits = re.search(r"\d", most)
    return Quantisation(
        method="gguf", bits=int(digits[0]) if digits else 4, format=file.file_type or most, modules=_MODULES
    )
