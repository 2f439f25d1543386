"""PyTorch is started only when that is asked for, by the environment's own Python, and what it says is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fake_python import PREFIX, FakePython
from loadpath.collect import frameworks
from loadpath.collect.probe import Machine
from loadpath.collect.runner import Ran
from loadpath.core.sample import to_bytes
from loadpath.reading.service import read_bytes

SAID = b"""Traceback (most recent call last):
  File "<string>", line 6, in ask
RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that \
might have already set an error? Error 803: system has unsupported display driver / cuda driver combination
{"type": "FrameworkStarted", "version": "2.9.0+cu128", "cuda": "12.8", "available": false, "archs": ["sm_80", "sm_90"]}
"""


def test_nothing_is_started_unasked(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.torch()
    assert [s.name for s in frameworks.installed(made.machine())] == ["torch"]


def test_the_environments_own_python_is_asked_and_its_errors_are_read(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.torch()
    made.put(f"{PREFIX}/bin/python")
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> Ran:
        asked.append(argv)
        return Ran("ok", 0, 4.0, SAID)

    machine = Machine("/", run=run, options={"python": str(tmp_path) + PREFIX, frameworks.RUN_OPTION: "yes"})
    *_, started = frameworks.installed(machine)
    assert asked[0][0] == f"{tmp_path}{PREFIX}/bin/python"
    report = read_bytes([("torch-started.txt", to_bytes(started))])
    assert report.root_cause == "libcuda-kernel-mismatch"
    assert any(fact["type"] == "FrameworkStarted" and fact["cuda"] == "12.8" for fact in report.facts)
