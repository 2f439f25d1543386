"""A benchmark drawn: histograms of latency, the timeline, and every request as a bar from sent to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from rich.console import Console
from rich.text import Text

from loadpath.core.traffic import BenchResult, Exchange
from loadpath.rendering.chart import Axis, Chart, Series
from loadpath.rendering.plot import PLOT_WIDTH, glyphs_for, plot
from loadpath.rendering.scene import Dot, Scene, Shape, Stroke, Words, scene
from loadpath.rendering.svg import to_svg

BARS = 12
MOST_DRAWN = 400
"""Requests of the picture of all requests; of more, every n-th is drawn."""
_BAR_WIDTH = 40
_LABELS = 36  # columns beside a bar
_HEIGHT = 10
_WAITS, _PREFILL, _DECODE, _FAILED = "#e69f00", "#0072b2", "#009e73", "#d55e00"
_LEFT, _WIDTH, _ROW, _TOP = 60, 900, 4, 60


def terminal_pieces(result: BenchResult, to: Console) -> list[Text]:
    """Histogram of TTFT and of the pace of decoding, and the timeline of output."""
    fine = to.encoding.lower().replace("-", "") == "utf8"
    measured = _measured(result)
    firsts = [x.first - x.intended for x in measured if x.first is not None]
    paces = [
        (x.last - x.first) / (x.output_tokens - 1)
        for x in measured
        if x.first is not None and x.last is not None and (x.output_tokens or 0) > 1 and x.output_tokens is not None
    ]
    made = [
        histogram(f"{name}, {len(values)} requests", values, "█" if fine else "#", min(_BAR_WIDTH, to.width - _LABELS))
        for name, values in (("TTFT", firsts), ("Time per output token", paces))
        if len(values) > 1
    ]
    if chart := _output_chart(result):
        made.append(plot(chart, min(to.width, PLOT_WIDTH), glyphs_for(to), _HEIGHT))
    return made


def histogram(title: str, values: Sequence[float], mark: str = "#", width: int = 40) -> Text:
    """Counts of equal steps up to the 99th percentile; what lies beyond is the last bar. `width`: of the longest bar."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    text = Text(f"{title}\n", style="bold")
    if high <= low:
        text.append(f"  all {_ms(low)}", style="dim")
        return text
    step = (high - low) / BARS
    digits = max(0, min(3, 1 - math.floor(math.log10(step * 1e3))))
    counts = [0] * (BARS + 1)
    for value in ordered:
        counts[min(BARS, int((value - low) / step * (1 - 1e-9)))] += 1
    most = max(counts)
    for number, count in enumerate(counts):
        if number == BARS and not count:
            break
        begin = low + number * step
        last = begin + step if number < BARS else ordered[-1]
        label = f"{begin * 1e3:,.{digits}f} to {last * 1e3:,.{digits}f} ms"
        bar = mark * max(round(count / most * width), 1 if count else 0)
        text.append(f"  {label:>24}  ", style="dim")
        text.append(bar, style="cyan")
        text.append(f" {count}\n" if count else "\n")
    text.rstrip()
    return text


def html_pieces(result: BenchResult) -> str:
    """Timeline and requests as SVG, one below the other."""
    charts = [chart for chart in (_output_chart(result), _latency_chart(result), _in_flight_chart(result)) if chart]
    drawn = [to_svg(scene(chart, _WIDTH, 320)) for chart in charts]
    if rows := requests_scene(result):
        drawn.append(to_svg(rows))
    if not drawn:
        return ""
    style = "<style>.drawn svg{max-width:100%;height:auto;margin:.5rem 0}</style>"
    return f'{style}<h2>{escape("Timeline")}</h2><div class="drawn">{"".join(drawn)}</div>'


