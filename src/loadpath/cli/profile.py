"""`loadpath profile`: recordings of profilers in, a report out: the same road as `read`, with a part of the timeline chosen."""

from __future__ import annotations

import sys

import click
import msgspec

from loadpath.cli.options import Output, Unreadable, output_options, write


def window_of(text: str) -> tuple[float, float | None]:
    """`2:6`, `2:` or `:6`: seconds from the first recorded work."""
    begin, colon, end = text.partition(":")
    try:
        made = float(begin or 0), float(end) if end else None
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no window: seconds were expected, 2:6 or 2: or :6") from error
    if not colon or made[0] < 0 or (made[1] is not None and made[1] <= made[0]):
        raise click.BadParameter(f"{text!r} is no window: BEGIN:END in seconds, the end behind the beginning")
    return made


@click.command("profile")
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER|-...", type=click.Path(allow_dash=True))
@click.option("--window", type=window_of, metavar="A:B", help="Look only at these seconds of a timeline (2:6).")
@click.option("--gpu", type=click.IntRange(0), metavar="N", help="Look only at this GPU of a timeline.")
@click.option(
    "--top", type=click.IntRange(1, 60), default=12, show_default=True, metavar="N", help="Rows of each table."
)
@output_options
def command(
    files: tuple[str, ...], window: tuple[float, float | None] | None, gpu: int | None, top: int, **output: object
) -> None:
    """Read what profilers recorded: where the GPU's time went, what it waited for, and what a kernel is bound by.

    FILE: Nsight Systems' SQLite export or `nsys stats`; a Chrome trace of the torch profiler (.json, .json.gz); Nsight
    Compute's CSV (details or --page raw) or its printed pages. Nothing is run.

    \b
    Examples:
      nsys export --type sqlite -o run.sqlite run.nsys-rep && loadpath profile run.sqlite
      loadpath profile run.sqlite --window 20:30 --gpu 0
      loadpath profile trace_rank0.json.gz --top 20
      ncu --import kernels.ncu-rep --csv --page raw | loadpath profile -
      nsys stats run.nsys-rep | loadpath profile -

    \b
    Exit status: 0 no error found, 1 an error found (--fail-on warning: or a warning), 2 unreadable input, 3 not enough to judge.
    """
    from loadpath.readers.profile.gpu_work import View
    from loadpath.reading.service import read_paths

    shown = Output(**output)  # type: ignore[arg-type]
    begin, end = window or (0.0, None)
    try:
        report = read_paths(files, View(begin=begin, end=end, gpu=gpu))
    except OSError as error:
        raise Unreadable(str(error)) from error
    if not report.captures:
        why = "; ".join(f"{skipped.what}: {skipped.why}" for skipped in report.skipped)
        raise Unreadable(why or "nothing in it that can be read: see `loadpath profile --help` for what is")
    tables = tuple(
        msgspec.structs.replace(table, rows=table.rows[:top]) if table.id.startswith("profile-") else table
        for table in report.tables
    )
    sys.exit(write(msgspec.structs.replace(report, tables=tables), shown))
