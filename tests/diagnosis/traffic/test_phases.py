"""Each slow stretch of a timeline gets the phase that took its time."""

from __future__ import annotations

from typing import Any

import pytest

from loadpath.core.facts.traffic import BenchTimeline, Stretch
from loadpath.core.text import Span
from loadpath.diagnosis.traffic.phases import slow_stretches


def timeline(**slow: Any) -> BenchTimeline:
    """Ten steady stretches of a second and one that differs."""
    usual: dict[str, Any] = {
        "ttft": 0.2,
        "itl": 0.02,
        "itl_max": 0.05,
        "prompt_rate": 1000.0,
        "first_tokens": 2,
        "lag_max": 0.001,
    }
    stretches = [Stretch(begin=float(t), end=t + 1.0, **usual) for t in range(10)]
    stretches.append(Stretch(begin=10.0, end=11.0, **{**usual, **slow}))
    return BenchTimeline(span=Span("r", 1, 1), stretches=tuple(stretches))


def test_a_steady_run_has_none() -> None:
    assert not slow_stretches(timeline())


@pytest.mark.parametrize(
    ("slow", "phase"),
    [
        ({"ttft": 1.0, "queue_seconds": 0.8}, "queue"),
        ({"ttft": 1.0, "prefill_seconds": 0.7, "queue_seconds": 0.1}, "prefill"),
        ({"ttft": 1.0, "server_ttft": 0.2, "queue_seconds": 0.0}, "network or HTTP"),
        ({"ttft": 1.0, "lag_max": 0.9}, "client"),
        ({"ttft": 1.0}, "not known"),
        ({"itl": 0.06, "preemptions": 4.0}, "kv-cache"),
        ({"itl": 0.06, "prompt_rate": 9000.0, "first_tokens": 12}, "prefill"),
        ({"itl": 0.06, "throttle": 0x40}, "power"),
        ({"itl": 0.06, "preemptions": 0.0}, "decode"),
        ({"itl_max": 0.9, "lag_max": 0.85}, "client"),
    ],
)
def test_phase_by_what_took_the_time(slow: dict[str, Any], phase: str) -> None:
    (found,) = slow_stretches(timeline(**slow))
    assert found.phase == phase
