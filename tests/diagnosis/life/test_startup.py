"""How a start went: slow, waiting, interrupted, silent."""

from __future__ import annotations

from conftest import read_text

STARTED = "(APIServer pid=1) INFO 01-02 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"
LOADING = STARTED + (
    "(EngineCore_DP0 pid=2) INFO 01-02 10:00:10 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
    "model='org/big-70B', tensor_parallel_size=4\n"
    "(Worker_TP0 pid=3) INFO 01-02 10:00:20 [gpu_model_runner.py:1] Starting to load model org/big-70B...\n"
)
READY = "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"


def test_a_slow_load_is_progress_with_its_pace_and_end() -> None:
    report = read_text(
        LOADING + "Loading safetensors checkpoint shards:   0% Completed | 0/40 [00:00<?, ?it/s]\n"
        "Loading safetensors checkpoint shards:  25% Completed | 10/40 [06:40<20:00, 40.00s/it]\n"
    )
    root = report.root
    assert root is not None and root.id == "weights-load-slowly"
    assert report.verdict.state == "starting"
    assert "40 s a shard" in root.title and "26 min" in root.title
    step = next(s for s in report.steps if s.step == "weight-load")
    assert step.state == "running"
    assert (step.figures["done"], step.figures["total"], step.figures["seconds_each"]) == (10, 40, 40.0)


def test_a_quick_load_is_not_called_slow() -> None:
    report = read_text(LOADING + "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:08<00:08, 2.0s/it]\n")
    assert report.findings == ()
    assert report.verdict.state == "starting"


def test_a_slow_compile_is_a_remark_when_the_server_came_up() -> None:
    slow = "(Worker_TP0 pid=3) INFO 01-02 10:20:00 [monitor.py:34] torch.compile takes 900.5 s in total\n"
    assert read_text(LOADING + slow).root_cause == "compile-took-long"
    up = read_text(LOADING + slow + READY)
    assert (up.verdict.state, up.root_cause) == ("healthy", None)
    assert any(f.id == "compile-took-long" for f in up.findings)


def test_waiting_for_workers_is_no_fault() -> None:
    report = read_text(
        "INFO 01-02 10:01:30 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This "
        "typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
    )
    assert report.root_cause is None
    note = next(f for f in report.findings if f.id == "broadcast-wait")
    assert note.severity == "info" and "/dev/shm" in note.cause


def test_ray_that_lacks_gpus_is_the_cause_not_the_signal() -> None:
    report = read_text(
        STARTED + "INFO 01-02 10:00:05 [api_server.py:2] args: Namespace(model='org/m', tensor_parallel_size=8)\n"
        "WARNING 01-02 10:00:20 [ray_utils.py:199] The number of required GPUs exceeds the total number of available GPUs "
        "in the placement group.\n"
        "INFO 01-02 10:00:30 [ray_utils.py:212] Waiting for creating a placement group of specs for 10 seconds. specs=[]\n"
        "INFO 01-02 10:00:50 [ray_utils.py:212] Waiting for creating a placement group of specs for 30 seconds. specs=[]\n"
        "*** SIGTERM received at time=1748300290 on cpu 8 ***\n"
    )
    root = report.root
    assert root is not None and root.id == "ray-waits-for-gpus"
    assert (root.boundary, root.step, report.verdict.state) == ("model-config", "device-enumeration", "failed")
    assert "8 GPUs" in root.title and "10, 30 s" in root.cause and "SIGTERM" in root.cause


def test_an_interrupt_is_no_fault_wherever_it_hit() -> None:
    report = read_text(
        LOADING
        + "(Worker_TP0 pid=3) INFO 01-02 10:01:20 [gpu_model_runner.py:2] Model loading took 9.4 GiB and 7.4 seconds\n"
        "(Worker_TP0 pid=3) INFO 01-02 10:01:30 [backends.py:9] Dynamo bytecode transform time: 7.92 s\n"
        'Traceback (most recent call last):\n  File "/usr/lib/python3.12/typing.py", line 1232, in __getattr__\n'
        "    raise AttributeError(attr)\nKeyboardInterrupt\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    assert report.root_cause is None
    assert report.verdict.state == "unknown"
    assert "memory-profiling" in report.verdict.sentence


def test_a_time_limit_after_a_healthy_start_is_the_jobs_end() -> None:
    report = read_text(
        LOADING
        + READY
        + "slurmstepd: error: *** JOB 77 ON node1 CANCELLED AT 2026-01-02T20:00:00 DUE TO TIME LIMIT ***\n"
    )
    assert report.root_cause == "job-time-limit"
    assert report.verdict.state == "degraded"
    assert any("time" in remedy.command for remedy in (report.root.remedies if report.root else ()))


def test_a_start_that_ends_without_a_word_was_likely_killed() -> None:
    report = read_text(
        LOADING
        + "(Worker_TP0 pid=3) INFO 01-02 10:01:20 [gpu_model_runner.py:2] Model loading took 95.4 GiB and 70 seconds\n"
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 "
        "leaked semaphore objects to clean up at shutdown\n"
    )
    root = report.root
    assert root is not None and root.id == "start-killed-silently"
    assert root.certainty == "likely" and root.step == "memory-profiling"


def test_errors_after_an_orderly_shutdown_are_no_fault() -> None:
    report = read_text(
        LOADING
        + READY
        + "(APIServer pid=1) INFO 01-02 11:00:00 [launcher.py:1] [shutdown] API server: shutdown triggered\n"
        "(APIServer pid=1) ERROR 01-02 11:00:01 [async_llm.py:1] AsyncLLM output_handler failed.\n"
        "(APIServer pid=1) ERROR 01-02 11:00:01 [async_llm.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
        "encountered an issue. See stack trace (above) for the root cause.\n"
    )
    assert (report.verdict.state, report.root_cause) == ("healthy", None)


def test_only_the_last_start_of_a_file_counts() -> None:
    refused = LOADING + (
        "(EngineCore_DP0 pid=2) ERROR 01-02 10:00:30 [core.py:1] ValueError: Free memory on device (13.58/15.99 GiB) on "
        "startup is less than desired GPU memory utilization (0.85, 13.59 GiB). Decrease GPU memory utilization or reduce "
        "GPU memory used by other processes.\n"
    )
    report = read_text(refused + LOADING.replace("10:00", "10:08") + READY)
    assert report.verdict.state == "healthy"
    assert any("Start 1 of 2" in note for note in report.notes)
