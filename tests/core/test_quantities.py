"""Figures as people write them, and as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadpath.core.quantities import BadQuantity, Unit, parse_quantity, show_quantity, show_time

UNITS: tuple[Unit, ...] = ("FLOP", "FLOP/s", "B", "B/s", "W", "s")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("60T", "FLOP", 60e12),
        ("90 TFLOP/s", "FLOP/s", 90e12),
        ("989TFLOPS", "FLOP/s", 989e12),
        ("1,792 GB/s", "B/s", 1792e9),
        ("27.31GiB", "B", 27.31 * 2**30),
        ("5 Ti", "B", 5 * 2**40),
        ("1e12", "B", 1e12),
        (".5M", "B", 5e5),
        ("12ms", "s", 0.012),
        ("730 µs", "s", 730e-6),
        ("0.4kW", "W", 400),
    ],
)
def test_what_people_write(text: str, unit: Unit, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("6X", "B", "write it like 6T, 6 TB, 27.31 GiB or 6e12"),
        ("400Gbit/s", "B/s", "Bits are not bytes"),
        ("T", "FLOP", "not a number of operations"),
        ("", "W", "not a power in watts"),
        ("-3", "B", "above 0"),
        ("0", "FLOP/s", "above 0"),
        ("5 GB", "FLOP", "not a number of operations"),
    ],
)
def test_what_is_no_quantity_says_how_to_write_one(text: str, unit: Unit, says: str) -> None:
    with pytest.raises(BadQuantity, match=says):
        parse_quantity(text, unit)


def test_nought_where_it_is_allowed() -> None:
    assert parse_quantity("0", "B", zero=True) == 0


@given(st.floats(1e-3, 9e19), st.sampled_from(UNITS[:5]))
def test_what_is_shown_reads_back(value: float, unit: Unit) -> None:
    assert parse_quantity(show_quantity(value, unit), unit) == pytest.approx(value, rel=6e-4)


@given(st.floats(1e-9, 1e6))
def test_times_read_back(seconds: float) -> None:
    assert parse_quantity(show_time(seconds, 4), "s") == pytest.approx(seconds, rel=6e-4)


def test_the_greatest_prefix_can_be_set() -> None:
    assert show_quantity(1.979e15, "FLOP/s", top="T") == "1,979 TFLOP/s"
    assert show_quantity(5750, "FLOP/byte", top="") == "5,750 FLOP/byte"
    assert show_quantity(0, "B") == "0 B"
    assert show_quantity(999.97e9, "B") == "1 TB"
