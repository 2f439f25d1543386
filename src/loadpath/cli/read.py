"""`loadpath read`."""

from __future__ import annotations

import sys

import click


@click.command("read")
@click.argument("files", nargs=-1)
@click.option("--json", "as_json", is_flag=True)
def command(files: tuple[str, ...], as_json: bool) -> None:
    """Read logs and dumps and name what broke."""
    import msgspec

    from loadpath.core.report import exit_status
    from loadpath.reading.service import read_bytes

    sources = [("stdin", sys.stdin.buffer.read()) if f == "-" else (f, open(f, "rb").read()) for f in files or ("-",)]
    report = read_bytes(sources)
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    sys.exit(exit_status(report))
