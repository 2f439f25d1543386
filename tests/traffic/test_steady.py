"""Warm-up by evidence: series whose change is known."""

from __future__ import annotations

from random import Random

from loadpath.traffic.steady import steady_start


def noisy(level: float, count: int, seed: int, noise: float = 0.1) -> list[float]:
    random = Random(seed)
    return [level * random.lognormvariate(0, noise) for _ in range(count)]


def test_a_steady_series_is_steady_from_its_first_value() -> None:
    starts = [steady_start(noisy(0.1, 100, seed)) for seed in range(200)]
    assert sum(s.start == 0 and s.steady for s in starts) >= 194  # at most 3 % false alarms


def test_a_cold_first_request_is_told_apart() -> None:
    found = steady_start([2.0, *noisy(0.1, 60, 1)])
    assert found.start == 1 and found.steady


def test_a_slow_beginning_ends_where_it_ended() -> None:
    for seed in range(50):
        found = steady_start([3.0, *noisy(0.2, 19, seed), *noisy(0.1, 80, seed + 1000)])
        assert found.steady and 18 <= found.start <= 22


def test_two_steps_are_both_left_out() -> None:
    found = steady_start([*noisy(0.5, 12, 1), *noisy(0.25, 12, 2), *noisy(0.1, 76, 3)])
    assert found.steady and 23 <= found.start <= 25


def test_one_outlier_is_no_change() -> None:
    values = noisy(0.1, 60, 4)
    values[30] = 5.0
    assert steady_start(values).start == 0


def test_a_stall_of_a_warm_server_is_counted_not_left_out() -> None:
    for at in (12, 50, 75):
        found = steady_start([*noisy(0.1, at, 5), *noisy(0.9, 12, 6), *noisy(0.1, 88 - at, 7)])
        assert found.steady and found.start == 0


def test_a_change_late_in_the_run_means_never_steady() -> None:
    found = steady_start([*noisy(0.1, 70, 5), *noisy(0.2, 30, 6)])
    assert not found.steady and "71 of 100" in found.why


def test_a_queue_that_grows_is_never_steady() -> None:
    assert not steady_start([0.05 + 0.02 * n for n in range(100)]).steady


def test_few_values_tell_only_the_first_apart() -> None:
    assert steady_start([1.0, 0.1, 0.1]).start == 1
    assert steady_start([0.11, 0.1, 0.1]).start == 0
    assert steady_start([0.1]).start == 0 and steady_start([]).start == 0
