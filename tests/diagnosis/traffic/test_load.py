"""What a run really measured: errors, its own client, a cache, a queue."""

from __future__ import annotations

from typing import Any

from bench_results import around, made_result
from loadpath.core.report import Finding
from loadpath.core.traffic import ClientLoad, GpuSample, Interval, MetricSample, WarmUp
from loadpath.traffic.report import report_on

STEADY = tuple(Interval(begin=float(t), end=t + 1.0, ttft_p50=0.35, itl_p50=0.03, output_tokens=512) for t in range(10))


def findings(figures: dict[str, Any] | None = None, **changes: Any) -> dict[str, Finding]:
    return {f.id: f for f in report_on(made_result(figures, **changes)).findings}


def watched(**at: list[float]) -> tuple[MetricSample, ...]:
    rows: list[dict[str, Any]] = [{name: values[t] for name, values in at.items()} for t in range(10)]
    return tuple(MetricSample(time=t + 0.5, **row) for t, row in enumerate(rows))


def test_a_clean_run_has_no_warning() -> None:
    found = findings(intervals=STEADY, metrics=watched(running=[16.0] * 10, waiting=[0.0] * 10, kv_usage=[0.4] * 10))
    assert not [f.id for f in found.values() if f.severity != "info"]


def test_failed_requests_are_named_by_kind() -> None:
    found = findings({"errors": {"http 400": 3, "timeout": 1}, "completed": 196})["bench-requests-failed"]
    assert found.severity == "warning" and "3 x http 400" in found.cause
    assert findings({"errors": {"http 500": 150}, "completed": 50})["bench-requests-failed"].severity == "error"


def test_a_client_that_is_late_measured_itself() -> None:
    late = ClientLoad(cpu_share=0.7, lag=around(0.004), late_share=0.2)
    found = findings(client=late)["bench-client-bound"]
    assert "20%" in found.cause and "median ITL of 30 ms" in found.cause
    starved = findings(client=ClientLoad(cpu_share=0.05, lag=around(0.2), late_share=0.5))["bench-client-bound"]
    assert "other processes" in starved.cause and "taskset -c 0" in starved.remedies[0].command


def test_never_steady_and_cold_first() -> None:
    never = WarmUp("1024x256", 60, 60, False, why="TTFT still rises")
    assert "60 requests" in findings(warm_up=(never,))["bench-never-steady"].title
    cold = WarmUp("1024x256", 60, 4, True, cold_ttft=4.0, steady_ttft=0.4)
    assert "10 times" in findings(warm_up=(cold,))["bench-cold-first"].title


def test_cached_prompts_unless_they_were_wanted() -> None:
    assert "80%" in findings({"cached_tokens": 163_840})["bench-prefix-cache-measured"].title
    assert "bench-prefix-cache-measured" not in findings({"cached_tokens": 10_000})


def test_preemptions_mean_a_starved_cache_and_no_advice_for_more_load() -> None:
    found = findings(intervals=STEADY, metrics=watched(
        running=[40.0] * 10, waiting=[6.0] * 10, kv_usage=[0.99] * 10, preemptions=[float(t) for t in range(10)]
    ))["bench-kv-starved"]  # fmt: skip
    assert found.certainty == "established" and "9 preemptions" in found.title
    assert any(r.command.startswith("--max-num-seqs 30") for r in found.remedies)


def test_a_queue_beside_an_empty_cache_is_a_limit_of_the_scheduler() -> None:
    found = findings(intervals=STEADY, metrics=watched(running=[8.0] * 10, waiting=[8.0] * 10, kv_usage=[0.2] * 10))
    assert "bench-kv-starved" not in found
    assert "8 run at most" in found["bench-queueing"].cause


def test_clocks_that_were_held_down() -> None:
    cards = tuple(
        GpuSample(time=t + 0.5, gpu=0, sm_mhz=1200.0, watts=348.0, limit_watts=350.0, throttle=0x4) for t in range(10)
    )
    found = findings(intervals=STEADY, gpus=cards)["bench-clocks-held"]
    assert "software power cap" in found.title and "1200 MHz" in found.cause


def test_slow_stretches_are_tabled_with_their_phase() -> None:
    stalled = Interval(begin=10.0, end=11.0, ttft_p50=2.0, itl_p50=0.03)
    samples = (*watched(running=[16.0] * 10, waiting=[0.0] * 10), MetricSample(time=10.5, running=16.0, waiting=9.0))
    report = report_on(made_result(intervals=(*STEADY, stalled), metrics=samples))
    (table,) = (t for t in report.tables if t.id == "bench-phases")
    assert table.rows == (("10.0 - 11.0 s", "TTFT", "5.7x", "queue", "9 requests waited"),)
    assert "bench-slow-stretches" in {f.id for f in report.findings}
