"""Options that every judging verb has, and the writing of a report the way they ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from loadpath.core.report import Report, exit_status
from loadpath.core.vocabulary import Severity

F = TypeVar("F", bound=Callable[..., Any])


class Unreadable(click.ClickException):
    """Input that cannot be read, or output that cannot be written: exit status 2."""

    exit_code = 2


class Output(msgspec.Struct, frozen=True):
    """How a report is to be shown."""

    as_json: bool = False
    as_markdown: bool = False
    html: str | None = None
    no_color: bool = False
    width: int | None = None
    fail_on: Severity = "error"


def output_options(command: F) -> F:
    """Add the shared options; the verb gets them as keyword arguments, to be handed to `Output`."""
    for option in reversed((
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON (see `loadpath schema`)."),
        click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, to paste into an issue."),
        click.option("--html", metavar="FILE", help="Write the report as one self-contained HTML file."),
        click.option("--no-color", is_flag=True, help="No colour (NO_COLOR is honoured too)."),
        click.option("--width", type=click.IntRange(60, 200), metavar="N", help="Columns, 60 to 200."),
        click.option("--fail-on", type=click.Choice(["error", "warning", "info"]), default="error", show_default=True,
                     help="Least severity that makes the exit status 1."),
    )):  # fmt: skip
        command = option(command)
    return command


def write(report: Report, output: Output, pieces: str = "") -> int:
    """Write the report to standard output (or the HTML file, with the verb's own `pieces`); returns the exit status."""
    if output.html:
        from loadpath.rendering.html import to_html

        try:
            Path(output.html).write_text(to_html(report, pieces), encoding="utf-8")
        except OSError as error:
            raise Unreadable(f"cannot write {output.html}: {error.strerror or error}") from error
        click.echo(f"wrote {output.html}", err=True)
    if output.as_json:
        from loadpath.rendering.machine import to_json

        sys.stdout.buffer.write(to_json(report))
    elif output.as_markdown:
        from loadpath.rendering.markdown import to_markdown

        click.echo(to_markdown(report), nl=False)
    elif not output.html:
        from loadpath.rendering.terminal import console, show

        show(report, console(color=False if output.no_color else None, width=output.width))
    sys.stdout.flush()
    return exit_status(report, output.fail_on)
