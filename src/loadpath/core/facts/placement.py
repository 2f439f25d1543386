"""Facts about where an engine put what: buffers, layers, free memory at the milestones of a start. Sizes in bytes."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Milestone = Literal["before-weights", "after-weights", "after-kv-pool", "before-graphs", "after-graphs", "after-start"]
BufferPart = Literal["weights", "kv", "compute", "state", "output", "unknown"]


class FreeMemory(Fact, frozen=True, kw_only=True):
    """Free memory on one device, as the engine printed it at a milestone of its start.

    `what` tells passes apart that print the same lines (`target`, `draft`). SGLang's GB are GiB.
    """

    when: Milestone
    bytes: int
    total_bytes: int | None = None
    rank: int | None = None
    device: str | None = None
    what: str = ""


class BufferPlaced(Fact, frozen=True, kw_only=True):
    """One buffer that ggml allocated: which part of the model on which device (`CUDA0`, `CPU_Mapped`, `CUDA_Host`)."""

    part: BufferPart
    device: str
    bytes: int
    planned: bool = False
    """Ollama's own account of the placement, printed before ggml allocates."""

    @property
    def on_gpu(self) -> bool:
        return is_gpu(self.device)


class SidePool(Fact, frozen=True, kw_only=True):
    """A pool beside the KV cache itself (which is a KvPool): `draft` (a drafter's cache), `sliding` and `full` (the two
    parts of a window model's cache), `state` (recurrent state), `measuring` (built for the profiling pass only)."""

    what: str
    tokens: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    rank: int | None = None


class BufferRefused(Fact, frozen=True, kw_only=True):
    """An allocator refused a buffer. `part` says which, once a later line names it; `reason` as printed.

    `placed_bytes`: what the same load had put on that device before, as far as the log shows it.
    """

    part: BufferPart
    device: str
    bytes: int | None = None
    reason: str = ""
    placed_bytes: int | None = None

    @property
    def on_gpu(self) -> bool:
        return is_gpu(self.device)


class LayersOffloaded(Fact, frozen=True, kw_only=True):
    """`on_gpu` of `total` layers were put on the GPU (llama.cpp counts the output layer as one).

    `requested`: what the settings asked for (-1: automatic). `estimate`: a plan before the load, not its result.
    """

    on_gpu: int
    total: int
    requested: int | None = None
    estimate: bool = False


class OffloadPlan(Fact, frozen=True, kw_only=True):
    """What Ollama or llama.cpp's fit step worked out before the load: memory that everything on the GPU would take
    (`full_bytes`), that the chosen placement takes (`planned_bytes`), and what the devices had free (`free_bytes`).
    `target_bytes`: the margin that it wants to keep free on each device."""

    full_bytes: int | None = None
    planned_bytes: int | None = None
    free_bytes: int | None = None
    kv_bytes: int | None = None
    target_bytes: int | None = None
    projector_bytes: int | None = None
    """Weights and graph of the vision projector, which go to the GPU before any layer (Ollama)."""
    graph_bytes: int | None = None
    library: str = ""
    gave_up: str | None = None
    """Why llama.cpp's fit step changed nothing (the load goes on with the settings as they are)."""


class DeviceFound(Fact, frozen=True, kw_only=True):
    """A device that an engine found (or was given). `library`: `cuda`, `rocm`, `vulkan`, `cpu`, …; capability `8.6`, or `gfx1100`."""

    name: str
    index: int | None = None
    library: str = "cuda"
    capability: str | None = None
    driver: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None


def is_gpu(device: str) -> bool:
    """Whether a ggml buffer name means device memory: `CUDA0` does; `CUDA_Host`, `CPU`, `CPU_Mapped`, `Host` do not."""
    return device[:4].upper() in ("CUDA", "ROCM", "HIP0", "VULK", "SYCL", "META") and not device.endswith("_Host")


class ModelFile(Fact, frozen=True, kw_only=True):
    """A GGUF file as its loader describes it: kind of quantisation (`Q4_K - Medium`), size, bits per weight,
    parameters, the context length that the model was trained for."""

    file_type: str | None = None
    bytes: int | None = None
    bits_per_weight: float | None = None
    parameters: float | None = None
    trained_tokens: int | None = None
