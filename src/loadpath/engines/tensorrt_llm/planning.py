"""TensorRT-LLM's memory model: the cache is a share (0.9) of what is free after weights and the peak of a trial step.

The engine backend (before 1.0) has its activations in the engine's own execution context, allocated before the share
is taken; so the same sum holds for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.plan import Plan
from loadpath.core.units import GIB, MIB
from loadpath.planning.deployment import Deployment, Version
from loadpath.planning.share import Request, Settings, Sums, activation_bytes, element_bytes, planned
from loadpath.planning.split import ceil_div

NEWEST: Version = (1, 2, 0)
PYTORCH_SINCE: Version = (1, 0)
"""trtllm-serve runs models by PyTorch unless an engine is built."""
OUTSIDE_TORCH = {"one": round(1.5 * GIB), "many": round(2.7 * GIB)}
"""CUDA context, kernels' modules and graphs of the PyTorch backend. A start of 1.2.0rc4 on one H200 logged 2.55 GiB, a
cache for the trial step (1 GiB, given back) in it; `many` adds what other engines' communicators take."""
DEFAULT_SHARE, DEFAULT_TOKENS, DEFAULT_BATCH = 0.9, 8192, 2048


def plan(deployment: Deployment) -> Plan:
    """The plan of a trtllm-serve start."""
    given, shape = Settings(deployment.settings), deployment.shape
    version = deployment.version or NEWEST
    tp, pp = given.whole("tp_size") or 1, given.whole("pp_size") or 1
    tokens = given.whole("max_num_tokens") or DEFAULT_TOKENS
    batch = given.whole("max_batch_size") or DEFAULT_BATCH
    pytorch = version >= PYTORCH_SINCE
    context = given.whole("max_seq_len") or shape.max_position
    # The PyTorch backend tries a step of requests as long as they may be: few of them, so few logits.
    sequences = ceil_div(tokens, max(1, min(tokens, context - 1))) if pytorch else min(batch, tokens)
    asked = Request(
        engine="tensorrt-llm", version=".".join(map(str, version)), tp=tp, pp=pp,
        share=given.number("kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction", "free_gpu_memory_fraction")
        or DEFAULT_SHARE,
        context=context, block=32 if pytorch else 64,
        element_bytes=element_bytes(given.text("kv_cache_dtype"), shape),
        activations=activation_bytes(shape, tp, tokens, sequences), most_tokens=given.whole("max_tokens"),
        context_bytes=OUTSIDE_TORCH["many" if tp * pp > 1 else "one"] if pytorch else None,
    )  # fmt: skip

    def lines(sums: Sums) -> Iterator[str]:
        yield from _pytorch(asked, sums, tokens, batch) if pytorch else _engine(asked, sums)

    window = any(getattr(mixer, "window", 0) for layer in shape.layers for mixer in layer.mixers)
    notes: tuple[str, ...] = ("activations by a rule of thumb: a trial step of max_num_tokens measures them",)
    if window:
        notes += ("window layers are counted as if they kept every token: their pools may hold more",)
    return planned(deployment, asked, lines, notes)


def _pytorch(asked: Request, sums: Sums, tokens: int, batch: int) -> Iterator[str]:
    prefix = "[01/01/2026-00:00:00] [TRT-LLM] [I] "
    peak = sums.card.total_bytes - sums.free + sums.weights + asked.activations
    outside = sums.card.total_bytes - sums.free
    yield f"[TensorRT-LLM] TensorRT-LLM version: {asked.version}"
    yield f"{prefix}Use {sums.weights / 1e9:.2f} GB for model weights."
    if sums.load_error:
        yield sums.load_error
        return
    yield f"{prefix}Memory used after loading model weights (inside torch) in memory usage profiling: {sums.weights / GIB:.2f} GiB"
    yield (
        f"{prefix}Memory dynamically allocated during inference (inside torch) in memory usage profiling: "
        f"{asked.activations / GIB:.2f} GiB"
    )
    yield f"{prefix}Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: {outside / GIB:.2f} GiB"
    yield (
        f"{prefix}Peak memory during memory usage profiling (torch + non-torch): {peak / GIB:.2f} GiB, available KV cache "
        f"memory when calculating max tokens: {max(sums.left, 0) / GIB:.2f} GiB, fraction is set {asked.share}, kv size is "
        f"{round(sums.kv_bytes / sums.tokens) if sums.tokens else 0}. device total memory {sums.card.total_bytes / GIB:.2f} GiB, "
    )
    yield f"[TensorRT-LLM][INFO] [MemUsageChange] Allocated {sums.kv_bytes / GIB:.2f} GiB for max tokens in paged KV cache ({sums.tokens})."
    yield f"{prefix}max_seq_len={asked.context}, max_num_requests={batch}, max_num_tokens={tokens}, max_batch_size={batch}"


def _engine(asked: Request, sums: Sums) -> Iterator[str]:
    yield f"[TensorRT-LLM][INFO] Engine version {asked.version} found in the config file, assuming engine(s) built by new builder API."
    yield f"[TensorRT-LLM][INFO] Loaded engine size: {sums.weights // MIB} MiB"
    free = sums.free - sums.weights - asked.activations
    yield (
        f"[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: "
        f"{sums.card.total_bytes / GIB:.2f} GiB, available: {free / GIB:.2f} GiB"
    )
    yield f"[TensorRT-LLM][INFO] [MemUsageChange] Allocated {sums.kv_bytes / GIB:.2f} GiB for max tokens in paged KV cache ({sums.tokens})."
