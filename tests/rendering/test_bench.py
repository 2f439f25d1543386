"""A benchmark drawn: the terminal's histogram, and the pictures of the HTML page."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

from rich.console import Console

from loadpath.core.traffic import (
    BENCH_SCHEMA,
    BenchResult,
    BenchSettings,
    ClientLoad,
    Exchange,
    Interval,
    ServerIdentity,
    Spread,
)
from loadpath.rendering.bench import MOST_DRAWN, histogram, html_pieces, requests_scene, terminal_pieces
from loadpath.rendering.scene import Stroke


def result(count: int = 20) -> BenchResult:
    exchanges = tuple(
        Exchange(
            intended=float(n), sent=n + 0.5, first=n + 1.0 + n * 0.01, last=n + 2.0, end=n + 2.1, output_tokens=11,
            error="timeout" if n == 3 else "",
        )
        for n in range(count)
    )  # fmt: skip
    intervals = tuple(
        Interval(begin=float(n), end=n + 1.0, output_tokens=100.0 + n, ttft_p50=0.1) for n in range(count)
    )
    nothing = ClientLoad(cpu_share=0.1, lag=Spread(1, 0, 0, 0, 0, 0, 0, 0))
    return BenchResult(
        schema=BENCH_SCHEMA, target="http://x", started="", seconds=1.0, loadpath="0", settings=BenchSettings(),
        server=ServerIdentity(), client=nothing, intervals=intervals, exchanges=exchanges,
    )  # fmt: skip


def test_a_histogram_counts_every_value_once() -> None:
    text = histogram("TTFT", [0.1 + 0.001 * n for n in range(100)] + [5.0]).plain
    counts = [int(line.split()[-1]) for line in text.splitlines()[1:] if line.rstrip()[-1].isdigit()]
    assert sum(counts) == 101 and "to 5,000" in text
    assert "all 100 ms" in histogram("TTFT", [0.1, 0.1]).plain


def test_the_terminal_gets_histograms_and_the_timeline() -> None:
    pieces = [piece.plain for piece in terminal_pieces(result(), Console(file=io.StringIO(), width=60))]
    assert len(pieces) == 3 and pieces[0].startswith("TTFT, 19 requests") and "Output over the run" in pieces[2]
    assert all(len(line) <= 60 for piece in pieces for line in piece.splitlines())


def test_every_request_is_a_bar_of_its_phases_and_failures_stand_out() -> None:
    drawn = requests_scene(result())
    assert drawn
    colours = [shape.colour for shape in drawn.shapes if isinstance(shape, Stroke)]
    assert len(colours) == 60 and colours.count("#d55e00") == 3


def test_thousands_of_requests_are_thinned_and_it_is_said() -> None:
    drawn = requests_scene(result(1000))
    assert drawn and "one of every 3" in str(drawn.shapes[0])
    assert len([s for s in drawn.shapes if isinstance(s, Stroke)]) <= 3 * MOST_DRAWN


def test_the_page_holds_well_formed_pictures() -> None:
    pieces = html_pieces(result())
    for picture in pieces.split("<svg")[1:]:
        ET.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    assert pieces.count("<svg") == 4
