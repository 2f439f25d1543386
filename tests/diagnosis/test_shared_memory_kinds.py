"""Error 28 and signal 7 where no path says so: still /dev/shm, and not a disk."""

from __future__ import annotations

import pytest

from conftest import read_text

LOCK = """Traceback (most recent call last):
  File "/app/work.py", line 9, in <module>
    queue = multiprocessing.Queue()
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 43, in __init__
    self._rlock = ctx.Lock()
  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__
    sl = self._semlock = _multiprocessing.SemLock(
OSError: [Errno 28] No space left on device
"""


@pytest.mark.parametrize(
    "text",
    [
        LOCK,
        LOCK.partition("\n")[2],
        "ERROR text_generation_launcher: Download process was signaled to shutdown with signal 7",
    ],
)
def test_shared_memory_and_no_disk(text: str) -> None:
    root = read_text(text).root
    assert root is not None and root.boundary == "host-limits" and root.id != "disk-full"
    assert any("shm" in remedy.command for remedy in root.remedies)


def test_a_plain_write_without_space_is_still_a_disk() -> None:
    root = read_text("OSError: [Errno 28] No space left on device: '/data/model/part-1.safetensors'").root
    assert root is not None and root.id == "disk-full"


def test_sigterm_in_a_start_is_not_told_as_ctrl_c() -> None:
    report = read_text(
        "INFO 04-29 13:00:01 [api_server.py:1043] vLLM API server version 0.8.5\n"
        "INFO 04-29 13:00:20 [gpu_model_runner.py:1329] Starting to load model org/small...\n"
        '    raise KeyboardInterrupt("terminated")\nKeyboardInterrupt: terminated\n'
    )
    told = next(f for f in report.findings if f.id == "start-interrupted")
    assert "SIGTERM" in told.title and "probe" in told.remedies[0].action
