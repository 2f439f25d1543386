"""Buffers that an allocator refused. The refusal and what it was for stand on different lines::

ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9437184000
llama_new_context_with_model: failed to allocate compute buffers
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.placement import BufferPart, BufferRefused
from loadpath.core.text import Capture, Line
from loadpath.core.units import mib

AHEAD = 12  # lines after the refusal in which its purpose is named
_REFUSED = re.compile(
    r"allocating (?P<mib>[\d.]+) MiB on device (?P<index>\d+): cudaMalloc failed: (?P<reason>.+)"
    r"|ggml_aligned_malloc: insufficient memory \(attempted to allocate\s+(?P<host>[\d.]+) MB\)"
    r"|(?:alloc_tensor_range|ggml_gallocr_reserve_n\w*|buft_alloc_buffer\w*|cpu_buffer_type_alloc_buffer): "
    r"failed to allocate (?:(?P<device>\S+) )?buffer of size (?P<bytes>\d+)"
    r"|Device memory allocation of size (?P<vulkan>\d+) failed"
    r"|error loading model: unable to allocate (?P<named>\S+) buffer"
)
_PURPOSE: tuple[tuple[BufferPart, re.Pattern[str]], ...] = (
    ("kv", re.compile(r"buffer for (?:the )?kv cache|kv_cache_init\(\) failed|failed to allocate buffer for rs cache")),
    ("compute", re.compile(r"allocate compute|ggml_gallocr_reserve|graph_reserve|compute (?:pp|tg) buffers")),
    (
        "weights",
        re.compile(r"error loading model: unable to allocate|unable to allocate \S+ buffer"),
    ),
)
# ggml's own function for weights and KV cache alike: taken for the weights where no other line says.
_EITHER = "alloc_tensor_range"
# The purpose alone, where the refusal above it was not pasted.
_ALONE = re.compile(
    r"failed to allocate buffer for (?:the )?kv cache|kv_cache_init\(\) failed|failed to allocate compute (?:pp |tg )?buffers?"
)
_RUNTIME = re.compile(r"(?:CUDA|ROCm) error: out of memory")
_WHERE = re.compile(r"current device: (?P<index>\d+), in function (?P<function>\S+) at \S*ggml-(?:cuda|backend)")


def read_refusals(capture: Capture) -> Iterator[BufferRefused]:
    """One fact for each refusal; lines that repeat it (device by name, backend buffer) belong to it."""
    lines = [line for line in capture.lines if not line.prose and line.text]
    last = -AHEAD
    for i, line in enumerate(lines):
        if "ocat" not in line.text and "out of memory" not in line.text:
            continue
        if (match := _REFUSED.search(line.text)) and i - last >= 4:
            last = i
            yield _refused(capture, lines, i, match)
        elif i - last >= AHEAD and _ALONE.search(line.text):
            last = i
            yield BufferRefused(**at(capture, line), part=_part(lines[i : i + 1]), device="CUDA")
        elif _RUNTIME.search(line.text) and (where := _where(lines[i : i + 3])):
            yield BufferRefused(
                **at(capture, line), part="unknown", device=f"CUDA{where['index']}", reason=where["function"]
            )  # fmt: skip


def _where(lines: Sequence[Line]) -> re.Match[str] | None:
    return next((match for line in lines if (match := _WHERE.search(line.text))), None)


def _refused(capture: Capture, lines: Sequence[Line], i: int, match: re.Match[str]) -> BufferRefused:
    named = match["device"] or match["named"] or ("Vulkan0" if match["vulkan"] else "CPU")
    device = f"CUDA{match['index']}" if match["index"] else named
    sizes = (match["mib"], match["host"])
    in_mib = next((size for size in sizes if size), None)
    in_bytes = match["bytes"] or match["vulkan"]
    return BufferRefused(
        **at(capture, lines[i]),
        part=_part(lines[i : i + AHEAD]),
        device=device,
        bytes=mib(float(in_mib)) if in_mib else int(in_bytes) if in_bytes else None,
        reason=(match["reason"] or "").strip(),
    )


def _part(lines: Sequence[Line]) -> BufferPart:
    for line in lines:
        for part, pattern in _PURPOSE:
            if pattern.search(line.text):
                return part
    return "weights" if any(_EITHER in line.text for line in lines[:3]) else "unknown"
