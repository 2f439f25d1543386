"""`loadpath bundle`: the evidence of this machine in one file, before anything is restarted."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadpath.cli.machine import machine_options
from loadpath.cli.options import Unreadable

if TYPE_CHECKING:
    from loadpath.checking.bundle import Bundle
    from loadpath.core.sample import Sample


class Size(click.ParamType[int]):
    """`200MB`, `1GB`, `500MiB`: bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from loadpath.core.units import parse_size

        size = value if isinstance(value, int) else parse_size(str(value))
        if not size or size < 100_000:
            self.fail(f"{value!r} is no size of at least 100 KB, like 200MB or 1GB", param, ctx)
        return size


@click.command("bundle")
@click.option("-o", "--output", "out", metavar="FILE", help="Where to write it (default: loadpath-TIME.tar.zst here).")
@click.option(
    "--log", "logs", multiple=True, metavar="FILE", help="A log to take along, beside those found; repeatable."
)
@click.option(
    "--max-size", default="200MB", show_default=True, type=Size(), metavar="SIZE", help="Most bytes, before packing."
)
@click.option("--no-redact", is_flag=True, help="Keep names, addresses, identifiers and secrets as they are.")
@click.option("--yes", is_flag=True, help="With --no-redact: do not ask.")
@machine_options
def command(
    out: str | None, logs: tuple[str, ...], max_size: int, no_redact: bool, yes: bool, timeout: float, root: str, verbose: bool
) -> None:  # fmt: skip
    """Pack the evidence of this machine into one file, before anything is restarted.

    What `check` sees, the logs and metrics of running engines, the kernel's log, packages and topology. Secrets,
    addresses, host and user names, UUIDs and serial numbers are masked: the same thing has the same alias everywhere.
    `loadpath read FILE` on any machine gives the report that was made here. Nothing is changed or restarted.

    \b
    Examples:
      loadpath bundle
      sudo loadpath bundle -o incident.tar.zst --log /var/log/vllm.log
      loadpath read incident.tar.zst

    \b
    Exit status: 0 written, 2 not written.
    """
    from loadpath.checking.bundle import bundle
    from loadpath.collect.probe import Machine

    if no_redact and not yes:
        _ask()
    path = Path(out or f"loadpath-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.zst")
    loud = verbose or sys.stderr.isatty()
    try:
        made = bundle(
            Machine(root, timeout_s=timeout), path, redact=not no_redact, most_bytes=max_size, logs=logs,
            progress=_tell if loud else None,
        )  # fmt: skip
    except OSError as error:
        raise Unreadable(f"cannot write the bundle: {error.filename or path}: {error.strerror or error}") from error
    _summary(made)


def _ask() -> None:
    """Tokens and names will be in the file: somebody has to say that this is meant."""
    if not sys.stdin.isatty():
        raise click.UsageError("--no-redact keeps secrets and names in the file: add --yes to say that this is meant")
    click.confirm("Keep secrets, addresses, host and user names in the bundle?", abort=True, err=True)


def _tell(sample: Sample) -> None:
    outcome = "" if sample.outcome == "ok" else f"  [{sample.outcome}]"
    what = sample.command if len(sample.command) <= 90 else f"{sample.command[:87]}..."
    click.echo(f"{sample.seconds:7.2f} s  {what}{outcome}", err=True)


def _summary(made: Bundle) -> None:
    from loadpath.core.units import show_bytes
    from loadpath.reading.service import read_paths

    manifest = made.manifest
    total = sum(member.bytes for member in manifest.members)
    click.echo(f"wrote {made.path}: {show_bytes(made.size)}, {len(manifest.members)} captures of {show_bytes(total)}")
    ran = [member.command for member in manifest.members if member.status is not None or member.outcome == "timed-out"]
    click.echo(
        f"ran: {'; '.join(ran) or 'nothing'} (all else was read from files and local pages; its manifest lists everything)"
    )
    if not manifest.redacted:
        click.echo("masked: nothing (--no-redact): secrets, names and addresses are in it")
    elif manifest.masked:
        click.echo(
            f"masked: {', '.join(f'{_plural(count, sort)}' for sort, count in manifest.masked.items())}, and secrets"
        )
    else:
        click.echo("masked: secrets; no address, name or identifier was found")
    for member in manifest.members:
        if "left out" in member.note:
            click.echo(f"cut: {member.file}: {member.note}")
    for line in manifest.not_kept:
        click.echo(f"not kept: {line}")
    click.echo(f"it says: {read_paths([str(made.path)]).verdict.sentence}")
    click.echo(
        f"Nothing was changed or restarted. Look before you share it, and read it anywhere: loadpath read {made.path}"
    )


def _plural(count: int, sort: str) -> str:
    return f"{count} {sort}" if count == 1 else f"{count} {sort}es" if sort.endswith("s") else f"{count} {sort}s"
