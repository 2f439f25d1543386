"""`loadpath`: the verbs, imported only when called."""

from __future__ import annotations

from importlib import import_module

import click

VERBS = {"read": "Read logs and dumps; name what broke, why, and what to change."}


class Verbs(click.Group):
    """Sub-commands by name: each lives in a module of its own and is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = import_module(f"loadpath.cli.{name}").command
        return command


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loadpath")
def main() -> None:
    """Follow a model's load path from checkpoint to first token, and name what broke."""
