"""/dev/shm: full, small, or not shared."""

from __future__ import annotations

from importlib.resources import files

import pytest

from conftest import read_text

NCCL_FULL = (
    "node7:88:302 [3] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-lPq2Ws to 33030532 bytes, "
    "error: No space left on device (28)\n"
)
DF = "Filesystem      Size  Used Avail Use% Mounted on\nshm              64M   20M   45M  31% /dev/shm\n"


def test_the_first_shard_that_does_not_fit_64_mb() -> None:
    report = read_text(files("loadpath.examples").joinpath("shm-too-small.txt").read_text())
    root = report.root
    assert root is not None and root.id == "dev-shm-full"
    assert (root.certainty, root.step, root.boundary) == ("established", "weight-load", "host-limits")
    assert "64 MiB" in root.cause and "Docker's default" in root.cause
    assert "--ipc=host" in root.remedies[0].command and "--shm-size" in root.remedies[0].command
    assert "engine-core-failed" in root.consequences


def test_nccl_says_how_large_the_segment_was_and_leftovers_are_named() -> None:
    root = read_text(NCCL_FULL).root
    assert root is not None and root.id == "dev-shm-full" and root.step == "context-creation"
    assert "33,030,532 bytes" in root.cause
    assert any("rm -f /dev/shm/nccl-*" in remedy.command for remedy in root.remedies)


def test_a_large_dev_shm_that_is_full_is_cleared_first() -> None:
    root = read_text(NCCL_FULL + "shm    16G   16G     0 100% /dev/shm\n").root
    assert root is not None
    assert "rm -f" in root.remedies[0].command
    assert "16.00 GiB" in root.cause


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: unable to write to file </torch_88_1234_0>: No space left on device (28)",
        "OSError: [Errno 28] No space left on device: '/psm_1a2b3c4d'",
        "RuntimeError: DataLoader worker (pid 51) is killed by signal: Bus error. It is possible that dataloader's workers "
        "are out of shared memory. Please try to raise your shared memory limit.",
        "include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1-0-1-2 (size 9637888)",
        "Last error:\nError while creating shared memory segment /dev/shm/nccl-YTQ5aB (size 9637888)",
    ],
)
def test_all_spellings_of_a_full_dev_shm(line: str) -> None:
    assert read_text(line + "\n").root_cause == "dev-shm-full"


def test_error_28_inside_shared_memory_code_is_no_disk() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/multiprocessing/shared_memory.py", line 121, in __init__\n'
        "    os.ftruncate(self._fd, size)\n"
        "OSError: [Errno 28] No space left on device\n"
    )
    report = read_text(trace)
    assert report.root_cause == "dev-shm-full"
    assert report.root is not None and "disk-full" in report.root.consequences


def test_a_missing_segment_is_not_answered_with_more_space() -> None:
    root = read_text(
        "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Qx12ab (size 192814336), error: No such file "
        "or directory (2)\n"
    ).root
    assert root is not None and root.id == "dev-shm-segment-missing"
    assert not any("--shm-size" in remedy.command for remedy in root.remedies)


def test_64_mb_alone_is_a_suspicion() -> None:
    report = read_text(DF)
    assert report.verdict.state == "degraded"
    assert report.root is not None and report.root.id == "dev-shm-small" and report.root.certainty == "possible"


def test_a_full_disk_stays_a_full_disk() -> None:
    assert read_text("OSError: [Errno 28] No space left on device: '/root/.cache/hf/x'\n").root_cause == "disk-full"


def test_a_refusal_for_another_reason_is_not_called_no_space() -> None:
    root = read_text(
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_9_8>: Resource temporarily unavailable (11)\n"
    ).root
    assert root is not None and root.certainty == "likely"
    assert "No space left" not in root.cause