def requests_scene(result: BenchResult) -> Scene | None:
    """Every request as a bar: waiting to be sent, until the first token, until the end. None where there are none."""
    shown = sorted((x for x in result.exchanges if x.end is not None and x.level >= 0), key=lambda x: x.intended)
    step = -(-len(shown) // MOST_DRAWN) if shown else 1
    shown = shown[::step]
    if not shown:
        return None
    begin, end = shown[0].intended, max(x.end for x in shown if x.end is not None)
    scale = (_WIDTH - _LEFT - 20) / max(1e-9, end - begin)
    shapes: list[Shape] = [Words(_LEFT, 24, _requests_title(len(shown), step), size=15), *_key()]
    for row, exchange in enumerate(shown):
        shapes += _bar(exchange, _TOP + row * _ROW, lambda time: _LEFT + (time - begin) * scale)
    floor = _TOP + len(shown) * _ROW + 8
    for tick in range(6):
        at = begin + (end - begin) * tick / 5
        shapes.append(Words(_LEFT + (at - begin) * scale, floor + 16, f"{at:.1f} s", size=11, anchor="middle"))
    return Scene("Requests over time", _WIDTH, floor + 30, tuple(shapes))


def _requests_title(count: int, step: int) -> str:
    return f"{count} requests, in order of their intended times" + (f" (one of every {step})" if step > 1 else "")


def _key() -> list[Shape]:
    made: list[Shape] = []
    named = ((_WAITS, "not sent yet"), (_PREFILL, "to the first token"), (_DECODE, "to the end"), (_FAILED, "failed"))
    for number, (colour, name) in enumerate(named):
        left = _LEFT + number * 170
        made += [Dot(left + 4, 42, 4, colour), Words(left + 14, 46, name, size=12)]
    return made


def _bar(exchange: Exchange, down: float, at: Callable[[float], float]) -> list[Shape]:
    points = [exchange.intended, exchange.sent, exchange.first, exchange.end]
    colours = (_WAITS, _PREFILL, _FAILED if exchange.error else _DECODE)
    made: list[Shape] = []
    before = exchange.intended
    for time, colour in zip(points[1:], colours, strict=True):
        if time is None or time <= before:
            continue
        made.append(Stroke(at(before), down, at(time), down, _FAILED if exchange.error else colour, 3))
        before = time
    return made


def _output_chart(result: BenchResult) -> Chart | None:
    points = tuple((i.begin, i.output_tokens / (i.end - i.begin)) for i in result.intervals)
    return _chart("Output over the run", "output tokens/s", (Series(name="output", points=points),))


def _latency_chart(result: BenchResult) -> Chart | None:
    named = (("TTFT p50", "ttft_p50"), ("ITL p50", "itl_p50"), ("ITL p99", "itl_p99"))
    series = tuple(
        Series(name=name, points=tuple((i.begin, v) for i in result.intervals if (v := getattr(i, field)) is not None))
        for name, field in named
    )
    return _chart("Latency over the run", "seconds", tuple(s for s in series if len(s.points) > 1), log=True)


def _in_flight_chart(result: BenchResult) -> Chart | None:
    under_way = Series(name="under way", points=tuple((i.begin, i.in_flight) for i in result.intervals))
    waiting = tuple((m.time, m.waiting) for m in result.metrics if m.waiting is not None)
    running = tuple((m.time, m.running) for m in result.metrics if m.running is not None)
    own = [Series(name="running (server)", points=running), Series(name="waiting (server)", points=waiting)]
    return _chart("Requests over the run", "requests", (under_way, *(s for s in own if len(s.points) > 1)))


def _chart(title: str, label: str, series: tuple[Series, ...], *, log: bool = False) -> Chart | None:
    if not any(len(s.points) > 1 for s in series):
        return None
    return Chart(title=title, x=Axis(label="seconds from the run's start"), y=Axis(label=label, log=log), series=series)


def _measured(result: BenchResult) -> list[Exchange]:
    """Of the last level, or of the best one of a search."""
    best = next((level.number for level in result.levels if result.best_rate and level.rate == result.best_rate), None)
    level = best if best is not None else max((x.level for x in result.exchanges), default=0)
    return [x for x in result.exchanges if x.phase == "measured" and not x.error and x.level == level]


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
