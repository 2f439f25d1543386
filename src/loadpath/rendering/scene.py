"""A chart laid out as strokes, dots and words on a page: what the SVG and PNG writers draw. Lengths in pixels."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

from loadpath.rendering.chart import Chart, Scale, letters, places, scales, tick_label

WIDTH, HEIGHT = 800, 500
LEFT, LEGEND, TOP, BOTTOM = 80, 210, 48, 56
"""Margins; the legend stands in the right one."""
NAME = 26
"""Characters of a name that the legend has room for."""
TEXT, FAINT = "#222222", "#cccccc"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Told apart by people who see colours differently (Okabe and Ito)."""
Anchor = Literal["start", "middle", "end"]


class Stroke(msgspec.Struct, frozen=True, tag=True):
    """A straight line."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: str
    width: float = 1.0


class Dot(msgspec.Struct, frozen=True, tag=True):
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str


class Words(msgspec.Struct, frozen=True, tag=True):
    """A line of text: its base line starts, has its middle or ends at x. `upright` False: reading upwards."""

    x: float
    y: float
    text: str
    size: int = 13
    colour: str = TEXT
    anchor: Anchor = "start"
    upright: bool = True


Shape = Stroke | Dot | Words


class Scene(msgspec.Struct, frozen=True):
    """A page of shapes, the first at the back; `title` says what is shown to those who cannot see it."""

    title: str
    width: int
    height: int
    shapes: tuple[Shape, ...]


def scene(chart: Chart, width: int = WIDTH, height: int = HEIGHT) -> Scene:
    """The chart laid out: title, grid with ticks, lines, lettered points and a legend."""
    x, y = scales(chart)
    page = _Page(width, height, x, y)
    shapes: list[Shape] = [Words(LEFT, 28, chart.title, size=16)]
    shapes += _grid(chart, page)
    named: list[tuple[str, str]] = []
    for series in chart.series:
        if series.mark == "line":
            colour = COLOURS[len(named) % len(COLOURS)]
            named.append((series.name, colour))
            spots = [page.at(place) for place in places(chart, series, x, y)]
            shapes += [Stroke(*begin, *end, colour, 2.5) for begin, end in pairwise(spots)]
    for letter, series in letters(chart):
        for left, up in (page.at(place) for place in places(chart, series, x, y)):
            shapes += [Dot(left, up, 5, TEXT), Words(left + 8, up + 14, letter, size=14)]
    return Scene(chart.title, width, height, tuple(shapes + _legend(chart, named, page)))


class _Page(msgspec.Struct, frozen=True):
    width: int
    height: int
    x: Scale
    y: Scale

    def at(self, place: tuple[float, float]) -> tuple[float, float]:
        across, up = place
        return (
            LEFT + across * (self.width - LEFT - LEGEND),
            self.height - BOTTOM - up * (self.height - TOP - BOTTOM),
        )


def _grid(chart: Chart, page: _Page) -> list[Shape]:
    made: list[Shape] = []
    (left, bottom), (right, top) = page.at((0, 0)), page.at((1, 1))
    for tick in page.x.ticks():
        across, _ = page.at((page.x.place(tick), 0))
        made += [
            Stroke(across, bottom, across, top, FAINT),
            Words(across, bottom + 18, tick_label(tick), anchor="middle"),
        ]
    for tick in page.y.ticks():
        _, up = page.at((0, page.y.place(tick)))
        made += [Stroke(left, up, right, up, FAINT), Words(left - 8, up + 4, tick_label(tick), anchor="end")]
    made += [Stroke(left, bottom, right, bottom, TEXT), Stroke(left, bottom, left, top, TEXT)]
    made.append(Words((left + right) / 2, page.height - 14, chart.x.label, anchor="middle"))
    made.append(Words(20, (top + bottom) / 2, chart.y.label, anchor="middle", upright=False))
    return made


def _legend(chart: Chart, lines: list[tuple[str, str]], page: _Page) -> list[Shape]:
    """Names of lines and of lettered points, right of the chart."""
    made: list[Shape] = []
    left = page.width - LEGEND + 16
    entries = [(name, colour, "") for name, colour in lines]
    entries += [(series.name, TEXT, letter) for letter, series in letters(chart)]
    for number, (name, colour, letter) in enumerate(entries):
        down = TOP + 12 + 20 * number
        mark: Shape = Words(left + 4, down + 4, letter) if letter else Stroke(left, down, left + 18, down, colour, 2.5)
        made += [mark, Words(left + 26, down + 4, name if len(name) <= NAME else name[: NAME - 1] + "…", size=12)]
    return made
