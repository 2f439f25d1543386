"""A model's bytes by layer, summed up so that any run of layers is one subtraction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from loadpath.core.checkpoint import Checkpoint
from loadpath.core.shape import ModelShape
from loadpath.engines.llama_cpp.planning.file_tensors import (
    FileTensor,
    in_file_order,
    of_checkpoint,
    of_shape,
    padded_on_gpu,
)


class Sizes(msgspec.Struct, frozen=True):
    """Running sums over the layers (`n + 1` figures): on a GPU (padded) and on the host. `largest`: the greatest matrix
    of each layer; `pinned`: bytes that placement rules sent to a buffer, whatever its layer; `spans`: (offset, end) in
    the file of the input tensors, of each layer, and of the output tensors."""

    layers: int
    dense: tuple[int, ...]
    experts: tuple[int, ...]
    host_dense: tuple[int, ...]
    host_experts: tuple[int, ...]
    largest: tuple[int, ...]
    largest_expert: tuple[int, ...]
    input: int
    output: int
    host_output: int
    tied: bool
    pinned: tuple[tuple[str, int], ...]
    spans: tuple[tuple[int, int], ...]
    file_bytes: int


_KEPT: dict[tuple[int, str, tuple[tuple[str, str], ...]], tuple[object, Sizes]] = {}


def sizes(
    shape: ModelShape, checkpoint: Checkpoint | None, file_type: str, overrides: tuple[tuple[str, str], ...] = ()
) -> Sizes:
    """The sizes of a GGUF file, or of the file that the shape would give. Kept: a sweep asks for them again and again."""
    source: ModelShape | Checkpoint = shape
    if checkpoint is not None and checkpoint.format == "gguf" and checkpoint.complete:
        source = checkpoint
    key = (id(source), file_type, overrides)
    found = _KEPT.get(key)
    if found is None or found[0] is not source:
        if len(_KEPT) > 256:
            _KEPT.clear()
        tensors = of_checkpoint(source) if isinstance(source, Checkpoint) else of_shape(source, file_type)
        found = _KEPT[key] = (source, _summed(tensors, overrides))
    return found[1]


def _summed(tensors: Sequence[FileTensor], overrides: tuple[tuple[str, str], ...]) -> Sizes:
    count = max((tensor.layer for tensor in tensors), default=-1) + 1
    sums = {
        name: [0] * count for name in ("dense", "experts", "host_dense", "host_experts", "largest", "largest_expert")
    }
    patterns = [(re.compile(pattern), buffer) for pattern, buffer in overrides]
    pinned: dict[str, int] = {}
    outside = {"input": 0, "output": 0, "host_output": 0}
    spans: list[tuple[int, int]] = [(1 << 62, 0)] * (count + 2)
    names, total = set(), 0
    for tensor, offset in in_file_order(tensors):
        names.add(tensor.name)
        total = offset + tensor.bytes
        buffer = next((to for pattern, to in patterns if pattern.search(tensor.name)), None)
        slot = 0 if tensor.place == "input" else count + 1 if tensor.place == "output" else tensor.layer + 1
        spans[slot] = (min(spans[slot][0], offset), max(spans[slot][1], total))
        if buffer is not None:
            pinned[buffer] = pinned.get(buffer, 0) + padded_on_gpu(tensor)
        elif tensor.place == "input":
            outside["input"] += tensor.bytes
        elif tensor.place == "output":
            outside["output"] += padded_on_gpu(tensor)
            outside["host_output"] += tensor.bytes
        else:
            kind = "experts" if tensor.expert else "dense"
            sums[kind][tensor.layer] += padded_on_gpu(tensor)
            sums[f"host_{kind}"][tensor.layer] += tensor.bytes
            largest = sums["largest_expert" if tensor.expert else "largest"]
            largest[tensor.layer] = max(largest[tensor.layer], tensor.bytes)
    tied = "output.weight" not in names
    if tied:  # the embedding is there a second time, as output matrix
        outside["output"] += next((padded_on_gpu(t) for t in tensors if t.name == "token_embd.weight"), 0)
    return Sizes(
        layers=count, dense=_running(sums["dense"]), experts=_running(sums["experts"]),
        host_dense=_running(sums["host_dense"]), host_experts=_running(sums["host_experts"]),
        largest=tuple(sums["largest"]), largest_expert=tuple(sums["largest_expert"]),
        input=outside["input"], output=outside["output"], host_output=outside["host_output"], tied=tied,
        pinned=tuple(sorted(pinned.items())), spans=tuple(spans), file_bytes=total,
    )  # fmt: skip


def _running(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(accumulate(values, initial=0))
