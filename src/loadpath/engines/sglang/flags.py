"""The levers in SGLang's own flags."""

from __future__ import annotations

_FLAGS = {
    "context-length": "--context-length {}",
    "memory-share": "--mem-fraction-static {}",
    "kv-dtype": "--kv-cache-dtype {}",
    "batched-tokens": "--chunked-prefill-size {}",
    "chunked-prefill": "--chunked-prefill-size {}",
    "sequences": "--max-running-requests {}",
    "eager": "--disable-cuda-graph",
    "tensor-parallel": "--tp {}",
    "pipeline-parallel": "--pp {}",
    "quantisation": "--quantization {}",
    "attention-backend": "--attention-backend {}",
    "cpu-offload": "--cpu-offload-gb {}",
    "dtype": "--dtype {}",
    "graph-sizes": "--cuda-graph-max-bs {}",
    "trust-remote-code": "--trust-remote-code",
    "disable-custom-all-reduce": "--disable-custom-all-reduce",
}
_KV_DTYPES = {"fp8": "fp8_e4m3", "auto": "auto"}


def flag(lever: str, value: object) -> str:
    """`lever` set to `value`; "" where SGLang has no such flag. FP8 KV is e4m3 (`fp8_e5m2` needs no scales)."""
    template = _FLAGS.get(lever, "")
    if lever == "kv-dtype":
        value = _KV_DTYPES.get(str(value), value)
    return template.format(value)
