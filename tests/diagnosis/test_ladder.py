"""Where a fact stands on the ladder, and how long the steps took."""

from __future__ import annotations

from conftest import read_text

LOG = """\
INFO 01-02 10:00:00 [api_server.py:1] vLLM API server version 0.12.0
INFO 01-02 10:00:10 [core.py:77] Initializing a V1 LLM engine (v0.12.0) with config: model='org/m', tensor_parallel_size=2
(Worker_TP0 pid=3) INFO 01-02 10:00:14 [parallel_state.py:9] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0
(Worker_TP1 pid=4) INFO 01-02 10:00:15 [parallel_state.py:9] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 1
(Worker_TP0 pid=3) INFO 01-02 10:00:20 [gpu_model_runner.py:1] Starting to load model org/m...
(Worker_TP1 pid=4) INFO 01-02 10:00:20 [gpu_model_runner.py:1] Starting to load model org/m...
(Worker_TP0 pid=3) INFO 01-02 10:00:50 [gpu_model_runner.py:2] Model loading took 15.5 GiB memory and 30.0 seconds
(Worker_TP1 pid=4) INFO 01-02 10:01:02 [gpu_model_runner.py:2] Model loading took 15.5 GiB memory and 42.0 seconds
(Worker_TP0 pid=3) INFO 01-02 10:01:20 [monitor.py:34] torch.compile takes 12.5 s in total
(Worker_TP0 pid=3) INFO 01-02 10:01:30 [gpu_worker.py:9] Available KV cache memory: 40.25 GiB
INFO 01-02 10:01:31 [kv_cache_utils.py:9] GPU KV cache size: 329,728 tokens
INFO 01-02 10:01:31 [kv_cache_utils.py:9] Maximum concurrency for 32,768 tokens per request: 10.06x
"""


def test_steps_have_durations_by_rank_and_figures() -> None:
    steps = {s.step: s for s in read_text(LOG).steps}
    load = steps["weight-load"]
    assert (load.state, load.seconds, load.ranks) == ("done", 42.0, {"0": 30.0, "1": 42.0})
    assert steps["process-start"].seconds == 10
    assert steps["memory-profiling"].figures["compile_seconds"] == 12.5
    assert steps["kv-pool"].figures == {"tokens": 329728, "concurrency": 10.06, "context_tokens": 32768}
    assert steps["context-creation"].state == "done"
    assert steps["graph-capture"].state == "unseen"


def test_a_failure_stands_in_the_step_that_was_reached() -> None:
    report = read_text(LOG + "RuntimeError: PassManager::run failed\nRuntimeError: Engine core initialization failed. "
                             "See root cause above. Failed core proc(s): {}\n")  # fmt: skip
    states = {s.step: s.state for s in report.steps}
    assert states["graph-capture"] == "failed"
    assert states["kv-pool"] == "done"
