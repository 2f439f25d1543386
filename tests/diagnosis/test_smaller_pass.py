"""Fewer tokens in one step: offered with its effect where the log tells what the activations take, else not."""

from __future__ import annotations

from conftest import read_text

LOG = """INFO 03-14 09:13:35 [api_server.py:1896] vLLM API server version 0.10.2
INFO 03-14 09:13:36 [utils.py:328] non-default args: {{'model': 'org/m-14b', 'max_model_len': 65536{setting}}}
(EngineCore_DP0 pid=9) INFO 03-14 09:15:00 [gpu_worker.py:391] Free memory on device (47.0/47.5 GiB) on startup. Desired GPU memory utilization is (0.9, 42.75 GiB). Actual usage is 27.5 GiB for weight, 6.9 GiB for peak activation, 0.35 GiB for non-torch memory, and 0.0 GiB for CUDAGraph memory. Current kv cache memory in use is 8.0 GiB.
(EngineCore_DP0 pid=9) ERROR 03-14 09:15:01 [core.py:718] ValueError: To serve at least one request with the models's max seq len (65536), (12.0 GiB KV cache is needed, which is larger than the available KV cache memory (8.0 GiB). Based on the available memory, the estimated maximum model length is 43690.
"""  # noqa: E501
FLAG = "--max-num-batched-tokens 2048"


def commands(setting: str) -> list[str]:
    root = read_text(LOG.format(setting=setting)).root
    assert root is not None and root.id == "kv-cache-below-one-request"
    return [remedy.command for remedy in root.remedies]


def test_with_its_effect_where_it_can_be_computed() -> None:
    root = read_text(LOG.format(setting=", 'max_num_batched_tokens': 16384")).root
    assert root is not None
    remedy = next(r for r in root.remedies if r.command == FLAG)
    # 6.9 GiB x (1 - 2048/16384) = 6.04 GiB for the KV cache, which then holds 14.04 of the 12 GiB that are needed.
    assert remedy.suffices and "14.04 GiB" in remedy.effect


def test_not_where_the_present_number_is_unknown_or_small_already() -> None:
    assert FLAG not in commands("")
    assert FLAG not in commands(", 'max_num_batched_tokens': 2048")
