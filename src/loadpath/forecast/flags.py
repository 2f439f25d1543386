"""Flags that a plan depends on, by engine: what is nearly one of them is a slip of the keyboard, not another flag."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from loadpath.forecast.request import PlanRefused

COUNTED: dict[str, tuple[str, ...]] = {
    "vllm": (
        "async-scheduling", "block-size", "compilation-config", "cpu-offload-gb", "cuda-graph-sizes",
        "cudagraph-capture-sizes", "data-parallel-size", "decode-context-parallel-size", "disable-custom-all-reduce",
        "disable-hybrid-kv-cache-manager", "dtype", "enable-chunked-prefill", "enable-expert-parallel", "enable-lora",
        "enable-prefix-caching", "enforce-eager", "gpu-memory-utilization", "hf-overrides", "kv-cache-dtype",
        "kv-cache-memory-bytes", "kv-offloading-size", "limit-mm-per-prompt", "max-lora-rank", "max-loras",
        "max-model-len", "max-num-batched-tokens", "max-num-seqs", "num-gpu-blocks-override", "optimization-level",
        "pipeline-parallel-size", "quantization", "rope-scaling", "skip-mm-profiling", "speculative-config",
        "tensor-parallel-size",
    ),
    "sglang": (
        "attention-backend", "chunked-prefill-size", "context-length", "cuda-graph-max-bs", "disable-cuda-graph",
        "disable-overlap-schedule", "disable-radix-cache", "dp-size", "dtype", "enable-dp-attention", "ep-size",
        "kv-cache-dtype", "mem-fraction-static", "page-size", "pp-size", "quantization", "max-prefill-tokens",
        "max-running-requests", "max-total-tokens", "speculative-algorithm", "speculative-draft-model-path",
        "speculative-eagle-topk", "speculative-num-draft-tokens", "speculative-num-steps", "swa-full-tokens-ratio", "tp-size",
    ),
    "llama.cpp": (
        "batch-size", "cache-type-k", "cache-type-v", "cpu-moe", "ctx-size", "flash-attn", "kv-unified", "n-cpu-moe",
        "n-gpu-layers", "no-kv-offload", "override-tensor", "parallel", "split-mode", "swa-full", "tensor-split",
        "ubatch-size",
    ),
}  # fmt: skip
_SAME: tuple[dict[str, str], ...] = (
    {"vllm": "max-model-len", "sglang": "context-length", "llama.cpp": "ctx-size"},
    {"vllm": "gpu-memory-utilization", "sglang": "mem-fraction-static"},
    {"vllm": "max-num-seqs", "sglang": "max-running-requests", "llama.cpp": "parallel"},
    {"vllm": "max-num-batched-tokens", "sglang": "chunked-prefill-size", "llama.cpp": "ubatch-size"},
)
"""One lever by its names in each engine; those engines know no other's name."""
NEARNESS = 0.88
"""Below it other flags of the same engines lie (`data-parallel-size-local`, `disable-cuda-graph-padding`)."""


def meant(engine: str, name: str) -> str:
    """The flag that `name` nearly is; "" where it is one, or is like none."""
    known = COUNTED.get(engine, ())
    near = [] if name in known else difflib.get_close_matches(name, known, 1, cutoff=NEARNESS)
    return near[0] if near else ""


def refuse_misspelt(engine: str, names: Iterable[str]) -> None:
    """Raises PlanRefused for a flag that is nearly one that counts, or another engine's: it would silently do nothing."""
    for name in names:
        for lever in _SAME:
            theirs = next((other for other, flag in lever.items() if flag == name), engine)
            if theirs != engine and engine in COUNTED:
                own = f": its own is --{lever[engine]}" if engine in lever else ""
                raise PlanRefused(f"--{name} is a flag of {theirs}, not of {engine}{own}")
        if flag := meant(engine, name):
            raise PlanRefused(f"no option --{name} of {engine}: did you mean --{flag}?")
