"""`launch --run`: start what was written, and follow its log until it is ready or has failed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from loadpath.cli.options import Unreadable
from loadpath.launching.spec import Launch
from loadpath.launching.write import written


def run_and_follow(made: Launch, kind: str) -> int:
    """Start it and follow; returns the exit status of the report. A container goes on; a bare process ends with us.

    Raises Unreadable where the program that starts it is missing or refuses.
    """
    if kind not in ("docker", "podman", "command"):
        raise click.UsageError(
            f"--run starts docker, podman or command; write the {kind} file and start it with its own tool"
        )
    script = Path(tempfile.mkdtemp(prefix="loadpath-")) / "start.sh"
    script.write_text(written(made, kind), encoding="utf-8")
    click.echo(f"starting: sh {script}", err=True)
    if kind == "command":
        return _followed(["sh", str(script)])
    started = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    if started.returncode:
        raise Unreadable(f"{kind} run failed ({started.returncode}): {started.stderr.strip()}")
    click.echo(f"started {started.stdout.strip()[:12]}; `{kind} stop {made.name}` ends it", err=True)
    return _followed([kind, "logs", "-f", made.name])


def _followed(words: list[str]) -> int:
    """`words 2>&1 | loadpath read --follow -`; what was started by us alone is ended when the following ends."""
    click.echo(f"following: {shlex.join(words)}", err=True)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            reader = [sys.executable, "-m", "loadpath", "read", "--follow", "-"]
            return subprocess.run(reader, stdin=process.stdout).returncode
        finally:
            process.terminate()
