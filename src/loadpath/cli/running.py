"""`launch --run`: start what was written, and follow its log until it is ready or has failed. What was started goes on."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import click

from loadpath.cli.options import Unreadable
from loadpath.launching.spec import Launch
from loadpath.launching.write import written

KINDS = ("docker", "podman", "command")
PAUSE_SECONDS = 0.2


def run_and_follow(made: Launch, kind: str) -> int:
    """Start it and follow; returns the exit status of the report on its log.

    Raises Unreadable where the program that starts it is missing or refuses.
    """
    if kind not in KINDS:
        raise click.UsageError(
            f"--run starts docker, podman or command; write the {kind} file and start it with its own tool"
        )
    program = made.program[0] if kind == "command" else kind
    if shutil.which(program) is None:
        raise Unreadable(f"{program} is not on PATH: nothing was started")
    folder = Path(tempfile.mkdtemp(prefix="loadpath-"))
    script = folder / "start.sh"
    script.write_text(written(made, kind), encoding="utf-8")
    click.echo(f"starting: sh {script}", err=True)
    if kind == "command":
        return _gated(made, _process(script, folder / "log"))
    started = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    if started.returncode:
        raise Unreadable(f"{kind} run failed ({started.returncode}): {started.stderr.strip()}")
    click.echo(f"started {started.stdout.strip()[:12]}; `{kind} stop {made.name}` ends it", err=True)
    return _gated(made, _container([kind, "logs", "-f", made.name]))


def _gated(made: Launch, status: int) -> int:
    """After a good start: wait for real generations where that was asked for, and end with that status."""
    if status or not (made.probes and made.probes.generates):
        return status
    host = "127.0.0.1" if made.host in ("0.0.0.0", "::") else made.host
    url = f"http://{f'[{host}]' if ':' in host else host}:{made.port}"
    words = [sys.executable, "-m", "loadpath", "ready", url, "--warm", "--timeout", f"{made.probes.start_seconds}s"]
    return subprocess.run(words).returncode


def _process(script: Path, log: Path) -> int:
    """A process of its own session, its output in a file: it outlives us, as a container does."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            ["sh", str(script)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    click.echo(f"started {started.pid}, its output is in {log}; `kill -- -{started.pid}` ends it", err=True)
    with log.open("rb") as output, subprocess.Popen([*_READER, "-"], stdin=subprocess.PIPE) as reader:
        _pump(output, started, reader)
    if (status := started.poll()) is not None:
        click.echo(f"it ended with exit status {status}", err=True)
        return max(reader.returncode, 1 if status else 0)
    return reader.returncode


def _pump(output: BinaryIO, started: subprocess.Popen[bytes], reader: subprocess.Popen[bytes]) -> None:
    """The process's output to the reader, until the process ends or the reader has seen enough."""
    assert reader.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        while reader.poll() is None:
            ended = started.poll() is not None  # asked first: what it wrote last is read after
            if chunk := output.read(1 << 16):
                reader.stdin.write(chunk)
                reader.stdin.flush()
            elif ended:
                break
            else:
                time.sleep(PAUSE_SECONDS)
    with contextlib.suppress(BrokenPipeError):
        reader.stdin.close()


def _container(words: list[str]) -> int:
    """`words 2>&1 | loadpath read --follow -`."""
    click.echo(f"following: {shlex.join(words)}", err=True)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as log:
        try:
            return subprocess.run([*_READER, "-"], stdin=log.stdout).returncode
        finally:
            log.terminate()


_READER = (sys.executable, "-m", "loadpath", "read", "--follow")
