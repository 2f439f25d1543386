"""Starts that follow each other in one log."""

from __future__ import annotations

from conftest import read_text

ENGINE = (
    "(EngineCore_DP0 pid={pid}) INFO 01-02 10:0{n}:10 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
    "model='org/m{n}'\n"
    "(EngineCore_DP0 pid={pid}) INFO 01-02 10:0{n}:20 [gpu_model_runner.py:1] Starting to load model org/m{n}...\n"
)
OUT_OF_MEMORY = (
    "(EngineCore_DP0 pid={pid}) ERROR 01-02 10:0{n}:30 [core.py:700] EngineCore failed to start.\n"
    "(EngineCore_DP0 pid={pid}) ERROR 01-02 10:0{n}:30 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.10 GiB is free.\n"
)
DONE = (
    "(EngineCore_DP0 pid={pid}) INFO 01-02 10:0{n}:30 [gpu_model_runner.py:2] Model loading took {n}.5 GiB and 7.4 seconds\n"
    "(EngineCore_DP0 pid={pid}) INFO 01-02 10:0{n}:40 [core.py:1] init engine (profile, create kv cache, warmup model) took "
    "9.10 seconds\n"
    "Processed prompts: 100%|██████████| 8/8 [00:02<00:00,  4.00it/s]\n"
)


def start(n: int, end: str) -> str:
    return (ENGINE + end).format(n=n, pid=100 + n)


def test_one_engine_after_another_are_starts_of_their_own() -> None:
    report = read_text(start(1, OUT_OF_MEMORY) + start(2, DONE) + start(3, DONE))
    assert [capture.run for capture in report.captures] == [1, 2, 3]
    assert report.verdict.state == "healthy"
    assert "Start 1 of 3" in " ".join(report.notes)
    assert {f["name"] for f in report.facts if f["type"] == "ModelNamed"} == {"org/m3"}


def test_the_last_start_decides() -> None:
    report = read_text(start(1, DONE) + start(2, OUT_OF_MEMORY))
    assert report.verdict.state == "failed"
    assert report.root is not None and report.root.boundary == "memory-fit"
    assert report.root.step == "weight-load"


def test_replicas_side_by_side_are_one_start() -> None:
    both = (ENGINE.format(n=1, pid=101) + ENGINE.replace("DP0", "DP1").format(n=1, pid=102)) * 1
    report = read_text(both + DONE.format(n=1, pid=101) + DONE.replace("DP0", "DP1").format(n=1, pid=102))
    assert [capture.run for capture in report.captures] == [1]
