"""`loadpath completion`: the script that a shell sources."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Examples:
      loadpath completion bash >> ~/.bashrc
      loadpath completion zsh > ~/.zfunc/_loadpath
      loadpath completion fish > ~/.config/fish/completions/loadpath.fish
    """
    from loadpath.cli.main import main

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(made(main, {}, "loadpath", "_LOADPATH_COMPLETE").source())
