"""A result of ours: levels, client, warm-up, and the server's samples joined to the timeline by time."""

from __future__ import annotations

import pytest

from bench_results import made_result
from loadpath.core.case import Case
from loadpath.core.facts.traffic import BenchClient, Benchmark, BenchTimeline, BenchWarmUp
from loadpath.core.traffic import Interval, MetricSample
from loadpath.intake.clean import clean
from loadpath.reading.service import captures_of, case_of
from loadpath.traffic.result_file import to_json


def case(data: bytes) -> Case:
    return case_of(captures_of("result.json", clean(data)), [])


def test_levels_client_and_warm_up() -> None:
    found = case(to_json(made_result()))
    (level,) = found.all(Benchmark)
    assert (level.tool, level.model, level.concurrency, level.completed) == ("loadpath", "Qwen/Qwen3-14B", 16, 200)
    assert (level.input_mean, level.output_mean) == (1024, 256)
    assert found.has(BenchClient, BenchWarmUp)


def test_a_result_without_its_end_is_read_up_to_there() -> None:
    data = to_json(made_result())
    assert case(data[: data.index(b'"exchanges"')]).has(Benchmark)


def test_counters_of_the_server_are_what_they_grew_by_in_each_stretch() -> None:
    queue = "vllm:request_queue_time_seconds"
    samples = tuple(
        MetricSample(
            time=t,
            running=8,
            waiting=t,
            kv_usage=t / 10,
            preemptions=p,
            values={f"{queue}_sum": s, f"{queue}_count": n},
        )
        for t, p, s, n in ((0.5, 3, 10.0, 100), (1.5, 3, 11.0, 110), (2.5, 7, 31.0, 130))
    )
    intervals = tuple(
        Interval(begin=t, end=t + 1, ttft_p50=0.1, itl_p50=0.02, output_tokens=400) for t in (0.0, 1.0, 2.0)
    )
    timeline = case(to_json(made_result(intervals=intervals, metrics=samples))).last(BenchTimeline)
    assert timeline is not None
    _, second, third = timeline.stretches
    assert (second.preemptions, third.preemptions) == (0, 4)
    assert second.queue_seconds == pytest.approx(0.1) and third.queue_seconds == pytest.approx(1.0)
    assert third.kv_usage == pytest.approx(0.25) and third.output_rate == 400
