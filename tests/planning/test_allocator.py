"""PyTorch's caching allocator: what a run of tensors is charged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadpath.core.units import MIB
from loadpath.planning.allocator import counted


def test_small_tensors_are_rounded_to_512_bytes() -> None:
    assert counted([1, 512, 513]) == [512, 512, 1024]


def test_a_large_tensor_takes_the_rest_of_its_segment_up_to_a_mebibyte() -> None:
    assert counted([13 * MIB]) == [14 * MIB], "1 MiB would be left over: not split off"
    assert counted([13 * MIB - 512]) == [13 * MIB - 512], "more than 1 MiB is left: split"
    assert counted([12 * MIB]) == [12 * MIB]


def test_shared_segments_of_20_mib() -> None:
    assert counted([9 * MIB, 9 * MIB, 2 * MIB]) == [9 * MIB, 9 * MIB, 2 * MIB]
    halves = [10 * MIB - 512, 10 * MIB - 512]
    assert counted(halves) == [10 * MIB - 512, 10 * MIB + 512], "what is left of the segment is charged whole"


@given(st.lists(st.integers(1, 60 * MIB), max_size=60))
def test_never_less_than_asked_and_at_most_a_mebibyte_more(sizes: list[int]) -> None:
    for asked, block in zip(sizes, counted(sizes), strict=True):
        assert asked <= block <= asked + MIB + 512
