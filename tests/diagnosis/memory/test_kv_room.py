"""Pools for which nothing is left, in every engine's words, and what is advised."""

from __future__ import annotations

from conftest import read_text
from loadpath.core.report import Finding


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None
    assert report.verdict.state == "failed"
    return report.root


def test_negative_share_says_by_how_much() -> None:
    found = root(
        "(EngineCore_DP0 pid=41) INFO 09-30 11:02:40 [gpu_model_runner.py:2392] Model loading took 67.7000 GiB and 55.1 seconds\n"
        "(EngineCore_DP0 pid=41) INFO 09-30 11:03:21 [gpu_worker.py:298] Available KV cache memory: -2.77 GiB\n"
        "(EngineCore_DP0 pid=41) ERROR 09-30 11:03:21 [core.py:708] ValueError: No available memory for the cache blocks.\n"
    )
    assert found.id == "kv-no-room"
    assert "short by 2.77 GiB" in found.cause
    assert "quantised to 8 bits" in found.remedies[0].action
    assert "31.08 GiB" in found.remedies[0].effect


def test_sglangs_advice_is_weighed_not_repeated() -> None:
    found = root(
        "--mem-fraction-static 0.84\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )
    assert found.id == "kv-no-room-static-share"
    assert "fail the other way" in found.cause
    assert found.remedies[0].command == "--tp 2"


def test_sglangs_own_minimum_is_used() -> None:
    found = root(
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.55. Raise "
        "--mem-fraction-static above 0.612 (minimum viable = 1 - available/pre = 0.612)\n"
    )
    assert found.remedies[0].command == "--mem-fraction-static 0.63"


def test_tensorrt_fraction_is_the_cause() -> None:
    found = root(
        "unexpected error when creating modelInstanceState: maxTokensInPagedKvCache must be large enough to process at least 1 "
        "sequence to completion (i.e. must be larger than 8192)\nkv_cache_free_gpu_mem_fraction:0.15\n"
    )
    assert "0.15" in found.cause
    assert "8,192" in found.cause
    assert "Raise" in found.remedies[0].action


def test_tgi_warm_up_may_hide_another_error() -> None:
    refused = "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n"
    found = root(refused)
    assert found.certainty == "likely"
    assert "first exception" in found.cause
    shown = root(
        "ERROR text_generation_launcher: Method Warmup encountered an error.\nTraceback (most recent call last):\n"
        '  File "/opt/text_generation_server/models/flash_causal_lm.py", line 911, in warmup\n'
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.72 GiB. GPU 0 has a total capacty of 22.03 GiB of "
        "which 1.11 GiB is free. Of the allocated memory 20.20 GiB is allocated by PyTorch, and 35.55 MiB is reserved by PyTorch "
        "but unallocated.\n" + refused
    )
    assert shown.id == "gpu-oom-profiling"
    assert "--max-batch-prefill-tokens" in shown.remedies[0].command
