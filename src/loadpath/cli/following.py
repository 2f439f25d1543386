"""`loadpath read --follow`: the ladder and the present step while a server starts, then the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import click

from loadpath.cli.options import Output, Unreadable, write
from loadpath.core.report import Report
from loadpath.reading.follow import Snapshot, follow

IDLE_SECONDS = 2.0
QUIET_FAILURE = 3  # snapshots without a new line after which a failure is taken for the end


def follow_and_show(files: Sequence[str], output: Output) -> int:
    """Follow one source until the server is ready, has failed, or the user interrupts; returns the exit status.

    On a terminal the ladder updates in place on standard error; elsewhere each change of step is one line there. The
    report goes to standard output at the end.
    """
    if len(files) > 1:
        raise click.UsageError("--follow takes one file, or - for standard input")
    last: Report | None = None
    try:
        for snapshot in _shown(follow(files[0] if files else "-", idle=IDLE_SECONDS), output):
            last = snapshot.report
    except KeyboardInterrupt:
        pass
    except OSError as error:
        raise Unreadable(str(error)) from error
    if last is None:
        raise Unreadable("interrupted before anything was read")
    return write(last, output)


def _shown(snapshots: Iterator[Snapshot], output: Output) -> Iterator[Snapshot]:
    """The snapshots up to the decisive one, each shown as it comes."""
    if sys.stderr.isatty():
        yield from _live(snapshots, output)
        return
    said = ""
    for snapshot in _until_decided(snapshots):
        if (now := present(snapshot.report)) != said:
            said = now
            click.echo(now, err=True)
        yield snapshot


def _live(snapshots: Iterator[Snapshot], output: Output) -> Iterator[Snapshot]:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from loadpath.rendering.terminal import console, ladder_block

    to = console(color=False if output.no_color else None, width=output.width, file=sys.stderr)
    with Live(console=to, auto_refresh=False, transient=True) as live:
        for snapshot in _until_decided(snapshots):
            head = Text(
                f"{present(snapshot.report)}  ({snapshot.lines:,} lines, ^C for the report so far)", style="bold"
            )
            block = ladder_block(snapshot.report)
            live.update(Group(head, block) if block else head, refresh=True)
            yield snapshot


def _until_decided(snapshots: Iterator[Snapshot]) -> Iterator[Snapshot]:
    """Up to the one in which the server is ready, or has failed and falls silent."""
    quiet = 0
    for snapshot in snapshots:
        yield snapshot
        state = snapshot.report.verdict.state
        quiet = 0 if snapshot.grown else quiet + 1
        if _ready(snapshot.report) or snapshot.ended or (state == "failed" and quiet >= QUIET_FAILURE):
            return


def _ready(report: Report) -> bool:
    steps = {s.step: s.state for s in report.steps}
    return report.verdict.state in ("healthy", "degraded") and steps.get("http-server") == "done"


def present(report: Report) -> str:
    """One line on where the start is: "weight-load running, 22 of 85, about 29 min left"."""
    from loadpath.rendering import words

    step = next((s for s in reversed(report.steps) if s.state in ("running", "stalled", "failed")), None)
    if step is None:
        done = next((s for s in reversed(report.steps) if s.state == "done"), None)
        state = words.STATES[report.verdict.state].capitalize()
        return f"{state}: {done.step} done" if done else state
    told = words.figures(step.figures)
    return f"{step.step} {step.state}" + (f": {told}" if told else "")
