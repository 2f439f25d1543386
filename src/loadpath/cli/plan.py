"""`loadpath plan`: a model, cards and an engine's settings in; what the engine's log will say, out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from loadpath.cli.deployed import PASS_ON, Deployed, deployment_options, request_of
from loadpath.cli.options import Output, Unreadable, output_options, write

if TYPE_CHECKING:
    from loadpath.core.report import Report
    from loadpath.planning.training import Training


class Asked(msgspec.Struct, frozen=True):
    """The options of the verb, as typed."""

    solve: bool
    which_gpu: bool
    concurrency: float
    length: int | None
    sweeps: tuple[str, ...]
    csv: str | None
    svg: str | None
    against: str | None
    beside: str | None
    share: int | None
    train: str | None
    precision: str
    optimiser: str
    rank: int
    targets: str
    sequence: int
    micro_batch: int
    checkpointing: bool
    fused_loss: bool
    zero: str


@click.command("plan", context_settings=PASS_ON)
@deployment_options
@click.option("--solve", is_flag=True, help="What to change so that --concurrency requests of --length tokens fit.")
@click.option("--which-gpu", is_flag=True, help="Every card of the table on which it fits, smallest first.")
@click.option(
    "--concurrency",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    metavar="N",
    help="Requests at once, for --solve and --which-gpu.",
)
@click.option(
    "--length", type=click.IntRange(1), metavar="L", help="Tokens of each of them (default: the context length)."
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Plan for each value: max-model-len=4096,8192 or =1024:65536:*2, gpus=1,2,4. Again to combine.",
)
@click.option("--csv", metavar="FILE", help="Write the table as CSV (- is standard output).")
@click.option("--svg", metavar="FILE", help="Write the plot of a sweep as SVG.")
@click.option("--against", metavar="LOG", help="Beside the log of a real start: predicted, logged, error.")
@click.option("--beside", metavar="MODEL", help="Another model on the same cards: what differs in numbers and room.")
@click.option(
    "--share", type=click.IntRange(2, 64), metavar="K", help="K processes on one card: time-slicing, MPS, MIG."
)
@click.option("--train", type=click.Choice(["full", "lora", "qlora"]), help="Plan a training run instead of a server.")
@click.option(
    "--precision",
    type=click.Choice(["bf16", "mixed", "fp32"]),
    default="mixed",
    show_default=True,
    help="Training: BF16 throughout, or 16-bit with FP32 master weights and states.",
)
@click.option(
    "--optimizer",
    "optimiser",
    default="adamw",
    show_default=True,
    type=click.Choice(["adamw", "adamw-8bit", "lion", "sgd", "sgd-momentum", "adafactor", "muon"]),
)
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True, help="Rank of LoRA adapters.")
@click.option(
    "--targets", default="", metavar="A,B", help="Matrices with adapters (q_proj,v_proj); default all linear ones."
)
@click.option(
    "--sequence", type=click.IntRange(1), default=2048, show_default=True, help="Tokens of a training sample."
)
@click.option("--micro-batch", type=click.IntRange(1), default=1, show_default=True, help="Samples at once on a GPU.")
@click.option("--checkpointing/--no-checkpointing", default=True, show_default=True, help="Recompute activations.")
@click.option("--fused-loss", is_flag=True, help="The loss never keeps all logits (Liger and its kin).")
@click.option(
    "--zero",
    type=click.Choice(["0", "1", "2", "3"]),
    default="0",
    show_default=True,
    help="What the GPUs share: 1 optimiser states, 2 and gradients, 3 and weights (FSDP full shard).",
)
@output_options
def command(words: tuple[str, ...], **given: Any) -> None:
    """Say before the launch what the engine's log will say: weights, activation peak, graphs, KV cache, concurrency.

    MODEL is a folder, a config.json, a .gguf file, a hub id, or a name of the bundled table. The engine's own flags
    follow as they are; or paste the whole command after --, or give a compose or Kubernetes file.

    \b
    Examples:
      loadpath plan Qwen/Qwen3-14B --gpu 'H100 80GB' --max-model-len 32768
      loadpath plan meta-llama/Llama-3.3-70B-Instruct --gpu 'RTX 4090' --gpus 4 --solve
      loadpath plan ./model.gguf --engine llama.cpp --gpu 24GiB -c 16384 -ngl 99
      loadpath plan --gpu L4 -- vllm serve Qwen/Qwen3-8B --max-model-len 8192
      loadpath plan compose.yaml --gpu 'A100 80GB'
      loadpath plan openai/gpt-oss-120b --which-gpu --length 32768
      loadpath plan Qwen/Qwen3-14B --gpu H200 --sweep max-model-len=8192:131072:*2
      loadpath plan --gpu 'H100 80GB' --against startup.log
      loadpath plan Qwen/Qwen3.6-27B --gpu 'RTX PRO 6000' --train lora
      loadpath plan Qwen/Qwen3-8B --gpu 'H100 80GB' --share 3

    \b
    Exit status: 0 it fits, 1 it does not, 2 it cannot be planned, 3 not enough to judge.
    """
    output = Output(**{name: given.pop(name) for name in Output.__struct_fields__})
    deployed = Deployed(**{name: given.pop(name) for name in Deployed.__struct_fields__})
    asked = Asked(**given)
    _refuse_idle_options(asked)
    from loadpath.forecast.request import PlanRefused

    try:
        report = _answer(words, deployed, asked)
    except (PlanRefused, OSError) as error:
        raise Unreadable(str(error)) from error
    if asked.against and deployed.engine and report.plan and report.plan.engine != deployed.engine:
        raise click.UsageError(f"--engine {deployed.engine}: {asked.against} is a log of {report.plan.engine}")
    if asked.csv:
        _write_csv(report, asked.csv)
    if asked.svg:
        _write_svg(report, asked.svg)
    status = 0 if asked.csv == "-" else write(report, output)
    sys.exit(max(status, 1 if report.verdict.state == "failed" else 0))


_NEEDED_FOR = {
    "concurrency": ("solve", "which_gpu"), "length": ("solve", "which_gpu"), "precision": ("train",), "optimiser": ("train",),
    "rank": ("train",), "targets": ("train",), "sequence": ("train",), "micro_batch": ("train",), "checkpointing": ("train",),
    "fused_loss": ("train",), "zero": ("train",), "svg": ("sweeps",),
}  # fmt: skip
"""Options that mean something beside one of others only."""
_ALONE = ("train", "which_gpu", "sweeps", "against")
"""Options of which each makes another report."""


def _refuse_idle_options(asked: Asked) -> None:
    """An option that would do nothing is refused: its user expects that it does."""
    context = click.get_current_context()
    names = {p.name: p.opts[0] for p in context.command.params if p.name}
    alone = [name for name in _ALONE if getattr(asked, name)]
    if len(alone) > 1:
        raise click.UsageError(f"{' and '.join(names[name] for name in alone)}: one of them at a time")
    if alone and any(getattr(asked, name) for name in ("solve", "beside", "share")):
        raise click.UsageError(
            f"{names[alone[0]]} makes a report of its own: --solve, --beside and --share do nothing there"
        )
    for name, wanted in _NEEDED_FOR.items():
        given = context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        if given and not any(getattr(asked, other) for other in wanted):
            raise click.UsageError(f"{names[name]} is for {' and '.join(names[other] for other in wanted)} only")


def _answer(words: tuple[str, ...], deployed: Deployed, asked: Asked) -> Report:
    from loadpath.cli.progress import counting
    from loadpath.forecast.service import Wants, answer
    from loadpath.forecast.sweep import parse_field

    wants = Wants(
        solve=asked.solve,
        which_gpu=asked.which_gpu,
        concurrency=asked.concurrency,
        length=asked.length,
        sweeps=tuple(parse_field(text) for text in asked.sweeps),
        against=asked.against,
        beside=asked.beside,
        training=_training(asked),
        share=asked.share,
    )
    with counting("planning") as progress:
        return answer(request_of(words, deployed), wants, progress)


def _training(asked: Asked) -> Training | None:
    if asked.train is None:
        return None
    from loadpath.planning.training import Training

    return msgspec.convert(
        {
            "method": asked.train, "precision": asked.precision, "optimiser": asked.optimiser, "rank": asked.rank,
            "targets": [t for t in asked.targets.split(",") if t], "sequence": asked.sequence,
            "micro_batch": asked.micro_batch, "checkpointing": asked.checkpointing, "fused_loss": asked.fused_loss,
            "stage": int(asked.zero),
        },
        Training,
    )  # fmt: skip


def _write_csv(report: Report, to: str) -> None:
    from loadpath.rendering.tables import to_csv

    if not report.tables:
        raise Unreadable("--csv writes a table: use it with --sweep, --solve, --which-gpu or --against")
    text = to_csv(report.tables[-1])
    if to == "-":
        click.echo(text, nl=False)
    else:
        _write(text, to)


def _write_svg(report: Report, to: str) -> None:
    from loadpath.rendering.scene import scene
    from loadpath.rendering.svg import to_svg
    from loadpath.rendering.sweep import chart

    drawn = chart(report.tables[-1]) if report.tables else None
    if drawn is None:
        raise Unreadable("--svg draws a sweep over numbers: use it with --sweep max-model-len=4096:65536:*2")
    _write(to_svg(scene(drawn)), to)


def _write(text: str, to: str) -> None:
    try:
        Path(to).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"cannot write {to}: {error.strerror or error}") from error
    click.echo(f"wrote {to}", err=True)
