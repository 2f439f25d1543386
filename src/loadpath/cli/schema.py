"""`loadpath schema`."""

from __future__ import annotations

import json

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of what `--json` prints (loadpath.report/1, additive within the version).

    \b
    Example:
      loadpath schema > report.schema.json
    """
    from loadpath.rendering.machine import schema

    click.echo(json.dumps(schema(), indent=1))
