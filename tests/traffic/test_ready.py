"""The gate against servers whose delays and faults are known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from loadpath.core.readiness import Readiness, Stage
from loadpath.traffic.ready import ReadyRequest, probe, ready
from loadpath.traffic.ready_report import line, report_on
from loadpath.traffic.stages import Shape
from loadpath.traffic.wire import target_of
from sse_server import running

FAST = {"ttft": 0.005, "itl": 0.0005}


def asked(url: str, **given: Any) -> ReadyRequest:
    return ReadyRequest(target=target_of(url), **{"limit": 5.0, **given})


def failed(result: Readiness) -> Stage:
    assert not result.ready and result.failed is not None
    return result.failed


def test_a_good_server_passes_every_stage_in_order() -> None:
    with running(**FAST) as url:
        result = ready(asked(url))
    assert result.ready and [stage.name for stage in result.stages] == [
        "port",
        "health",
        "models",
        "first-token",
        "warm",
    ]
    assert (result.engine, result.model) == ("vllm", "test/model")
    assert report_on(result).verdict.state == "healthy"


def test_the_cold_first_request_is_shown_and_does_not_count_as_warm() -> None:
    with running(**FAST, cold=0.4) as url:
        stages = {stage.name: stage for stage in ready(asked(url)).stages}
    first, steady = stages["first-token"].first, stages["warm"].steady
    assert first and 0.4 < first < 0.5
    assert steady and steady < 0.1


def test_warming_goes_on_until_latencies_no_longer_change() -> None:
    with running(ttft=0.03, itl=0.0005, warm_after=6, slow=6.0) as url:
        result = ready(asked(url, warming=True, limit=10.0))
    warm = result.stages[-1]
    assert result.ready and warm.requests > 8
    assert warm.first and warm.first > 0.15
    assert warm.steady and warm.steady < 0.12


def test_each_chosen_shape_has_to_be_warm() -> None:
    with running(**FAST) as url:
        result = ready(asked(url, shapes=(Shape(128, 16), Shape(1024, 4))))
    assert [stage.label for stage in result.stages if stage.name == "warm"] == ["128x16", "1024x4"]


def test_a_model_that_loads_is_waited_for() -> None:
    with running(**FAST, health_after=0.8) as url:
        result = ready(asked(url))
    health = next(stage for stage in result.stages if stage.name == "health")
    assert result.ready and 0.5 < health.seconds < 2.5


@pytest.mark.parametrize(
    ("fault", "stage", "kind", "row"),
    [
        ({"health_after": 60.0}, "health", "loading", "ready-still-loading"),
        ({"models": False}, "models", "no-model", "ready-no-model"),
        ({"hang_every": 1}, "first-token", "no-token", "ready-no-token"),
        ({"error_every": 1}, "first-token", "stream-error", "ready-stream-error"),
        ({"cut_every": 1}, "first-token", "cut", "ready-cut"),
        ({"status_every": 1, "status": 401}, "first-token", "no-key", "ready-no-key"),
        ({"status_every": 1, "status": 500}, "first-token", "refused", "ready-refused"),
        ({"error_every": 4}, "warm", "stream-error", "ready-stream-error"),
    ],
)
def test_each_fault_is_told_with_its_stage(fault: dict[str, Any], stage: str, kind: str, row: str) -> None:
    with running(**FAST, **fault) as url:
        result = ready(asked(url, limit=1.0, wait=False))
    assert (failed(result).name, failed(result).kind) == (stage, kind)
    report = report_on(result)
    assert report.root_cause == row
    assert report.verdict.state in ("failed", "starting")


def test_nothing_there_is_waited_for_and_told() -> None:
    result = ready(asked("http://127.0.0.1:9", limit=0.5))
    assert failed(result).kind == "closed" and result.seconds < 0.6
    assert report_on(result).root_cause == "ready-port-closed"


def test_a_server_that_dies_between_two_stages_is_told_with_the_stage() -> None:
    with running(**FAST, die_after=3) as url:
        result = ready(asked(url, limit=1.5))
    assert result.went_away == "warm" and failed(result).name == "port"
    assert report_on(result).root_cause == "ready-gone"
    assert "went away in the stage warm" in line(result)


def test_latencies_that_jump_are_not_steady() -> None:
    with running(ttft=0.03, itl=0.0005, warm_after=3, slow=8.0) as url:
        result = ready(asked(url, wait=False))
    assert failed(result).kind == "unsteady" and "128x16" in failed(result).why


def test_no_stage_outlives_the_limit() -> None:
    begun = time.monotonic()
    with running(**FAST, hang_every=1) as url:
        ready(asked(url, limit=0.7))
    assert time.monotonic() - begun < 2.0


def test_a_probe_with_a_state_file_is_quick_after_the_first(tmp_path: Path) -> None:
    state = tmp_path / "ready.json"
    with running(ttft=0.1, itl=0.0005) as url:
        first = probe(asked(url), state, 60.0)
        again = probe(asked(url), state, 60.0)
        later = probe(asked(url), state, 0.0)
    assert first.ready and not first.cached and first.seconds > 0.3
    assert again.ready and again.cached and again.seconds < 0.1
    assert later.ready and not later.cached and [s.name for s in later.stages][-1] == "first-token"
    assert not probe(asked(url), state, 60.0).ready, "the server ended: the state file is no excuse"
    assert not state.exists(), "and the next server has to pass the whole gate"


def test_a_damaged_state_file_or_one_of_another_server_counts_for_nothing(tmp_path: Path) -> None:
    state = tmp_path / "ready.json"
    with running(**FAST) as url:
        probe(asked(url), state, 60.0)
    whole = state.read_bytes()
    with running(**FAST) as other:
        assert not probe(asked(other), state, 60.0).cached
        for text in (b"", whole[: len(whole) // 2], b"\xff\xfe", b'{"schema": "x"}'):
            state.write_bytes(text)
            assert not probe(asked(other), state, 60.0).cached
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"], "no temporary file is left"
