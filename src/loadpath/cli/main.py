"""`loadpath`: the verbs, each imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from loadpath import __version__

VERBS = {
    "read": "Read logs and dumps: name what broke, why, and what to change.",
    "plan": "Say what a start will take before it happens: memory, concurrency, speed at best.",
    "launch": "Write the files that start what was planned: docker, compose, Kubernetes, systemd.",
    "check": "Check this machine layer by layer: name the first that does not hold.",
    "bundle": "Pack the evidence of this machine into one masked file, before anything is restarted.",
    "bench": "Measure a server: latency and throughput on a warm server, against what the card can do.",
    "profile": "Read what profilers recorded: gaps, launches, copies, kernels, what bounds them.",
    "ready": "Wait until a server answers real generations steadily; a probe and a sidecar for it.",
    "roofline": "Bound the speed of work by a card's peak rate and bandwidth, with a plot.",
    "occupancy": "Count the warps of a kernel that an SM holds, and what limits them.",
    "explain": "Explain a step, a boundary, a finding, or a figure of a log or tool.",
    "rules": "List every finding that loadpath can make.",
    "schema": "Print the JSON Schema of a report.",
    "completion": "Print the shell completion script.",
}


class Verbs(click.Group):
    """Sub-commands by name; the list and its short helps need no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = import_module(f"loadpath.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message} The verbs are: {', '.join(VERBS)}.", ctx) from error


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="loadpath %(version)s")
def main() -> None:
    """Follow a language model's load path from checkpoint to first token, and name what broke.

    \b
    Examples:
      loadpath read vllm.log                       what broke, why, what to change
      docker logs vllm 2>&1 | loadpath read -      the same from a pipe
      docker logs -f vllm 2>&1 | loadpath read --follow -
      nvidia-smi | loadpath read -                 who holds the memory, and is it normal
      loadpath explain kv-cache                    a term, what it is and is not

    \b
    Exit status: 0 no error found, 1 an error found, 2 could not run, 3 not enough to judge.
    """
