"""`loadpath roofline`: where work stands under a card's roof, and a plot of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from loadpath.cli.options import Unreadable
from loadpath.cli.quantities import quantity
from loadpath.core.quantities import BadQuantity, parse_quantity

if TYPE_CHECKING:
    from loadpath.forecast.roofline import Roofline
    from loadpath.knowledge.gpus import Gpu
    from loadpath.planning.roofline import Roof, Work


class Asked(msgspec.Struct, frozen=True):
    """The options of the verb, as typed."""

    flops: float | None
    bytes: float | None
    seconds: float | None
    points: tuple[str, ...]
    peak: float | None
    bandwidth: float | None
    gpu: str | None
    dtypes: tuple[str, ...]
    watts: float | None
    power_limit: float | None
    tokens: int | None


@click.command("roofline")
@click.option("--flops", type=quantity("FLOP", zero=True), metavar="N", help="Operations of one piece of work (60T).")
@click.option("--bytes", type=quantity("B", zero=True), metavar="N", help="Bytes that it moves (6T, 27.31GiB).")
@click.option("--time", "seconds", type=quantity("s"), metavar="T", help="How long it was measured to take (12ms).")
@click.option("--point", "points", multiple=True, metavar="NAME=FLOP/BYTES[@TIME]", help="One more piece of work.")
@click.option("--peak", type=quantity("FLOP/s"), metavar="N", help="Peak rate (90T), instead of the card's.")
@click.option("--bandwidth", type=quantity("B/s"), metavar="N", help="Memory bandwidth (4T), instead of the card's.")
@click.option("--gpu", metavar="NAME", help="A card of the table: its peak and bandwidth (H100 80GB, RTX 5090).")
@click.option("--dtype", "dtypes", multiple=True, metavar="D", help="bf16 (default), fp8, fp4, int8 …; again for more.")
@click.option("--watts", type=quantity("W"), metavar="W", help="Measured draw, for the energy of a run.")
@click.option("--tokens", type=click.IntRange(1), metavar="N", help="Tokens that a run makes, for joules per token.")
@click.option("--power-limit", type=quantity("W"), metavar="W", help="What a power limit does (nvidia-smi -pl).")
@click.option("--svg", metavar="FILE", help="Write the plot as SVG.")
@click.option("--png", metavar="FILE", help="Write the plot as PNG (needs the extra loadpath[plot]).")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--no-plot", is_flag=True, help="No plot, only the figures.")
@click.option("--no-color", is_flag=True, help="No colour and plain characters (NO_COLOR is honoured too).")
@click.option("--width", type=click.IntRange(60, 200), metavar="N", help="Columns, 60 to 200.")
def command(
    svg: str | None, png: str | None, as_json: bool, no_plot: bool, no_color: bool, width: int | None, **given: Any
) -> None:
    """Bound work by a card's two peaks: attainable rate = min(peak, FLOP/byte x bandwidth).

    \b
    Examples:
      loadpath roofline --flops 60T --bytes 6T --peak 90T --bandwidth 4T
      loadpath roofline --gpu 'H100 80GB' --dtype bf16 --dtype fp8 --point decode=16G/16G --point prefill=115T/20G
      loadpath roofline --gpu 'RTX 5090' --flops 29G --bytes 27.31GiB --time 19ms --tokens 1 --power-limit 400
      loadpath roofline --gpu L4 --point gemm=2.2T/1.3G@21ms --svg roofline.svg

    Bounds are ceilings, not predictions: no run is faster, most are slower.
    """
    made = _made(Asked(**given))
    if svg:
        _save(svg, lambda: _drawing(made, "svg"))
    if png:
        _save(png, lambda: _drawing(made, "png"))
    if as_json:
        from loadpath.forecast.roofline import to_document

        click.echo(msgspec.json.format(msgspec.json.encode(to_document(made)), indent=1))
        return
    _show(made, plotted=not no_plot, no_color=no_color, width=width)


def _made(asked: Asked) -> Roofline:
    from loadpath.forecast.roofline import RooflineRefused, board, roofline

    try:
        gpu = board(asked.gpu) if asked.gpu else None
        roofs, notes = _roofs(asked, gpu)
        return roofline(
            roofs,
            _works(asked),
            gpu=gpu,
            watts=asked.watts,
            power_limit=asked.power_limit,
            tokens=asked.tokens,
            notes=notes,
        )
    except (RooflineRefused, BadQuantity) as error:
        raise click.UsageError(str(error)) from error


def _roofs(asked: Asked, gpu: Gpu | None) -> tuple[tuple[Roof, ...], tuple[str, ...]]:
    """The card's roofs, or the one of `--peak` and `--bandwidth`."""
    from loadpath.forecast.roofline import given_roof, roofs_of

    if asked.peak is not None:
        bandwidth = asked.bandwidth or (gpu.bandwidth_gbs * 1e9 if gpu else None)
        if bandwidth is None:
            raise click.UsageError("--peak needs --bandwidth (4T), or --gpu for the card's")
        return (given_roof(asked.peak, bandwidth),), ()
    if gpu is None:
        raise click.UsageError("give a roof: --gpu NAME, or --peak 90T --bandwidth 4T")
    return roofs_of(gpu, asked.dtypes or ("bf16",), asked.bandwidth)


