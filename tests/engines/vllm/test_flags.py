"""Levers in vLLM's own words."""

from __future__ import annotations

from loadpath.engines.vllm import flag


def test_levers_have_flags() -> None:
    assert flag("context-length", 8192) == "--max-model-len 8192"
    assert flag("kv-dtype", "fp8") == "--kv-cache-dtype fp8"
    assert flag("eager", True) == "--enforce-eager"
    assert flag("eager", False) == ""
    assert flag("chunked-prefill", False) == "--no-enable-chunked-prefill"
    assert flag("gpu-layers", 20) == ""


def test_spelling_follows_the_release() -> None:
    assert flag("attention-backend", "TRITON_ATTN", (0, 11, 0)) == "VLLM_ATTENTION_BACKEND=TRITON_ATTN"
    assert flag("attention-backend", "TRITON_ATTN", (0, 22, 1)) == "--attention-backend TRITON_ATTN"
    assert flag("kv-bytes", 1 << 30, (0, 9, 2)) == ""
