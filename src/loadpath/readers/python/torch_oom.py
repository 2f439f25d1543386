"""Out-of-memory messages of every allocator but llama.cpp's own: PyTorch of every era, raw CUDA, libraries, XLA, host.

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 31.36 GiB of
    which 41.00 MiB is free. Including non-PyTorch memory, this process has 31.30 GiB memory in use. …

Sizes are powers of two. A message may be cut anywhere (thread titles) or wrapped. What was going on is told by the
frames around it, see `readers.phases`. (Texts by age: shared facts, engines.md F1.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from loadpath.core.facts.base import at
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.text import Capture
from loadpath.core.units import parse_size
from loadpath.readers.joined import readings
from loadpath.readers.phases import operation_of, phase_of

WINDOW = 9  # a wrapped message is looked for in so many lines
_MARKS = ("out of memory", "outofmemory", "memoryallocation", "alloc_failed", "out_of_memory", "resource_exhausted",
          "defaultcpuallocator", "would exceed allowed memory", "unable to allocate", "requested amount of gpu memory",
          "cudahostalloc", "oom when allocating", "not enough gpu memory")  # fmt: skip
# llama.cpp's own lines (its engine reads them), the sampler's message (read with the KV errors), slot pools, the host's killer.
_NOT_MINE = re.compile(
    r"ggml|cudaMalloc failed|alloc_tensor_range|warming up (?:sampler|pooler)|alloc_req_slots|Prefill out of memory"
    r"|Decode out of memory|cgroup out of memory|Out of memory: Kill|oom-kill|llama_|retract|cache out of memory"
    r"|^\s*(?:except|raise|from|import|if|elif|#|\"\"\")\b",
    re.IGNORECASE,
)
_SIZE = r"(-?[\d.]+(?: ?(?:[KMGTE]i?B|bytes))?)"


@cache
def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _size(pattern: str, text: str) -> int | None:
    found = _re(pattern.replace("SIZE", _SIZE)).search(text)
    return parse_size(found[1], decimal_is_binary=True) if found else None


def read(capture: Capture) -> Iterator[OutOfMemory]:
    lines = [line for line in capture.lines if not line.prose]
    for i, line in enumerate(lines):
        low = line.text.lower()
        if not any(mark in low for mark in _MARKS) or _NOT_MINE.search(line.text):
            continue
        fields = _best(readings(lines, i, WINDOW, _re("out of memory")))
        if fields is None:
            continue
        fact = OutOfMemory(**at(capture, line), **fields)
        phase = fields.get("phase") or phase_of(lines, i)
        if fact.kind == "cuda" and phase == "pinned":
            fact, phase = msgspec.structs.replace(fact, kind="pinned"), ""
        yield msgspec.structs.replace(fact, phase=phase, operation=operation_of(lines, i))


def _best(readings: list[str]) -> dict[str, Any] | None:
    """The reading with most figures; on a tie the one joined by blanks."""
    made = [fields for text in readings if (fields := next((m for make in _MAKERS if (m := make(text))), None))]
    return max(made, key=lambda fields: sum(value not in (None, (), True) for value in fields.values()), default=None)


def _torch(text: str) -> dict[str, Any] | None:
    """PyTorch's caching allocator, 0.4 to today; also its cut forms."""
    found = _re(r"\b(CUDA|HIP|XPU|NPU|MUSA) out of memory\b(?! at\b)").search(text)
    if not found:
        bare = _re(r"torch\.(?:cuda\.)?OutOfMemoryError").search(text)
        return {"cut": True} if bare and "Error" in text and "CUDA error" not in text else None
    text = text[found.start() :]
    total = _size(r"total capac\w* of SIZE", text) or _size(r"SIZE total capac\w*", text)
    if bare := _re(r"total capac\w* of ([\d.]+)\W*$").search(text):
        total = round(float(bare[1].rstrip(".")) * (1 << 30))  # cut before its unit: cards are counted in GiB
    free = _free(text, total)
    own = _size(r"this process has SIZE memory in use", text)
    if own is not None and own > 1 << 60:
        own = None  # WSL prints an overflow
    gpu = _re(r"\bGPU (\d+)\b").search(text)
    allocated = _size(r"SIZE (?:is allocated by PyTorch|already allocated)", text)
    cached = _size(r"SIZE reserved in total by PyTorch", text) or _size(r"SIZE cached\b", text)
    idle = _size(r"SIZE is reserved by PyTorch but unallocated", text)
    if idle is None and cached is not None and allocated is not None:
        idle = max(0, cached - allocated)
    asked = _size(r"Tried to allocate SIZE", text)
    others = tuple(
        (int(pid), size) for pid, printed in _re(rf"Process (\d+) has {_SIZE} memory in use").findall(text)
        if (size := parse_size(printed, decimal_is_binary=True)) is not None and size < 1 << 60
    )  # fmt: skip
    return {
        "requested_bytes": asked, "gpu": int(gpu[1]) if gpu else None, "total_bytes": total, "free_bytes": free,
        "own_bytes": own, "others": others, "allocated_bytes": allocated, "reserved_unallocated_bytes": idle,
        "private_pool_bytes": _size(r"with SIZE allocated in private pools", text),
        "limit_bytes": _size(r"SIZE allowed;", text), "kind": found[1].lower(),
        "cut": asked is None or allocated is None,
    }  # fmt: skip


