"""Charts: ticks, the terminal in dots and in plain characters, SVG and PNG of the same chart."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from loadpath.planning.roofline import Roof, Work, place
from loadpath.rendering.chart import Axis, Chart, Scale, Series, letters, scales, tick_label
from loadpath.rendering.plot import FINE, PLAIN, glyphs_for, plot
from loadpath.rendering.roofline import chart, lines, wrapped
from loadpath.rendering.scene import scene
from loadpath.rendering.svg import to_svg

ROOF = Roof(name="given roof", peak_flops_per_s=90e12, bandwidth_bytes_per_s=4e12)
WORK = Work(name="kernel <a>", flops=60e12, bytes=6e12)
ROOFLINE = chart((ROOF,), (place(WORK, ROOF),))


def test_the_roof_bends_at_its_ridge_and_work_lies_on_it() -> None:
    roof, work = ROOFLINE.series
    assert roof.points[1] == (22.5, 90e12)
    assert work.points == ((10, 40e12),)


def test_work_that_was_measured_lies_below() -> None:
    slow = place(Work(name="slow", flops=60e12, bytes=6e12, seconds=3), ROOF)
    assert chart((ROOF,), (slow,)).series[1].points == ((10, 20e12),)


def test_one_letter_for_work_under_several_roofs_and_none_without_bytes() -> None:
    other = Roof(name="other", peak_flops_per_s=20e12, bandwidth_bytes_per_s=4e12)
    still = Work(name="still", flops=1, bytes=0)
    placed = tuple(place(work, roof) for work in (WORK, still) for roof in (ROOF, other))
    ((letter, series),) = letters(chart((ROOF, other), placed))
    assert (letter, series.points) == ("A", ((10, 40e12), (10, 20e12)))


def test_a_pipe_gets_plain_characters_and_a_terminal_dots() -> None:
    assert glyphs_for(Console(file=io.StringIO())) is PLAIN
    assert glyphs_for(Console(file=io.StringIO(), force_terminal=True, no_color=True)) is PLAIN
    plain = plot(ROOFLINE, 80, PLAIN).plain
    assert plain.isascii()
    assert max(len(line) for line in plain.splitlines()) <= 80
    assert "A" in plain and "/" in plain and "---" in plain and "10" in plain
    fine = plot(ROOFLINE, 80, FINE).plain
    assert any(0x2800 < ord(char) < 0x2900 for char in fine)
    assert max(len(line) for line in fine.splitlines()) <= 80


def test_several_lines_are_told_apart_with_and_without_colour() -> None:
    other = Roof(name="other", peak_flops_per_s=20e12, bandwidth_bytes_per_s=4e12)
    both = chart((ROOF, other), ())
    plain = plot(both, 80, PLAIN).plain
    assert "1 given roof" in plain and "2 other" in plain
    assert any(line.rstrip().endswith("-2") for line in plain.splitlines())
    assert "── other" in plot(both, 80, FINE).plain


def test_the_line_rises_to_the_ridge_and_stays() -> None:
    rows = [line[10:] for line in plot(ROOFLINE, 80, PLAIN).plain.splitlines()]
    flat = next(row for row in rows if row.count("-") > 10)
    assert flat.index("-") > len(flat) // 3
    slope = [row.find("/") for row in rows if "/" in row and "FLOP" not in row]
    assert slope == sorted(slope, reverse=True)


def test_svg_is_well_formed_and_escaped() -> None:
    drawn = to_svg(scene(ROOFLINE))
    root = ElementTree.fromstring(drawn)
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "kernel <a>" in texts
    assert {"Roofline", "intensity, FLOP/byte", "attainable, FLOP/s", "10", "100T"} <= set(texts)
    assert "<script" not in drawn and len(drawn) < 20_000


def test_png_of_the_same_scene() -> None:
    image = pytest.importorskip("PIL.Image", reason="PNG needs Pillow, the extra `plot`")
    from loadpath.rendering.png import to_png

    with image.open(io.BytesIO(to_png(scene(ROOFLINE)))) as shown:
        assert shown.size == (1600, 1000)
        assert len(shown.convert("RGB").getcolors(1 << 20)) > 4


def test_linear_axes_have_round_ticks() -> None:
    assert Scale(low=0, high=100, log=False).ticks() == (0, 20, 40, 60, 80, 100)
    assert Scale(low=0, high=7, log=False).ticks() == (0, 2, 4, 6)
    assert Scale(low=1, high=1e6, log=True).ticks() == (1, 100, 10_000, 1_000_000)
    assert [tick_label(value) for value in (0, 0.1, 10, 2500, 1e14)] == ["0", "0.1", "10", "2.5k", "100T"]


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e12), st.floats(-1e3, 1e15)), max_size=5),
    st.booleans(),
    st.integers(60, 120),
)
def test_any_figures_can_be_drawn(points: list[tuple[float, float]], log: bool, width: int) -> None:
    made = Chart(
        title="t",
        x=Axis(label="x", log=log),
        y=Axis(label="y", log=log),
        series=(Series(name="line", points=tuple(points)), Series(name="dots", points=tuple(points), mark="letters")),
    )
    scales(made)
    assert max(len(line) for line in plot(made, width, PLAIN).plain.splitlines()) <= width
    ElementTree.fromstring(to_svg(scene(made)))


def test_the_words_lead_with_the_work() -> None:
    said = lines((ROOF,), (place(WORK, ROOF),), {}, None, (), ("a note",))
    assert said[0] == "A kernel <a>: 60 TFLOP, 6 TB, 10 FLOP/byte"
    assert "at most 40 TFLOP/s (44.4% of peak), bandwidth-bound" in said[1]
    assert "ridge point 22.5 FLOP/byte" in said[3]
    assert all(len(line) <= 60 for line in wrapped(said, 60).splitlines())


def test_faster_than_the_roof_is_called_impossible() -> None:
    placed = place(Work(name="w", flops=60e12, bytes=6e12, seconds=1), ROOF)
    assert any("faster than the roof allows" in line for line in lines((ROOF,), (placed,), {}, None, (), ()))
