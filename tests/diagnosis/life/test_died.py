"""A process that died and does not say why."""

from __future__ import annotations

from conftest import read_text

READY = "INFO:     Started server process [1]\nINFO:     Application startup complete.\n"
DEAD = (
    "ERROR 03-04 18:09:47 [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
    "ERROR 03-04 18:09:47 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause.\n"
)


def test_a_silent_death_is_likely_a_kill_and_asks_for_the_kernel_log() -> None:
    report = read_text(READY + DEAD)
    root = report.root
    assert root is not None and root.id == "engine-process-died"
    assert (root.certainty, root.step, root.boundary) == ("likely", "serving", "host-limits")
    assert "dmesg" in root.next_checks[0].command and "18:09:47" in root.next_checks[0].why
    assert "engine-dead" in root.consequences


def test_a_death_with_an_exception_of_its_own_is_that_exception() -> None:
    own = (
        "ERROR 03-04 18:09:46 [multiproc_executor.py:596] WorkerProc hit an exception.\n"
        "ERROR 03-04 18:09:46 [multiproc_executor.py:596] Traceback (most recent call last):\n"
        'ERROR 03-04 18:09:46 [multiproc_executor.py:596]   File "/v/vllm/v1/worker/gpu_worker.py", line 9, in go\n'
        "ERROR 03-04 18:09:46 [multiproc_executor.py:596]     run()\n"
        "ERROR 03-04 18:09:46 [multiproc_executor.py:596] ZeroDivisionError: division by zero\n"
    )
    report = read_text(READY + own + DEAD)
    assert report.root is not None
    assert "ZeroDivisionError" in report.root.title


def test_a_worker_that_crashed_by_signal_is_told_by_its_code() -> None:
    report = read_text(
        READY
        + "ERROR 07-04 17:35:16 [multiproc_executor.py:140] Worker proc VllmWorker-1 died unexpectedly (exit code: "
        "-11), shutting down executor.\n"
    )
    assert report.root is not None
    assert "SIGSEGV" in report.root.cause or "segmentation" in report.root.cause.lower()
