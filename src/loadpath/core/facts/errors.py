"""Facts about failures: matched error texts, exceptions, out-of-memory messages."""

from __future__ import annotations

from loadpath.core.facts.base import Fact


class Symptom(Fact, frozen=True, kw_only=True):
    """A line that matches a row of `knowledge/findings`: `finding` is the row's id, `groups` what its pattern caught.

    `match` is the index of the pattern within the row."""

    finding: str
    match: int = 0
    groups: dict[str, str] = {}


class PythonException(Fact, frozen=True, kw_only=True):
    """An exception at the end of a traceback (or printed alone). `chain` counts the exceptions that led to it:
    0 is the first cause. `frames` innermost last, as (file, line, function)."""

    exception: str
    """Class as printed, `torch.OutOfMemoryError`."""
    message: str
    frames: tuple[tuple[str, int, str], ...] = ()
    chain: int = 0


class OutOfMemory(Fact, frozen=True, kw_only=True):
    """An allocator said no. Bytes; None where the message does not say (every era of PyTorch, llama.cpp, …).

    `gpu` as printed; `own_bytes`: this process; `others`: (pid, bytes) of each process the message names;
    `allocated_bytes`/`reserved_unallocated_bytes`: PyTorch's own; `limit_bytes`: an allocator limit.
    `kind`: `cuda`, `hip`, `host`, `pinned`. `allocator`: `torch`, `llama.cpp`, `cudaMalloc`, …
    """

    requested_bytes: int | None = None
    gpu: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    own_bytes: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    allocated_bytes: int | None = None
    reserved_unallocated_bytes: int | None = None
    private_pool_bytes: int | None = None
    limit_bytes: int | None = None
    kind: str = "cuda"
    allocator: str = "torch"
    cut: bool = False
    """The message is incomplete (pasted title, truncated line)."""
    phase: str = ""
    """What the frames and words around the message say was going on (`weights`, `profiling`, …: see `core.facts.memory`)."""
    operation: str = ""
    """The operation that asked for the memory, where a frame names it (`softmax`, `scaled_fp8_quant`, `logits`)."""


class FreeBelowDesired(Fact, frozen=True, kw_only=True):
    """vLLM's check at the start: free memory on the device is less than the share it was told to use."""

    free_bytes: int
    total_bytes: int | None = None
    utilisation: float | None = None
    desired_bytes: int | None = None
    device: int | None = None


class MemoryChangedWhileProfiling(Fact, frozen=True, kw_only=True):
    """Free (or used) memory moved the wrong way during the profiling pass: somebody else was on the GPU."""

    initial_bytes: int | None = None
    current_bytes: int | None = None
    measure: str = "free"


class ProcessEnded(Fact, frozen=True, kw_only=True):
    """A child process ended: exit code as printed (negative: signal), name and pid where known."""

    name: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
