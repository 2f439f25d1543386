"""A GGUF file's metadata and tensor table (versions 2 and 3, either byte order, split files).

Layout: `GGUF`, version, tensor count, pair count, the pairs, the tensor table, padding, data. Numbers are those of
the machine that wrote it; version 3 may be big-endian. Arrays of strings (vocabularies) are skipped, not kept.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.core.checkpoint import Checkpoint, StoredTensor
from loadpath.knowledge.ggml_types import GGML_TYPES, TYPE_NUMBERS, ggml_bytes

ALIGNMENT = 32
"""Bytes between tensors unless `general.alignment` says otherwise."""
LONGEST_ARRAY = 4096
"""Entries of an array of numbers that are kept (one a layer); longer ones (scores of tokens) are skipped."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

FILE_TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip
"""`general.file_type` → llama.cpp's name of the mix."""


class GgufFile(msgspec.Struct, frozen=True):
    """Metadata and tensors of a model, of all its parts together. `complete`: every part of a split file was there."""

    path: str
    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    complete: bool = True

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture") or "")

    @property
    def file_type(self) -> str:
        number = self.metadata.get("general.file_type")
        return FILE_TYPES.get(number & 1023, "") if isinstance(number, int) else ""

    def key(self, name: str) -> Any:
        """`<architecture>.<name>`; None where absent."""
        return self.metadata.get(f"{self.architecture}.{name}")

    def number(self, name: str, layer: int = 0) -> int:
        """A whole number for all layers, or one a layer; 0 where absent."""
        value = self.key(name)
        if isinstance(value, list):
            value = value[layer] if layer < len(value) else 0
        return int(value) if isinstance(value, (int, float)) else 0

    def required(self, name: str) -> int:
        """A whole number that the file must state."""
        value = self.number(name)
        if not value:
            raise ModelError(f"{self.path}: no `{self.architecture}.{name}`")
        return value


def read(path: Path) -> GgufFile:
    """The file, with the other parts where it is the first of several."""
    found = _read_one(path)
    count = int(found.metadata.get("split.count") or 1)
    if count <= 1:
        return found
    name = _SPLIT.search(path.name)
    if name is None:
        raise ModelError(f"{path} is one of {count} parts, but its name does not end in -00001-of-{count:05d}.gguf")
    stem = path.name[: name.start()]
    parts = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    if not parts[0].is_file():
        raise ModelError(f"{parts[0].name}, the first of {count} parts, is missing beside {path}")
    files = [_read_one(part) for part in parts if part.is_file()]
    return GgufFile(
        str(parts[0]), files[0].version, files[0].metadata, tuple(tensor for file in files for tensor in file.tensors),
        complete=len(files) == count,
    )  # fmt: skip


def checkpoint_of(file: GgufFile) -> Checkpoint:
    return Checkpoint(file.path, "gguf", file.tensors, complete=file.complete, file_type=file.file_type)


def _read_one(path: Path) -> GgufFile:
    with path.open("rb") as handle:
        if path.stat().st_size < 24:
            raise ModelError(f"{path} is no GGUF file: it has {path.stat().st_size} bytes")
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"GGUF":
                if data[:8] == b"version ":
                    raise ModelError(f"{path} is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
                raise ModelError(f"{path} is no GGUF file: it begins with {bytes(data[:4])!r}")
            try:
                return _Parser(data, str(path)).parse()
            except (struct.error, IndexError, ValueError, OverflowError, MemoryError, RecursionError) as error:
                if isinstance(error, ModelError):
                    raise
                raise ModelError(
                    f"{path} is cut off or damaged in its header ({len(data):,} bytes are there)"
                ) from error


class _Parser:
    """One pass over the header."""

    def __init__(self, data: mmap.mmap, path: str) -> None:
        self.data, self.path, self.at = data, path, 4
        version = self._number("<I")
        self.order = "<" if version < 1 << 16 else ">"
        self.version = version if self.order == "<" else struct.unpack(">I", struct.pack("<I", version))[0]

    def parse(self) -> GgufFile:
        if self.version not in (2, 3):
            raise ModelError(f"{self.path} is of GGUF version {self.version}: versions 2 and 3 are read")
        tensors, pairs = self._number("Q"), self._number("Q")
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            metadata[key] = self._value(self._number("I"))
        return GgufFile(self.path, self.version, metadata, self._tensors(tensors, metadata))

    def _number(self, kind: str) -> Any:
        form = kind if kind[0] in "<>" else self.order + kind
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _string(self) -> str:
        length = self._number("Q")
        if length > len(self.data) - self.at:
            raise IndexError("string beyond the end")
        text = self.data[self.at : self.at + length].decode("utf-8", "replace")
        self.at += length
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise IndexError(f"value of unknown type {kind}")
        return self._number(_SCALARS[kind])

    def _array(self) -> Any:
        kind, count = self._number("I"), self._number("Q")
        if kind == _STRING:
            self._skip_strings(count)
            return {"strings": count}
        if kind == _ARRAY:
            return [self._array() for _ in range(count)]
        form = _SCALARS[kind]
        size = struct.calcsize(f"<{form}")
        start, self.at = self.at, self.at + size * count
        if count > LONGEST_ARRAY:
            return {"numbers": count}
        return list(struct.unpack_from(f"{self.order}{count}{form}", self.data, start))

    def _skip_strings(self, count: int) -> None:
        at, data, length = self.at, self.data, struct.Struct(f"{self.order}Q").unpack_from
        for _ in range(count):
            at += 8 + length(data, at)[0]
        self.at = at

    def _tensors(self, count: int, metadata: Mapping[str, Any]) -> tuple[StoredTensor, ...]:
        rows: list[tuple[int, str, str, tuple[int, ...]]] = []
        for _ in range(count):
            name, ways = self._string(), self._number("I")
            shape = tuple(self._number("Q") for _ in range(ways))[::-1]  # fastest first in the file
            number, offset = self._number("I"), self._number("Q")
            rows.append((offset, name, TYPE_NUMBERS.get(number, f"type {number}"), shape))
        alignment = int(metadata.get("general.alignment") or ALIGNMENT)
        room = len(self.data) - -(-self.at // alignment) * alignment
        starts = sorted(row[0] for row in rows)
        ends = dict(zip(starts, [*starts[1:], room], strict=True))
        tensors = tuple(
            StoredTensor(name, kind, shape, _bytes(kind, shape, ends[start] - start))
            for start, name, kind, shape in rows
        )
        needed = max((row[0] + tensor.bytes for row, tensor in zip(rows, tensors, strict=True)), default=0)
        if needed > room:
            raise ModelError(f"{self.path} is cut off: its tensors take {needed:,} bytes, {max(room, 0):,} are there")
        return tensors


def _bytes(kind: str, shape: tuple[int, ...], room: int) -> int:
    """Bytes of a tensor; of a type that is not known, all the room up to the next."""
    elements = 1
    for size in shape:
        elements *= size
    known = ggml_bytes(kind, elements) if kind in GGML_TYPES else None
    return room if known is None else known
