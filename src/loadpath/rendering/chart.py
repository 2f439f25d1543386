"""A chart as data: axes, series of points, ticks. The terminal, SVG and PNG writers draw the same one."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from loadpath.core.quantities import show_quantity

MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters of marked points, in their order."""
SMALLEST = 1e-99
"""Below it a value is no figure of any machine: it is drawn as nothing."""


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis. `label` names the quantity and its unit; ticks show SI prefixes."""

    label: str
    log: bool = False


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Points that belong together, drawn as one line, or as dots with one letter for all."""

    name: str
    points: tuple[tuple[float, float], ...]
    mark: Literal["line", "letters"] = "line"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. On log axes only positive values are drawn."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """From values to places: 0 at `low`, 1 at `high`."""

    low: float
    high: float
    log: bool

    def place(self, value: float) -> float:
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> tuple[float, ...]:
        """Round values inside the range: decades (thinned out to `most`), or steps of 1, 2 or 5."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            inside = [n for n in range(first, last + 1) if self._holds(10.0**n)]
            if len(inside) > 2:
                return tuple(10.0**n for n in inside[:: -(-len(inside) // most)])
            finer = tuple(v for n in range(first, last + 1) for f in (1, 2, 5) if self._holds(v := f * 10.0**n))
            return finer if len(finer) > 1 else (self.low, self.high)
        rough = (self.high - self.low) / most
        size = 10 ** math.floor(math.log10(rough))
        step_size = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - 1e-9))
        first_step = math.ceil(self.low / step_size - 1e-9)
        return tuple(n * step_size for n in range(first_step, math.floor(self.high / step_size + 1e-9) + 1))

    def _holds(self, value: float) -> bool:
        return self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)


def scales(chart: Chart) -> tuple[Scale, Scale]:
    """Both axes' scales: all points with a little room."""
    drawn = [point for series in chart.series for point in visible(chart, series)]
    return (_scale([x for x, _ in drawn], chart.x.log), _scale([y for _, y in drawn], chart.y.log))


def visible(chart: Chart, series: Series) -> tuple[tuple[float, float], ...]:
    """The points that can be drawn: finite, and positive on log axes; what is next to nothing is nothing."""
    points = ((_plain(x), _plain(y)) for x, y in series.points)
    return tuple((x, y) for x, y in points if _drawable(x, chart.x.log) and _drawable(y, chart.y.log))


def _plain(value: float) -> float:
    return 0.0 if abs(value) < SMALLEST else value


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def letters(chart: Chart) -> tuple[tuple[str, Series], ...]:
    """The series drawn as letters, each with its own."""
    marked = [series for series in chart.series if series.mark == "letters"]
    return tuple((MARKS[n % len(MARKS)], series) for n, series in enumerate(marked))


def tick_label(value: float) -> str:
    """`10`, `2.5k`, `100T`."""
    return show_quantity(value, "", digits=3).replace(" ", "") if value >= 1 or value == 0 else f"{value:.2g}"


def places(chart: Chart, series: Series, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """The points of a series as places between 0 and 1."""
    return [(x.place(a), y.place(b)) for a, b in visible(chart, series)]


def _scale(values: list[float], log: bool) -> Scale:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if log:
        room = (high / low) ** 0.04 if high > low else 2.0
        return Scale(low=low / room, high=high * room, log=True)
    low = min(low, 0.0)
    return Scale(low=low, high=high + 0.04 * (high - low) if high > low else low + 1.0, log=False)
