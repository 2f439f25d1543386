"""The configuration as vLLM prints it: `args: Namespace(…)`, `non-default args: {…}`, the engine's config dump."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Literal

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import ModelNamed, Setting
from loadpath.engines.vllm.pattern import Pattern, Seen

# Names as dumped → long flags. Everything else of a dump (some 200 entries) tells nothing about a start.
FLAGS = {
    "max_seq_len": "max-model-len",
    "max_model_len": "max-model-len",
    "model": "model",
    "model_tag": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv-cache-dtype",
    "load_format": "load-format",
    "enforce_eager": "enforce-eager",
    "chunked_prefill_enabled": "enable-chunked-prefill",
    "attention_config.backend": "attention-backend",
    "tokenizer": "tokenizer",
} | {
    name: name.replace("_", "-") for name in (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel",
        "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override", "block_size", "swap_space",
        "cpu_offload_gb", "max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "enable_prefix_caching",
        "trust_remote_code", "served_model_name", "port", "host", "disable_custom_all_reduce", "limit_mm_per_prompt",
        "max_loras", "max_lora_rank", "enable_lora", "speculative_config", "tool_call_parser", "reasoning_parser",
        "distributed_executor_backend", "attention_backend", "moe_backend", "enable_sleep_mode", "async_scheduling",
        "disable_hybrid_kv_cache_manager", "max_seq_len_to_capture", "cuda_graph_sizes", "device", "seed",
        "kv_offloading_size", "mamba_ssm_cache_dtype", "decode_context_parallel_size", "shutdown_timeout",
    )
}  # fmt: skip
_PAIR = re.compile(r"""(?<![\w.])['"]?(\w+)['"]?\s*[=:]\s*('[^']*'|"[^"]*"|\[[^\[\]]*\]|\{[^{}]*\}|[^,(){}\[\]]+)""")
_UNSET = ("None", "", "auto", "[]", "{}")
LONGEST_DUMP = 20_000


def _args(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("process-start", "progress")
    yield from settings(seen, seen.match[1])


def settings(seen: Seen, dump: str, basis: Literal["dump", "derived"] = "dump") -> Iterator[Fact]:
    """A Setting for each entry of `dump` that matters; the first of a name counts, unset ones are left out."""
    done: set[str] = set()
    for name, value in _entries(dump[:LONGEST_DUMP]):
        flag = FLAGS.get(name)
        value = value.strip().strip("'\"").removeprefix("torch.")
        if flag is None or flag in done or value in _UNSET:
            continue
        done.add(flag)
        if flag == "model":
            yield ModelNamed(**seen.common, name=value)
        if flag == "enforce-eager" and value == "True":
            seen.run.eager = True
        if flag == "block-size" and value.isdecimal() and len(value) < 7:
            seen.run.block_tokens = int(value)
        yield Setting(**seen.common, name=flag, value=value, basis=basis, engine="vllm")


def _entries(dump: str) -> Iterator[tuple[str, str]]:
    if dump.startswith("{"):
        try:
            for name, value in ast.literal_eval(dump).items():
                yield str(name), str(value)
            return
        except (ValueError, SyntaxError, MemoryError, RecursionError, AttributeError):
            pass
    for match in _PAIR.finditer(dump):
        yield match[1], match[2]


def _chosen(name: str) -> Callable[[Seen], Iterator[Fact]]:
    """A setting that the engine says it chose itself."""

    def make(seen: Seen) -> Iterator[Fact]:
        value = seen.match[1].replace(",", "")
        if seen.run.once("setting", name, value):
            yield Setting(**seen.common, name=name, value=value, basis="derived", engine="vllm")

    return make


def _architecture(seen: Seen) -> Iterator[Fact]:
    yield ModelNamed(**seen.common, architecture=seen.match[1])


def _eager(seen: Seen) -> Iterator[Fact]:
    seen.run.eager = True
    if seen.run.once("eager"):
        yield Setting(**seen.common, name="enforce-eager", value="True", basis="derived", engine="vllm")


def _attention_block(seen: Seen) -> Iterator[Fact]:
    seen.run.hybrid = True
    yield Setting(**seen.common, name="block-size", value=seen.match[1], basis="derived", engine="vllm")


PATTERNS = (
    Pattern("non-default args: ", r"non-default args: (\{.*)", _args),
    Pattern("args: Namespace(", r"args: Namespace\((.*)", _args),
    Pattern("Resolved architecture: ", r"Resolved architecture: (\w+)", _architecture),
    Pattern("Using max model len ", r"Using max model len (\d+)", _chosen("max-model-len")),
    Pattern("max_num_batched_tokens", r"max_num_batched_tokens(?:=| to )(\d+)", _chosen("max-num-batched-tokens")),
    Pattern("to fit in available KV cache memory", r"reduced from [\d,]+ to ([\d,]+)", _chosen("max-model-len")),
    Pattern("Cudagraph is disabled under eager mode", r"Cudagraph is disabled", _eager),
    Pattern("Enforce eager set", r"Enforce eager set", _eager),
    Pattern("Setting attention block size to ", r"attention block size to (\d+) tokens", _attention_block),
)
