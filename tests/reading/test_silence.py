"""A followed start that falls silent: running within its step's normal pace, stalled beyond it."""

from __future__ import annotations

import pytest

from loadpath.intake.clean import clean
from loadpath.reading.service import read_lines

LOADING = b"""INFO 03-14 09:10:01 [api_server.py:1896] vLLM API server version 0.10.2
INFO 03-14 09:10:20 [gpu_model_runner.py:2007] Starting to load model org/big-model...
Loading safetensors checkpoint shards:  25% Completed | 5/20 [04:00<12:00, 48.00s/it]
"""


@pytest.mark.parametrize(
    ("silent", "state"), [(0.0, "running"), (60.0, "running"), (230.0, "running"), (300.0, "stalled")]
)
def test_the_bars_own_pace_says_what_is_long(silent: float, state: str) -> None:
    report = read_lines([("vllm.log", clean(LOADING))], silent)
    assert {s.step: s.state for s in report.steps}["weight-load"] == state
    assert report.verdict.state in ("starting", "degraded")
    assert any(f.id == "start-stalled" for f in report.findings) == (state == "stalled")
