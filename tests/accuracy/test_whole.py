"""The score of whole logs: what counts as right, and as found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import read_text

SCRIPT = Path(__file__).parents[2] / "accuracy" / "whole.py"
LOG = (
    "INFO 01-02 10:00:50 [gpu_model_runner.py:2] Model loading took 15.5 GiB memory and 30.0 seconds\n"
    "INFO 01-02 10:01:30 [gpu_worker.py:9] Available KV cache memory: 40.25 GiB\n"
    "INFO:     Application startup complete.\n"
)
LABEL: dict[str, Any] = {
    "file": "x.log", "state_ok": ["healthy"], "boundary_ok": ["none"], "root_cause": None,
    "figures": {"weights_gib": 15.5, "weights_s": 30.0, "kv_gib": 40.25},
}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> ModuleType:
    spec = importlib.util.spec_from_file_location("whole", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_right_report_scores_in_full(whole: ModuleType) -> None:
    result = whole.score(LABEL, read_text(LOG))
    assert (result["state"], result["boundary"], result["clean"], result["missing"]) == (True, True, True, [])


def test_a_figure_that_is_not_there_is_missed(whole: ModuleType) -> None:
    result = whole.score({**LABEL, "figures": {"kv_gib": 41.0}}, read_text(LOG))
    assert result["missing"] == ["kv_gib=41.0"]


def test_an_error_on_a_healthy_log_is_not_clean(whole: ModuleType) -> None:
    result = whole.score(
        LABEL, read_text("NVRM: API mismatch\nFailed to initialize NVML: Driver/library version mismatch\n")
    )
    assert not result["clean"] and not result["state"]


def test_an_absent_folder_is_said(whole: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["whole.py", "--folder", str(tmp_path)])
    assert whole.main() == 2
