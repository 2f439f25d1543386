"""The levers of a start in vLLM's own flags, by version where the spelling changed."""

from __future__ import annotations

_FLAGS = {
    "context-length": "--max-model-len",
    "memory-share": "--gpu-memory-utilization",
    "kv-dtype": "--kv-cache-dtype",
    "batched-tokens": "--max-num-batched-tokens",
    "sequences": "--max-num-seqs",
    "tensor-parallel": "--tensor-parallel-size",
    "pipeline-parallel": "--pipeline-parallel-size",
    "quantisation": "--quantization",
    "cpu-offload": "--cpu-offload-gb",
    "dtype": "--dtype",
}
_SWITCHES = {
    "eager": "--enforce-eager",
    "trust-remote-code": "--trust-remote-code",
    "disable-custom-all-reduce": "--disable-custom-all-reduce",
}
# First release with the long flag; before it the environment variable was the only way.
ATTENTION_FLAG = (0, 12)
KV_BYTES_FLAG = (0, 10, 2)


def flag(lever: str, value: object, version: tuple[int, ...] | None = None) -> str:
    """`lever` set to `value`, for `version` (the newest known spelling where None); "" where vLLM has no such flag."""
    if lever in _FLAGS:
        return f"{_FLAGS[lever]} {value}"
    if lever in _SWITCHES:
        return _SWITCHES[lever] if value not in (False, "false", "False") else ""
    if lever == "chunked-prefill":
        return "--no-enable-chunked-prefill" if value in (False, "false", "False") else "--enable-chunked-prefill"
    if lever == "attention-backend":
        old = version is not None and version < ATTENTION_FLAG
        return f"VLLM_ATTENTION_BACKEND={value}" if old else f"--attention-backend {value}"
    if lever == "kv-bytes":
        return "" if version is not None and version < KV_BYTES_FLAG else f"--kv-cache-memory-bytes {value}"
    if lever == "graph-sizes":
        return f"""--compilation-config '{{"cudagraph_capture_sizes": {value}}}'"""
    return ""
