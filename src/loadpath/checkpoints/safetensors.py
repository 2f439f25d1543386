"""Safetensors files: the header (an 8-byte length and a JSON table of tensors), never the tensors themselves.

A header reads as

    {"__metadata__": {"format": "pt"},
     "lm_head.weight": {"dtype": "BF16", "shape": [32000, 4096], "data_offsets": [0, 262144000]}}

and offsets count from the end of the header. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.core.checkpoint import Checkpoint, StoredTensor

LENGTH_BYTES = 8
HEADER_LIMIT = 100_000_000
"""Bytes; the format's own limit of a header."""
INDEX = "model.safetensors.index.json"
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64,
    "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element of each stored type."""


def read_folder(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder`: its index where it has one, else all its `.safetensors`; None where it has neither."""
    index = folder / INDEX
    if index.is_file():
        return _read_indexed(folder, index)
    files = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if not files:
        return None
    # Mistral's own layout beside the usual one holds the same tensors under other names.
    if len(files) > 1 and any(path.name == "model.safetensors" for path in files):
        files = [path for path in files if not path.name.startswith("consolidated")]
    return Checkpoint(str(folder), "safetensors", tuple(tensor for path in files for tensor in read_file(path)))


def _read_indexed(folder: Path, index: Path) -> Checkpoint:
    table = _json(index.read_bytes(), str(index))
    names = table.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{index} has no `weight_map`")
    shards = sorted({str(shard) for shard in names.values()})
    present = [shard for shard in shards if (folder / shard).is_file()]
    tensors = tuple(tensor for shard in present for tensor in read_file(folder / shard))
    return Checkpoint(str(folder), "safetensors", tensors, complete=len(present) == len(shards))


def read_file(path: Path) -> tuple[StoredTensor, ...]:
    """The tensors of one file; ModelError where the file is cut off or its header is damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, HEADER_LIMIT):
            if head_of_pointer(path):
                raise ModelError(f"{path} is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
            raise ModelError(
                f"{path} is no whole safetensors file: its header takes {length:,} bytes, the file has {size:,}"
            )
        header = file.read(length)
    return tensors_of(header, str(path), size - LENGTH_BYTES - length)


def tensors_of(header: bytes, name: str, data_bytes: int | None = None) -> tuple[StoredTensor, ...]:
    """The tensors that a header lists, in stored order. `data_bytes`: what follows the header; None: not checked."""
    table = _json(header, name)
    table.pop("__metadata__", None)
    tensors = []
    end = 0
    for key, entry in table.items():
        try:
            dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
            start, stop = (int(n) for n in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{name}: the entry of tensor `{key}` is damaged ({error})") from error
        tensor = StoredTensor(key, dtype, shape, stop - start)
        if dtype in BITS and tensor.elements * BITS[dtype] != tensor.bytes * 8:
            raise ModelError(
                f"{name}: tensor `{key}` of {dtype} {list(shape)} takes {tensor.elements * BITS[dtype] // 8:,} bytes, "
                f"its offsets span {tensor.bytes:,}"
            )
        tensors.append((start, tensor))
        end = max(end, stop)
    if data_bytes is not None and end > data_bytes:
        raise ModelError(f"{name} is cut off: its tensors take {end:,} bytes, {data_bytes:,} are there")
    return tuple(tensor for _, tensor in sorted(tensors, key=lambda pair: pair[0]))


def head_of_pointer(path: Path) -> bool:
    """Whether `path` is the short text that Git keeps in place of a large file."""
    with path.open("rb") as file:
        return file.read(64).startswith(b"version https://git-lfs.github.com/spec/")


def _json(data: bytes, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ModelError(f"{name} is no valid JSON: {error}") from error
