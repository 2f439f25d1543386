"""`loadpath bench`: requests to a live server, measured and judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from loadpath.cli.bench_asked import Asked
from loadpath.cli.options import Output, Unreadable, output_options, write

if TYPE_CHECKING:
    from loadpath.core.report import Report
    from loadpath.core.traffic import BenchResult


@click.command("bench")
@click.argument("url", required=False)
@click.option("--requests", type=click.IntRange(1), metavar="N", help="Measured requests of a level (default 100).")
@click.option("--duration", metavar="TIME", help="Measure for so long instead (60s, 5m).")
@click.option("--concurrency", metavar="N[,N…]", help="Closed loop: so many at once; several make a sweep (default 8).")
@click.option("--rate", metavar="R[,R…]", help="Open loop: requests a second, sent on a clock whatever comes back.")
@click.option(
    "--arrivals", type=click.Choice(["constant", "poisson", "gamma"]), help="Gaps of an open loop (default poisson)."
)
@click.option(
    "--burstiness",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    metavar="K",
    help="Shape of gamma gaps: below 1 burstier.",
)
@click.option("--max-in-flight", type=click.IntRange(1), metavar="N", help="Open loop: most requests under way.")
@click.option("--search", is_flag=True, help="Find the highest rate that meets --slo.")
@click.option(
    "--slo", metavar="LIMITS", help="ttft=500ms,itl=50ms,tpot=50ms,e2e=10s: goodput, and what --search meets."
)
@click.option(
    "--slo-share",
    type=click.FloatRange(0.5, 1),
    default=0.99,
    show_default=True,
    metavar="S",
    help="Share of the requests that has to meet it.",
)
@click.option("--input-tokens", default="512", show_default=True, metavar="L", help="1024, 128:2048, normal:1024:200 …")
@click.option("--output-tokens", default="128", show_default=True, metavar="L", help="The same for answers.")
@click.option("--prefix-tokens", type=click.IntRange(0), default=0, metavar="N", help="Tokens that all prompts share.")
@click.option("--turns", type=click.IntRange(1), default=1, metavar="N", help="Turns of a conversation.")
@click.option("--same-prompt", is_flag=True, help="One prompt for all: measures the prefix cache, on purpose.")
@click.option(
    "--prompts", metavar="FILE", type=click.Path(exists=True), help="Prompts of a ShareGPT-like JSON or JSONL."
)
@click.option("--trace", metavar="FILE", type=click.Path(exists=True), help="Replay lengths and arrival times.")
@click.option("--trace-speed", type=click.FloatRange(0.001), default=1.0, metavar="X", help="2: twice as fast.")
@click.option(
    "--api", type=click.Choice(["auto", "chat", "completions", "embeddings"]), default="auto", show_default=True
)
@click.option("--model", metavar="NAME", help="The served name (default: the first of /v1/models).")
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="Bearer token (OPENAI_API_KEY); never stored.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A further header; never stored.")
@click.option("--extra", multiple=True, metavar="FIELD=JSON", help="A further field of each request body.")
@click.option("--stream/--no-stream", default=True, help="Streamed answers (default), or whole ones.")
@click.option(
    "--ignore-eos/--stop-at-eos", default=True, help="Answers of the wanted length (default), or natural ones."
)
@click.option(
    "--warmup", type=click.IntRange(0), metavar="N", help="Leave out the first N; without it, evidence decides."
)
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="K", help="Repeats, for confidence intervals.")
@click.option("--request-timeout", default="600s", show_default=True, metavar="TIME", help="Limit of each request.")
@click.option(
    "--seed", type=int, metavar="N", help="Of prompts, lengths, arrivals. The same prompts twice are cached ones."
)
@click.option("--tokenizer", metavar="PATH", help="tokenizer.json, for servers that do not count tokens.")
@click.option("--insecure", is_flag=True, help="Accept any TLS certificate.")
@click.option("--metrics/--no-metrics", default=True, help="Watch the server's /metrics and local cards (default).")
@click.option("--gpu", default="", metavar="NAME", help="The card, to hold the figures against what it can do.")
@click.option("--gpus", type=click.IntRange(1), default=1, metavar="N", help="How many.")
@click.option(
    "--checkpoint", default="", metavar="MODEL", help="The model's checkpoint, where its served name is another."
)
@click.option("--save", metavar="FILE", help="Write the whole result (loadpath.bench/1), to read or compare later.")
@click.option("--csv", "csv_to", metavar="FILE", help="Write one row a request as CSV.")
@click.option("--read", "read_from", metavar="RESULT", help="Judge a saved result: ours, or another tool's.")
@click.option("--compare", nargs=2, metavar="A B", help="Two saved results; refused where more than one thing changed.")
@click.option("--factor", "factors", multiple=True, metavar="NAME", help="With --compare: what was changed on purpose.")
@click.option("--no-plot", is_flag=True, help="No histogram and timeline.")
@output_options
def command(
    save: str | None,
    csv_to: str | None,
    read_from: str | None,
    compare: tuple[str, str] | None,
    factors: tuple[str, ...],
    no_plot: bool,
    **given: Any,
) -> None:
    """Measure a server of models: latency from the intended send time, on a warm server, with prompts that differ.

    \b
    Examples:
      loadpath bench http://127.0.0.1:8000 --requests 300 --concurrency 24 --input-tokens 2048 --output-tokens 512
      loadpath bench http://127.0.0.1:8000 --concurrency 1,4,16,64 --save sweep.json
      loadpath bench http://127.0.0.1:8000 --rate 4 --arrivals poisson --duration 2m
      loadpath bench http://127.0.0.1:8000 --search --slo ttft=500ms,itl=50ms
      loadpath bench http://127.0.0.1:8000 --prompts sharegpt.json --concurrency 32 --html bench.html
      loadpath bench http://127.0.0.1:8000 --trace requests.jsonl
      loadpath bench --read result.json --gpu 'H100 80GB'
      loadpath bench --compare before.json after.json --factor version

    \b
    Exit status: 0 no error found, 1 an error found, 2 could not run, 3 nothing was measured.
    """
    output = Output(**{name: given.pop(name) for name in Output.__struct_fields__})
    asked = Asked(**given)
    if compare:
        sys.exit(write(_compared(compare, factors), output))
    if read_from:
        result, report = _read(read_from, asked)
    else:
        result = _run(asked)
        _save(result, save, csv_to)  # first of all: it took minutes to make
        report = _report(result)
    sys.exit(_show(report, result, output, plotted=not no_plot))


def _run(asked: Asked) -> BenchResult:
    from loadpath.cli.bench_request import request_of
    from loadpath.cli.progress import run_progress
    from loadpath.traffic.request import BenchRefused
    from loadpath.traffic.run import bench

    if asked.url is None:
        raise click.UsageError("give the server's URL, such as http://127.0.0.1:8000, or --read RESULT")
    try:
        with run_progress() as told:
            return bench(request_of(asked), told)
    except BenchRefused as error:
        raise Unreadable(str(error)) from error


def _report(result: BenchResult) -> Report:
    from loadpath.traffic.report import report_on

    return report_on(result)


def _read(source: str, asked: Asked) -> tuple[BenchResult | None, Report]:
    """A saved result: ours with its tables, another tool's as it is read."""
    from loadpath.traffic.other_results import judged
    from loadpath.traffic.report import report_on
    from loadpath.traffic.result_file import from_json

    data = _bytes_of(source)
    name = "standard input" if source == "-" else source
    try:
        result = from_json(data)
    except msgspec.MsgspecError:
        named = asked.checkpoint or (asked.model or "")
        return None, judged(name, data, model=named, gpu=asked.gpu, gpus=asked.gpus)
    told = {"gpu": asked.gpu, "checkpoint": asked.checkpoint or (asked.model or "")}
    changed = {key: value for key, value in told.items() if value}
    if asked.gpus > 1:
        changed["gpus"] = asked.gpus  # type: ignore[assignment]
    settings = msgspec.structs.replace(result.settings, **changed)
    result = msgspec.structs.replace(result, settings=settings)
    return result, report_on(result, name)


def _compared(files: tuple[str, str], factors: tuple[str, ...]) -> Report:
    from loadpath.traffic.compare import compare

    first, second = ((name, _bytes_of(name)) for name in files)
    return compare(first, second, factors)


def _bytes_of(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise Unreadable(f"{source}: {error.strerror or error}") from error


def _save(result: BenchResult, save: str | None, csv_to: str | None) -> None:
    from loadpath.traffic.result_file import to_csv, to_json

    if save:
        _write(save, to_json(result))
    if csv_to:
        _write(csv_to, to_csv(result).encode())


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise Unreadable(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {path}", err=True)


def _show(report: Report, result: BenchResult | None, output: Output, *, plotted: bool) -> int:
    if result is None or not plotted:
        return write(report, output)
    from loadpath.rendering.bench import html_pieces, terminal_pieces

    status = write(report, output, html_pieces(result) if output.html else "")
    if not (output.as_json or output.as_markdown or output.html):
        from loadpath.rendering.terminal import console

        to = console(color=False if output.no_color else None, width=output.width)
        for piece in terminal_pieces(result, to):
            to.print()
            to.print(piece)
    return status
