"""What the kernel saw explains what the engine said, when their clocks agree."""

from __future__ import annotations

from conftest import read_text

CRASH = """\
(Worker_TP0 pid=4711) ERROR 11-25 15:34:38 [multiproc_executor.py:600] RuntimeError: CUDA error: unspecified launch failure
(APIServer pid=4600) ERROR 11-25 15:34:39 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""  # noqa: E501


def xid(when: str, code: int = 119) -> str:
    return (
        f"[Tue Nov 25 {when} 2025] NVRM: Xid (PCI:0000:3b:00): {code}, pid=4711, name=VLLM::Worker, Timeout after 45s\n"
    )


def test_an_xid_two_seconds_before_explains_the_crash() -> None:
    report = read_text(CRASH + xid("15:34:36"))
    assert report.root_cause == "gsp-timeout"
    assert report.root is not None and "engine-dead" in report.root.consequences
    assert "pid 4711 (VLLM::Worker, rank 0)" in report.root.cause, "which rank that process is"


def test_an_xid_hours_later_does_not() -> None:
    report = read_text(CRASH + xid("21:10:00"))
    assert "kernel-launch-failure" in {f.id for f in report.findings}


def test_the_oom_killer_explains_a_worker_that_died() -> None:
    report = read_text("""\
Nov 25 15:34:36 node7 kernel: [158878.530017] Out of memory: Killed process 25450 (VLLM::Worker_TP) total-vm:512345678kB, anon-rss:254345678kB, file-rss:0kB, shmem-rss:4kB, UID:0
(EngineCore_DP0 pid=4700) ERROR 11-25 15:34:39 [multiproc_executor.py:300] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.
""")  # noqa: E501
    assert report.root_cause == "host-oom-killed"
    assert len([f for f in report.findings if f.severity == "error"]) == 1


def test_a_shortage_of_gpu_memory_is_not_explained_by_a_lost_gpu() -> None:
    report = read_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                       "79.11 GiB of which 1.22 GiB is free.\n" + xid("15:34:36", 79))  # fmt: skip
    ids = {f.id for f in report.findings if f.severity == "error"}
    assert "gpu-off-bus" in ids and any(name.startswith("gpu-oom") for name in ids)


def test_a_programs_xid_at_the_end_of_a_crash_follows_it() -> None:
    late = xid("15:35:40", 13).replace("Timeout after 45s", "Graphics Exception: ESR 0x50=0x1")
    report = read_text(CRASH + late)
    assert report.root_cause == "kernel-launch-failure"
