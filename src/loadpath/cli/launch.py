"""`loadpath launch`: the files that start what was planned, refused where it does not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from loadpath.cli.deployed import PASS_ON, Deployed, deployment_options, request_of
from loadpath.cli.options import Output, Unreadable, write

if TYPE_CHECKING:
    from loadpath.core.report import Report
    from loadpath.forecast.request import Request
    from loadpath.launching.spec import Launch

KINDS = ("docker", "podman", "compose", "kubernetes", "quadlet", "systemd", "command")
BARE = ("systemd", "command")
"""Kinds that start the program itself, without a container."""


class Asked(msgspec.Struct, frozen=True):
    """The options of the verb, as typed."""

    kind: str
    output: str | None
    force: bool
    run: bool
    train: bool
    name: str
    image: str
    port: int
    host: str
    devices: str
    cache: str
    volumes: tuple[str, ...]
    cdi: bool
    runtime_class: str
    gate: str


@click.command("launch", context_settings=PASS_ON)
@deployment_options
@click.option("--as", "kind", type=click.Choice(KINDS), default="docker", show_default=True, help="What to write.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
@click.option("--force", is_flag=True, help="Write it even where the plan says that it does not fit.")
@click.option("--run", is_flag=True, help="Start it (docker, podman, command) and follow its log until it is ready.")
@click.option("--train", is_flag=True, help="A container for the training command after --, not for a server.")
@click.option("--name", default="", help="Name of the container or service.")
@click.option("--image", default="", help="Image; default: the engine's own at the planned version.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; default: the engine's own.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address of the host that the port is published on."
)
@click.option("--devices", default="", metavar="0,1", help="These GPUs; default: any.")
@click.option("--cache", default="", metavar="DIR", help="Host folder of downloaded models.")
@click.option(
    "--volume", "volumes", multiple=True, metavar="SRC:DST[:rw]", help="Mount for --train; read-only unless :rw."
)
@click.option("--cdi", is_flag=True, help="GPUs by CDI (--device nvidia.com/gpu=…) instead of the runtime hook.")
@click.option(
    "--gate",
    type=click.Choice(["health", "ready"]),
    default="health",
    show_default=True,
    help="What health checks ask: the engine's page, or a generated token (`loadpath ready` in the image). --run waits for it.",
)
@click.option("--runtime-class", default="", metavar="NAME", help="runtimeClassName of the pod (nvidia).")
def command(words: tuple[str, ...], **given: Any) -> None:
    """Write the files that start an engine with the settings of a plan; every line carries its reason.

    Takes what `loadpath plan` takes. What does not fit is refused with the plan's finding unless --force.

    \b
    Examples:
      loadpath launch Qwen/Qwen3-14B --gpu 'H100 80GB' --max-model-len 32768
      loadpath launch Qwen/Qwen3-14B --gpu L40S --gpus 2 --as compose -o compose.yaml
      loadpath launch ./model --gpu A100 --as kubernetes --runtime-class nvidia
      loadpath launch --gpu 'RTX 4090' --as systemd -- vllm serve Qwen/Qwen3-8B
      loadpath launch --train --gpus 8 --image nvcr.io/nvidia/pytorch:25.09-py3 --volume ./data:/data
        -- torchrun --nproc-per-node 8 train.py

    \b
    Exit status: 0 written, 1 it does not fit, 2 it cannot be planned or written.
    """
    deployed = Deployed(**{name: given.pop(name) for name in Deployed.__struct_fields__})
    asked = Asked(**given)
    from loadpath.forecast.request import PlanRefused

    try:
        made = _training(words, deployed, asked) if asked.train else _serving(words, deployed, asked)
        text = _text(made, asked.kind)
    except (PlanRefused, OSError, ValueError) as error:
        raise Unreadable(str(error)) from error
    if asked.output:
        try:
            Path(asked.output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise Unreadable(f"cannot write {asked.output}: {error.strerror or error}") from error
        click.echo(f"wrote {asked.output}", err=True)
    elif not asked.run:
        click.echo(text, nl=False)
    if asked.run:
        from loadpath.cli.running import run_and_follow

        sys.exit(run_and_follow(made, asked.kind))


def _serving(words: tuple[str, ...], deployed: Deployed, asked: Asked) -> Launch:
    """The launch of a server; a plan that does not fit is shown instead, and ends the command."""
    from loadpath.forecast.deploy import spread_over
    from loadpath.forecast.request import PlanRefused
    from loadpath.launching.build import launch

    request = request_of(words, deployed)
    if not request.model:
        raise PlanRefused(
            "which model? A folder, config.json, .gguf file, hub id or name; or the whole command after --"
        )
    report = _planned(request)
    assert report.plan is not None
    if not report.plan.fits and not asked.force:
        sys.exit(max(1, write(report, Output())))
    settings = request.settings | spread_over(request.engine, request.settings, report.plan.gpus)
    return launch(report.plan, request.model, settings, _options(asked), request.adapters, request.drafter)


def _planned(request: Request) -> Report:
    from loadpath.forecast.service import plan

    return plan(request)


def _training(words: tuple[str, ...], deployed: Deployed, asked: Asked) -> Launch:
    from loadpath.launching.training import training

    return training(words, deployed.count or 1, _options(asked), asked.volumes)


def _options(asked: Asked) -> Any:
    from loadpath.launching.build import Options

    try:
        devices = tuple(int(d) for d in asked.devices.split(",") if d.strip())
    except ValueError:
        raise ValueError(f"--devices {asked.devices}: indices such as 0,1 were expected") from None
    return Options(
        name=asked.name, image=asked.image, port=asked.port, host=asked.host, devices=devices, cache=asked.cache,
        cdi=asked.cdi, runtime_class=asked.runtime_class, bare=asked.kind in BARE,
        gate=asked.gate == "ready",
    )  # fmt: skip


def _text(made: Launch, kind: str) -> str:
    from loadpath.launching.write import written

    return written(made, kind)
