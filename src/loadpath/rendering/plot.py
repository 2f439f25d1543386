"""A chart in the terminal: braille dots where the terminal can, plain characters in a pipe or without colour."""

from __future__ import annotations

from itertools import groupby, pairwise

import msgspec
from rich.console import Console
from rich.text import Text

from loadpath.rendering.chart import Chart, Scale, letters, places, scales, tick_label, visible

STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")
PLOT_WIDTH = 80
"""Columns of a plot unless asked for more."""
HEIGHT = 18
MARGIN = 8
"""Columns of the labels of the y axis."""
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """Characters of the frame, and whether lines are braille dots (2 x 4 in a cell)."""

    braille: bool
    side: str
    tick: str
    floor: str
    floor_tick: str
    corner: str


FINE = Glyphs(braille=True, side="│", tick="┤", floor="─", floor_tick="┬", corner="└")
PLAIN = Glyphs(braille=False, side="|", tick="+", floor="-", floor_tick="+", corner="+")


def glyphs_for(to: Console) -> Glyphs:
    """Braille on a terminal with colour and UTF-8; else characters that survive every pipe and font."""
    fine = to.is_terminal and not to.no_color and to.encoding.lower().replace("-", "") == "utf8"
    return FINE if fine else PLAIN


def plot(chart: Chart, width: int, glyphs: Glyphs, height: int = HEIGHT) -> Text:
    """The chart, `width` columns wide: title, frame with ticks, lines, and a letter at each marked point."""
    x, y = scales(chart)
    columns = max(20, width - MARGIN - 2)
    cells = _Cells(columns, height, glyphs.braille)
    for number, series in enumerate(chart.series):
        if series.mark == "line":
            for begin, end in pairwise(places(chart, series, x, y)):
                cells.line(begin, end, STYLES[number % len(STYLES)])
    if not glyphs.braille:
        for number, _ in _lines(chart):
            cells.letter(places(chart, chart.series[number], x, y)[-1], str(number + 1))
    for letter, series in letters(chart):
        for place in places(chart, series, x, y):
            cells.letter(place, letter)
    return _framed(chart, cells, x, y, glyphs)


def _lines(chart: Chart) -> list[tuple[int, str]]:
    """Numbers and names of the lines, where there are several: colours tell them apart, or numbers at their ends."""
    lines = [
        (n, series.name) for n, series in enumerate(chart.series) if series.mark == "line" and visible(chart, series)
    ]
    return lines if len(lines) > 1 else []


class _Cells:
    """The drawing area: one character and one style a cell."""

    def __init__(self, columns: int, rows: int, braille: bool) -> None:
        self.columns, self.rows, self.braille = columns, rows, braille
        self.dots = [[0] * columns for _ in range(rows)]
        self.chars: list[list[str]] = [[" "] * columns for _ in range(rows)]
        self.styles: list[list[str]] = [[""] * columns for _ in range(rows)]

    def line(self, begin: tuple[float, float], end: tuple[float, float], style: str) -> None:
        across, down = (2, 4) if self.braille else (1, 1)
        wide, high = self.columns * across - 1, self.rows * down - 1
        x0, y0, x1, y1 = begin[0] * wide, (1 - begin[1]) * high, end[0] * wide, (1 - end[1]) * high
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        stroke = _stroke(x1 - x0, y1 - y0)
        for n in range(steps + 1):
            column, row = round(x0 + (x1 - x0) * n / steps), round(y0 + (y1 - y0) * n / steps)
            if 0 <= column <= wide and 0 <= row <= high:
                self._mark(column, row, across, down, stroke, style)

    def _mark(self, column: int, row: int, across: int, down: int, stroke: str, style: str) -> None:
        cell, part = (row // down, column // across), (row % down, column % across)
        if self.braille:
            self.dots[cell[0]][cell[1]] |= _DOTS[part[0]][part[1]]
            stroke = chr(_BRAILLE + self.dots[cell[0]][cell[1]])
        self.chars[cell[0]][cell[1]] = stroke
        self.styles[cell[0]][cell[1]] = style

    def letter(self, place: tuple[float, float], letter: str) -> None:
        column, row = round(place[0] * (self.columns - 1)), round((1 - place[1]) * (self.rows - 1))
        self.chars[row][column] = letter
        self.styles[row][column] = "bold"


def _stroke(across: float, down: float) -> str:
    """The character that looks most like the line."""
    if abs(down) < 0.3 * abs(across):
        return "-"
    if abs(across) < 0.3 * abs(down):
        return "|"
    return "/" if (down < 0) == (across > 0) else "\\"


def _framed(chart: Chart, cells: _Cells, x: Scale, y: Scale, glyphs: Glyphs) -> Text:
    text = Text(f"{chart.title}\n", style="")
    text.append(f"{chart.y.label}\n", style="dim")
    marks = {round((1 - y.place(tick)) * (cells.rows - 1)): tick_label(tick) for tick in y.ticks()}
    for row in range(cells.rows):
        label = marks.get(row, "")
        text.append(f"{label:>{MARGIN}} ", style="dim")
        text.append(glyphs.tick if label else glyphs.side, style="dim")
        for style, run in groupby(zip(cells.chars[row], cells.styles[row], strict=True), lambda cell: cell[1]):
            text.append("".join(char for char, _ in run), style=style)
        text.append("\n")
    floor, labels = _floor(cells.columns, x, glyphs)
    text.append(f"{'':>{MARGIN}} {glyphs.corner}{floor}\n", style="dim")
    text.append(f"{'':>{MARGIN}}  {labels}\n", style="dim")
    text.append(f"{chart.x.label:>{MARGIN + 2 + cells.columns}}\n", style="dim")
    for number, name in _lines(chart):
        mark = glyphs.floor * 2 if glyphs.braille else str(number + 1)
        text.append(f"{'':>{MARGIN}}  {mark} ", style=STYLES[number % len(STYLES)])
        text.append(f"{name}\n")
    text.rstrip()
    return text


def _floor(columns: int, x: Scale, glyphs: Glyphs) -> tuple[str, str]:
    """The x axis with its ticks, and their labels below; a label that would touch its neighbour is left out."""
    line, labels = [glyphs.floor] * columns, [" "] * columns
    free = 0
    for tick in x.ticks():
        place = round(x.place(tick) * (columns - 1))
        if not 0 <= place < columns:
            continue
        line[place] = glyphs.floor_tick
        label = tick_label(tick)
        begin = min(max(0, place - len(label) // 2), columns - len(label))
        if begin >= free:
            labels[begin : begin + len(label)] = label
            free = begin + len(label) + 1
    return "".join(line), "".join(labels).rstrip()
