"""The roofline: the textbook case, both sides of the ridge, and what must hold for all figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadpath.planning.roofline import Roof, Work, attainable, place

ROOF = Roof(name="given", peak_flops_per_s=90e12, bandwidth_bytes_per_s=4e12)
positive = st.floats(1e3, 1e18)


def test_the_textbook_case() -> None:
    placed = place(Work(name="kernel", flops=60e12, bytes=6e12), ROOF)
    assert placed.intensity_flops_per_byte == 10
    assert placed.attainable_flops_per_s == 40e12
    assert placed.bound == "bandwidth-bound"
    assert ROOF.ridge_flops_per_byte == 22.5
    assert placed.memory_seconds == placed.floor_seconds == 1.5
    assert placed.compute_seconds == pytest.approx(2 / 3)


def test_beyond_the_ridge_compute_bounds_and_at_it_neither() -> None:
    assert place(Work(name="gemm", flops=450e12, bytes=1e12), ROOF).bound == "compute-bound"
    assert place(Work(name="ridge", flops=22.5e12, bytes=1e12), ROOF).bound == "balanced"


def test_work_without_bytes_or_without_operations() -> None:
    registers = place(Work(name="registers", flops=90e12, bytes=0), ROOF)
    assert (registers.intensity_flops_per_byte, registers.bound, registers.floor_seconds) == (
        None,
        "compute-bound",
        1.0,
    )
    copy = place(Work(name="copy", flops=0, bytes=4e12, seconds=1.25), ROOF)
    assert (copy.attainable_flops_per_s, copy.bound, copy.share_of_roof) == (0, "bandwidth-bound", 0.8)


def test_a_measured_time_is_set_against_the_roof() -> None:
    placed = place(Work(name="kernel", flops=60e12, bytes=6e12, seconds=3.0), ROOF)
    assert placed.achieved_flops_per_s == 20e12
    assert placed.achieved_bytes_per_s == 2e12
    assert placed.share_of_roof == 0.5


@given(positive, positive, positive, positive)
def test_more_bandwidth_or_peak_never_slows(flops: float, size: float, peak: float, bandwidth: float) -> None:
    work = Work(name="w", flops=flops, bytes=size)
    floor = place(work, Roof(name="r", peak_flops_per_s=peak, bandwidth_bytes_per_s=bandwidth)).floor_seconds
    for faster in (
        Roof(name="r", peak_flops_per_s=2 * peak, bandwidth_bytes_per_s=bandwidth),
        Roof(name="r", peak_flops_per_s=peak, bandwidth_bytes_per_s=2 * bandwidth),
    ):
        assert place(work, faster).floor_seconds <= floor


@given(positive, positive, positive, positive)
def test_the_floor_is_the_work_at_the_attainable_rate(flops: float, size: float, peak: float, bandwidth: float) -> None:
    roof = Roof(name="r", peak_flops_per_s=peak, bandwidth_bytes_per_s=bandwidth)
    placed = place(Work(name="w", flops=flops, bytes=size), roof)
    assert placed.floor_seconds == pytest.approx(flops / placed.attainable_flops_per_s)
    assert placed.attainable_flops_per_s == pytest.approx(attainable(roof, flops / size))
    assert 0 < placed.share_of_peak <= 1
