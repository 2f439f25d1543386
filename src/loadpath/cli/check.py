"""`loadpath check`: the live machine, layer by layer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadpath.cli.machine import machine_options
from loadpath.cli.options import Output, Unreadable, output_options, write
from loadpath.core.layers import LAYERS

if TYPE_CHECKING:
    from loadpath.core.sample import Sample


@click.command("check")
@click.option("--layer", "layers", multiple=True, type=click.Choice(LAYERS), help="Only this layer; may be repeated.")
@click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Keep every sample as a file in DIR, as seen (bundle masks).",
)
@click.option(
    "--python",
    metavar="PREFIX",
    help="The engine's Python environment (/opt/venv), where it is not the active one or that of a running engine.",
)
@click.option(
    "--run-framework", is_flag=True, help="Also start PyTorch in a process of its own and ask it what it sees."
)
@click.option(
    "--image", metavar="IMAGE", help="Also start a container of this local image for a moment and look inside."
)
@click.option("--container", metavar="NAME", help="Also look inside this running container.")
@click.option("--list", "list_only", is_flag=True, help="List the probes and run none.")
@machine_options
@output_options
def command(
    layers: tuple[str, ...], timeout: float, root: str, save: str | None, list_only: bool, verbose: bool,
    python: str | None, run_framework: bool, image: str | None, container: str | None, **output: object,
) -> None:  # fmt: skip
    """Check this machine layer by layer, and name the first that does not hold.

    Runs read-only commands with time-outs and says each on standard error; nothing is changed. Works without root,
    without a GPU and inside a container, and says what it could not see from there.

    \b
    Examples:
      loadpath check
      sudo loadpath check --html machine.html
      loadpath check --layer kernel-module --layer device-nodes
      loadpath check --container vllm
      loadpath check --image vllm/vllm-openai:latest
      loadpath check --save evidence/ && loadpath read evidence/

    \b
    Exit status: 0 no error found, 1 an error found, 2 could not run, 3 not enough to judge.
    """
    from loadpath.checking.service import gathered, report_on, saved
    from loadpath.collect.probe import Machine
    from loadpath.collect.registry import probes

    wanted = tuple(layer for layer in LAYERS if layer in layers)
    if list_only:
        for probe in probes(wanted):
            click.echo(f"{probe.layer:18} {probe.name}")
        return
    if python and not _in_tree(root, python).is_dir():
        raise click.BadParameter(f"no folder {python}{'' if root == '/' else f' in {root}'}", param_hint="--python")
    shown = Output(**output)  # type: ignore[arg-type]
    options = {"python": python or "", "run-framework": "yes" if run_framework else ""}
    loud = verbose or sys.stderr.isatty()
    machine = Machine(root, timeout_s=timeout, options=options)
    samples = gathered(machine, wanted, _tell if loud else None)
    if image or container:
        from loadpath.collect.inside import look

        inside = look(machine, image or "", container or "", lambda text: click.echo(text, err=True))
        samples = (*samples, *inside)
    if save:
        try:
            Path(save).mkdir(parents=True, exist_ok=True)
            for name, data in saved(samples):
                Path(save, name).write_bytes(data)
        except OSError as error:
            raise Unreadable(f"cannot write {error.filename or save}: {error.strerror or error}") from error
        click.echo(f"saved {len(samples)} samples in {save}", err=True)
    sys.exit(write(report_on(samples), shown))


def _tell(sample: Sample) -> None:
    """One line on standard error: how long it took, how it went, what was asked."""
    outcome = "" if sample.outcome == "ok" else f"  [{sample.outcome}]"
    what = sample.command if len(sample.command) <= 90 else f"{sample.command[:87]}..."
    click.echo(f"{sample.seconds:7.2f} s  {what}{outcome}", err=True)


def _in_tree(root: str, path: str) -> Path:
    """The prefix that is named, or whose interpreter is named, in the tree that stands for the machine."""
    named = Path(path) if root == "/" else Path(root) / path.lstrip("/")
    return named.parent.parent if named.parent.name == "bin" else named