def _free(text: str, total: int | None) -> int | None:
    """Free bytes; a figure whose unit was cut off is in MiB where GiB would exceed the card."""
    found = _re(rf"of which {_SIZE}").search(text) or _re(rf"[;,] {_SIZE} free;").search(text)
    if not found:
        return None
    if found[1].strip().replace(".", "").isdigit():
        value = float(found[1])
        return round(value * (1 << 20)) if total and value * (1 << 30) > total else None
    return parse_size(found[1], decimal_is_binary=True)


def _malloc_async(text: str) -> dict[str, Any] | None:
    """The cudaMallocAsync backend: its figures stand on the lines that follow."""
    if not (found := _re(r"Allocation on device (\d*).{0,40}?would exceed allowed memory").search(text)):
        return None
    return {
        "gpu": int(found[1]) if found[1] else None, "requested_bytes": _size(r"Requested\s*: SIZE", text),
        "allocated_bytes": _size(r"Currently allocated\s*: SIZE", text), "total_bytes": _size(r"Device limit\s*: SIZE", text),
        "free_bytes": _size(r"Free \(according to CUDA\)\s*: SIZE", text), "allocator": "cudaMallocAsync",
    }  # fmt: skip


def _host(text: str) -> dict[str, Any] | None:
    found = _re(
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+) bytes"
    ).search(text)
    if found:
        return {"kind": "host", "allocator": "torch", "requested_bytes": int(found[1])}
    if found := _re(rf"Unable to allocate {_SIZE} for an array").search(text):
        return {"kind": "host", "allocator": "numpy", "requested_bytes": parse_size(found[1])}
    if _re(r"cudaHostAlloc\b.{0,80}(?:fail|error|out of memory)").search(text):
        return {"kind": "pinned", "allocator": "cudaHostAlloc"}
    return None


def _xla(text: str) -> dict[str, Any] | None:
    if found := _re(r"OOM when allocating tensor with shape.{0,200}?device:GPU:(\d+)").search(text):
        return {"allocator": "tensorflow", "gpu": int(found[1])}
    found = _re(r"RESOURCE_EXHAUSTED: .{0,200}?(?:out of memory|allocat)").search(text)
    if not found:
        return None
    asked = _re(r"allocat\w* (\d+) ?bytes").search(text)
    return {"allocator": "xla", "requested_bytes": int(asked[1]) if asked else _size(r"allocat\w* SIZE", text)}


def _library(text: str) -> dict[str, Any] | None:
    if found := _re(r"\b(CUBLAS|CUDNN|CUSPARSE|CUFFT|CUSOLVER)_(?:STATUS_)?ALLOC_FAILED").search(text):
        return {"allocator": found[1].lower()}
    if _re(r"Cuda failure (?:2 )?'out of memory'").search(text):
        return {"allocator": "nccl"}
    return None


def _raw(text: str) -> dict[str, Any] | None:
    """CUDA itself, asked by a program's own allocator: no figures."""
    if _re(r"cumem_allocator").search(text):
        return {"allocator": "cumem"}
    if _re(r"\[TM\]|turbomind|lmdeploy").search(text):
        return {"allocator": "turbomind"}
    if found := _re(r"Requested amount of GPU memory \((\d+) bytes\) could not be allocated").search(text):
        return {"allocator": "tensorrt", "requested_bytes": int(found[1])}
    if _re(r"(?:TensorRT|TRT).{0,200}(?:out of memory|OutOfMemory)|Error Code \d+: OutOfMemory").search(text):
        asked = _re(r"Requested size was (\d+) bytes").search(text)
        return {"allocator": "tensorrt", "requested_bytes": int(asked[1]) if asked else None}
    if found := _re(r"(?:cupy\S*OutOfMemoryError: )?Out of memory allocating ([\d,]+) bytes").search(text):
        return {"allocator": "cupy", "requested_bytes": int(found[1].replace(",", ""))}
    if _re(r"Failed to load model - not enough GPU memory").search(text):
        return {"phase": "weights", "cut": True}
    if _re(r"ggml-|ggml_").search(text):
        return None  # llama.cpp's own pool, read by its engine
    if _re(r"(?:CUDA|CUresult|cuda runtime|HIP)\W{0,3}(?:driver |runtime )?error\b.{0,80}?out of memory"
           r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory").search(text):  # fmt: skip
        return {"allocator": "cuda", "kind": "hip" if _re(r"\bhip").search(text) else "cuda"}
    return None


_MAKERS: tuple[Callable[[str], dict[str, Any] | None], ...] = (_host, _malloc_async, _torch, _xla, _library, _raw)