def _works(asked: Asked) -> tuple[Work, ...]:
    made = []
    if asked.flops is not None or asked.bytes is not None:
        if asked.flops is None or asked.bytes is None:
            raise click.UsageError("--flops and --bytes belong together")
        made.append(_work("work", asked.flops, asked.bytes, asked.seconds))
    elif asked.seconds is not None:
        raise click.UsageError("--time needs --flops and --bytes")
    for text in asked.points:
        name, _, rest = text.partition("=")
        figures, _, time = rest.partition("@")
        flops, _, size = figures.partition("/")
        if not name or not size:
            raise click.UsageError(
                f"--point {text}: write NAME=FLOP/BYTES or NAME=FLOP/BYTES@TIME, as in gemm=2.2T/1.3G@21ms"
            )
        made.append(
            _work(
                name,
                parse_quantity(flops, "FLOP", zero=True),
                parse_quantity(size, "B", zero=True),
                parse_quantity(time, "s") if time else None,
            )
        )
    names = [work.name for work in made]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise click.UsageError(f"two points are called {twice!r}")
    return tuple(made)


def _work(name: str, flops: float, size: float, seconds: float | None) -> Work:
    from loadpath.planning.roofline import Work

    if not flops and not size:
        raise click.UsageError(f"{name}: neither operations nor bytes")
    return Work(name=name, flops=flops, bytes=size, seconds=seconds)


def _drawing(made: Roofline, kind: str) -> bytes:
    from loadpath.rendering.roofline import chart
    from loadpath.rendering.scene import scene

    page = scene(chart(made.roofs, made.work))
    if kind == "svg":
        from loadpath.rendering.svg import to_svg

        return to_svg(page).encode()
    from loadpath.rendering.png import NoPillow, to_png

    try:
        return to_png(page)
    except NoPillow as error:
        raise Unreadable(str(error)) from error


def _save(path: str, drawing: Callable[[], bytes]) -> None:
    data = drawing()
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise Unreadable(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}", err=True)


def _show(made: Roofline, *, plotted: bool, no_color: bool, width: int | None) -> None:
    from loadpath.rendering.plot import PLOT_WIDTH, glyphs_for, plot
    from loadpath.rendering.roofline import chart, lines, wrapped
    from loadpath.rendering.terminal import console

    to = console(color=False if no_color else None, width=width)
    click.echo(wrapped(lines(made.roofs, made.work, made.energy, made.power_limit, made.capped, made.notes), to.width))
    if plotted:
        to.print()
        to.print(plot(chart(made.roofs, made.work), width or min(to.width, PLOT_WIDTH), glyphs_for(to)))
