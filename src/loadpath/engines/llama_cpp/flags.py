"""The levers in llama-server's own flags."""

from __future__ import annotations

_FLAGS = {
    "context-length": "-c {}",
    "kv-dtype": "-fa on -ctk {0} -ctv {0}",
    "batched-tokens": "-ub {}",
    "chunked-prefill": "-ub {}",
    "sequences": "-np {}",
    "tensor-parallel": "-ts {}",
    "gpu-layers": "-ngl {}",
    "moe-on-cpu": "--n-cpu-moe {}",
    "attention-backend": "-fa {}",
}
_KV_DTYPES = {"fp8": "q8_0"}


def flag(lever: str, value: object) -> str:
    """`lever` set to `value`; "" where llama-server has no such flag (it has no share of memory: `-c` decides)."""
    template = _FLAGS.get(lever, "")
    if lever == "kv-dtype":
        value = _KV_DTYPES.get(str(value), value)
    if lever == "tensor-parallel":
        value = ",".join(["1"] * int(str(value))) if str(value).isdigit() else value
    return template.format(value)
