"""Options of the verbs that look at a machine: which one, how long each command gets, whether to say them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def machine_options(command: F) -> F:
    """Add them; the verb gets `timeout` (seconds), `root` and `verbose`."""
    for option in reversed((
        click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0.1, 600), metavar="S",
                     help="Seconds that each command gets."),
        click.option("--root", default="/", metavar="DIR", type=click.Path(exists=True, file_okay=False),
                     help="A saved machine's file tree in place of /: nothing is run."),
        click.option("-v", "--verbose", is_flag=True,
                     help="Say each command on standard error, also without a terminal."),
    )):  # fmt: skip
        command = option(command)
    return command
