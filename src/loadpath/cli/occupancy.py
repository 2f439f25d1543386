"""`loadpath occupancy`: how many warps of a kernel an SM holds, what limits them, and what would let in more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from loadpath.cli.quantities import quantity

if TYPE_CHECKING:
    from loadpath.forecast.occupancy import Answer


@click.command("occupancy")
@click.option("--threads", type=click.IntRange(1), required=True, metavar="N", help="Threads of a block.")
@click.option(
    "--registers", type=click.IntRange(1), required=True, metavar="N", help="Per thread (ptxas -v prints it)."
)
@click.option(
    "--static-shared", type=quantity("B", zero=True), default="0", metavar="N", help="Static shared memory of a block."
)
@click.option(
    "--dynamic-shared",
    type=quantity("B", zero=True),
    default="0",
    metavar="N",
    help="Dynamic shared memory of a block (96KiB).",
)
@click.option("--gpu", metavar="NAME", help="A card of the table (H100 80GB, RTX 5090).")
@click.option("--sm", "capability", metavar="CC", help="A compute capability (9.0, sm_120). Neither: all of them.")
@click.option("--grid", type=click.IntRange(1), metavar="N", help="Blocks of the launch: how many waves (with --gpu).")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--width", type=click.IntRange(60, 200), metavar="N", help="Columns, 60 to 200.")
def command(
    threads: int,
    registers: int,
    static_shared: float,
    dynamic_shared: float,
    gpu: str | None,
    capability: str | None,
    grid: int | None,
    as_json: bool,
    width: int | None,
) -> None:
    """Occupancy of a kernel, by the arithmetic of NVIDIA's calculator, for compute capability 7.0 to 12.1.

    \b
    Examples:
      loadpath occupancy --threads 256 --registers 64 --gpu 'H100 80GB'
      loadpath occupancy --threads 128 --registers 168 --dynamic-shared 96KiB --sm 9.0
      loadpath occupancy --threads 1024 --registers 32

    Occupancy says how much latency can be hidden, not how fast a kernel is: fast matrix kernels often run at 12 to 25%.
    """
    from loadpath.forecast.occupancy import OccupancyRefused, answer, to_document
    from loadpath.planning.occupancy import Kernel

    kernel = Kernel(
        threads=threads,
        registers=registers,
        static_shared_bytes=round(static_shared),
        dynamic_shared_bytes=round(dynamic_shared),
    )
    try:
        made = answer(kernel, gpu=gpu, capability=capability, grid=grid)
    except OccupancyRefused as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(to_document(made)), indent=1))
        return
    _show(made, width)


def _show(made: Answer, width: int | None) -> None:
    from loadpath.rendering.occupancy import lines
    from loadpath.rendering.roofline import wrapped
    from loadpath.rendering.terminal import console

    click.echo(wrapped(lines(made.kernel, made.found, made.changes, made.waves), console(width=width).width))
