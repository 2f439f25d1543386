"""`loadpath ready`: exit status 0 only when a server answers real generations steadily."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from loadpath.cli.options import Output, Unreadable, output_options, write

if TYPE_CHECKING:
    from loadpath.core.readiness import Readiness, Stage
    from loadpath.traffic.ready import ReadyRequest
    from loadpath.traffic.stages import Shape

LIMIT, PROBE_LIMIT = "5m", "5s"


class Asked(msgspec.Struct, frozen=True):
    """The options of the verb, as typed."""

    url: str
    timeout: str | None
    shapes: tuple[str, ...]
    warm: bool
    probe: bool
    state: str | None
    max_age: str
    serve: str | None
    every: str
    save: str | None
    model: str | None
    api_key: str | None
    headers: tuple[str, ...]
    insecure: bool


@click.command("ready")
@click.argument("url")
@click.option("--timeout", metavar="TIME", help=f"For all of it. [default: {LIMIT}; {PROBE_LIMIT} with --probe]")
@click.option("--shape", "shapes", multiple=True, metavar="PROMPTxOUTPUT",
              help="Tokens of a request that has to be warm; several, or 128x16,2048x16. [default: 128x16]")  # fmt: skip
@click.option("--warm", is_flag=True, help="Send the warm-up: requests of each shape until latencies no longer change.")
@click.option("--probe", is_flag=True, help="One look without waiting, one line: HEALTHCHECK, exec probes.")
@click.option("--state", metavar="FILE", help="With --probe: keeps the result, so that later looks are quick.")
@click.option("--max-age", default="60s", show_default=True, metavar="TIME",
              help="With --state: how long port and health page are enough; then a token is asked for again.")  # fmt: skip
@click.option("--serve", metavar="[HOST]:PORT", help="Check for ever; tell /livez, /readyz and /metrics there.")
@click.option("--every", default="15s", show_default=True, metavar="TIME", help="With --serve: time between checks.")
@click.option("--save", metavar="FILE", help="Save the result as JSON; `loadpath read` reads it.")
@click.option("--model", metavar="NAME", help="Model to ask; default: the first that the server lists.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="Also from OPENAI_API_KEY. Never printed or saved.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="Sent with every request.")
@click.option("--insecure", is_flag=True, help="Do not verify the certificate.")
@output_options
def command(**given: Any) -> None:
    """Wait until a server of models answers real generations steadily: port, health page, models, first token, warm shapes.

    \b
    Examples:
      loadpath ready http://127.0.0.1:8000 --timeout 10m
      loadpath ready http://127.0.0.1:8000 --warm --shape 128x16,2048x16
      loadpath ready http://127.0.0.1:8000 --probe --state /tmp/ready.json
      loadpath ready http://127.0.0.1:8000 --serve :9400

    \b
    In a Dockerfile:
      HEALTHCHECK --start-period=10m --timeout=30s \\
        CMD loadpath ready http://127.0.0.1:8000 --probe --timeout 25s --state /tmp/ready.json

    \b
    Exit status: 0 ready, 1 not ready, 2 could not be asked.
    """
    output = Output(**{name: given.pop(name) for name in Output.__struct_fields__})
    asked = Asked(**given)
    request = _request(asked)
    if asked.serve:
        _serve(request, asked)
    elif asked.probe:
        sys.exit(_probe(request, asked))
    else:
        sys.exit(_wait(request, asked, output))


def _request(asked: Asked) -> ReadyRequest:
    from loadpath.cli.bench_request import headers_of, seconds_of, server_of
    from loadpath.traffic.ready import ReadyRequest
    from loadpath.traffic.sender import Key

    for option, value in (("--state", asked.state),):
        if value and not asked.probe:
            raise click.UsageError(f"{option} belongs to --probe")
    if asked.probe and asked.serve:
        raise click.UsageError("--probe and --serve exclude each other")
    limit = asked.timeout or (PROBE_LIMIT if asked.probe else LIMIT)
    return ReadyRequest(
        target=server_of(asked.url),
        limit=seconds_of(limit, "--timeout"),
        shapes=_shapes(asked.shapes),
        wait=not asked.probe,
        warming=asked.warm,
        model=asked.model,
        key=Key(asked.api_key or ""),
        headers=headers_of(asked.headers),
        insecure=asked.insecure,
    )


def _shapes(given: tuple[str, ...]) -> tuple[Shape, ...]:
    from loadpath.traffic.ready import SHAPES
    from loadpath.traffic.stages import Shape

    made: list[Shape] = []
    for word in (word for text in given for word in text.split(",") if word.strip()):
        prompt, _, output = word.strip().lower().partition("x")
        if not (prompt.isdigit() and output.isdigit() and int(prompt) and int(output)):
            raise click.UsageError(f"--shape {word!r}: write PROMPTxOUTPUT in tokens, such as 128x16")
        made.append(Shape(int(prompt), int(output)))
    return tuple(dict.fromkeys(made)) or SHAPES


def _wait(request: ReadyRequest, asked: Asked, output: Output) -> int:
    from loadpath.core.readiness import to_bytes
    from loadpath.traffic.ready import ready
    from loadpath.traffic.ready_report import report_on

    result = ready(request, _told)
    if asked.save:
        try:
            Path(asked.save).write_bytes(to_bytes(result))
        except OSError as error:
            raise Unreadable(f"cannot write {asked.save}: {error.strerror or error}") from error
    status = write(report_on(result), output)
    return status if result.ready else max(1, status)


def _told(stage: Stage) -> None:
    """Stages as they pass, on standard error: people watch a start that takes minutes."""
    from loadpath.traffic.ready_report import stage_line

    click.echo(stage_line(stage), err=True)


def _probe(request: ReadyRequest, asked: Asked) -> int:
    from loadpath.cli.bench_request import seconds_of
    from loadpath.traffic.ready import probe

    state = Path(asked.state) if asked.state else None
    try:
        result = probe(request, state, seconds_of(asked.max_age, "--max-age"))
    except OSError as error:
        raise Unreadable(f"cannot write {asked.state}: {error.strerror or error}") from error
    _one_line(result)
    return 0 if result.ready else 1


def _one_line(result: Readiness) -> None:
    from loadpath.traffic.ready_report import line

    click.echo(line(result))


def _serve(request: ReadyRequest, asked: Asked) -> None:
    import asyncio

    from loadpath.cli.bench_request import seconds_of
    from loadpath.traffic.sidecar import serve

    host, _, port = (asked.serve or "").rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--serve {asked.serve!r}: write :9400 or 127.0.0.1:9400")
    host = host.strip("[]") or "0.0.0.0"
    every = seconds_of(asked.every, "--every")

    def listening(at: int) -> None:
        click.echo(f"http://{host}:{at}/readyz, /livez, /metrics", err=True)

    try:
        asyncio.run(serve(request, host, int(port), every, listening))
    except OSError as error:
        raise Unreadable(f"cannot listen on {asked.serve}: {error.strerror or error}") from error
