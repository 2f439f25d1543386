"""A checkpoint as stored: its tensors by name, type and shape, read from file headers without loading any of them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec


class StoredTensor(msgspec.Struct, frozen=True):
    """One tensor of a file. `dtype` in the format's own spelling (`BF16`, `F8_E4M3`, `Q4_K`); `bytes` as stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class Checkpoint(msgspec.Struct, frozen=True, dict=True):
    """The files of a model. `complete` is false where only an index or some of the shards were at hand."""

    source: str
    format: Literal["safetensors", "gguf"]
    tensors: tuple[StoredTensor, ...]
    complete: bool = True
    file_type: str = ""
    """GGUF's own name for the mix of types (`Q4_K_M`)."""

    @cached_property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)
