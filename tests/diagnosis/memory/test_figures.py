"""Figures that contradict each other are called so; honest ones raise no word."""

from __future__ import annotations

from conftest import read_text, shared_file

START = """\
INFO 03-14 09:12:04 [api_server.py:1896] vLLM API server version 0.10.2
INFO 03-14 09:12:11 [llm_engine.py:221] Initializing a V0 LLM engine (v0.10.2) with config: model='org/Some-8B', max_seq_len=16384,
INFO 03-14 09:13:43 [model_runner.py:1115] Model loading took 15.0000 GiB and 20.0 seconds
INFO 03-14 09:13:55 [worker.py:295] the current vLLM instance can use total_gpu_memory (44.40GiB) x gpu_memory_utilization (0.90) = 39.96GiB
INFO 03-14 09:13:55 [worker.py:295] model weights take 15.00GiB; non_torch_memory takes 0.10GiB; PyTorch activation peak memory \
takes 1.20GiB; the rest of the memory reserved for KV Cache is {share}GiB.
INFO 03-14 09:13:56 [executor_base.py:114] # cuda blocks: 12113, # CPU blocks: 256
INFO 03-14 09:13:56 [executor_base.py:119] Maximum concurrency for 16384 tokens per request: 11.83x
"""


def contradictions(share: str) -> list[str]:
    return [f.cause for f in read_text(START.format(share=share)).findings if f.id == "figures-contradict"]


def test_honest_figures_raise_no_word() -> None:
    assert contradictions("23.66") == []


def test_share_that_is_not_the_sum_of_its_parts() -> None:
    said = contradictions("28.66")
    assert len(said) == 1
    assert "23.66 GiB" in said[0]
    assert "28.66 GiB" in said[0]


def test_no_healthy_capture_is_doubted() -> None:
    folder = shared_file("captures", "vllm")
    for path in sorted(folder.glob("good*.log")):
        ids = [f.id for f in read_text(path.read_text("utf-8", "replace")).findings]
        assert "figures-contradict" not in ids, path.name
