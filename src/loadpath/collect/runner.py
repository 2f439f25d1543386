"""Running one command so that it cannot hang us: its own session, output to a file, a time-out, and, where even SIGKILL
does not end it (a driver call that never returns), leaving it behind and saying so."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadpath.core.sample import Outcome

MOST_OUTPUT = 16 << 20
"""Bytes of a command's output that are kept."""
GRACE = 2.0
"""Seconds for a killed process to go."""


class Ran(msgspec.Struct, frozen=True):
    """How a command ended. `status`: exit status, negative for a signal, None where it did not end."""

    outcome: Outcome
    status: int | None = None
    seconds: float = 0.0
    data: bytes = b""
    note: str = ""


def run_command(argv: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> Ran:
    """Run `argv` without standard input; both output streams are kept together, in order."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        try:
            child = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=dict(environ),
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        except FileNotFoundError:
            return Ran("missing", note=f"{argv[0]}: not found")
        except PermissionError as error:
            # A folder of PATH that may not be entered gives this too, for a program that is nowhere.
            if shutil.which(argv[0], path=environ.get("PATH")) is None and "/" not in argv[0]:
                return Ran("missing", note=f"{argv[0]}: not found")
            return Ran("denied", note=str(error))
        except OSError as error:
            return Ran("failed", note=str(error))
        try:
            child.wait(timeout_s)
            outcome: Outcome = "ok" if child.returncode == 0 else "failed"
            note = ""
        except subprocess.TimeoutExpired:
            outcome, note = "timed-out", _end(child, timeout_s)
        seconds = time.monotonic() - began
        out.seek(0)
        data = out.read(MOST_OUTPUT)
        if out.read(1):
            note = f"{note}; output cut at {MOST_OUTPUT >> 20} MiB".strip("; ")
    status = None if outcome == "timed-out" else child.returncode
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            note = note or f"ended by {signal.Signals(-status).name}"
    return Ran(outcome, status, seconds, data, note)


def _end(child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Kill what did not answer, with its children; what it waited in, and whether it went."""
    state, waits = state_of(child.pid)
    told = f"no answer in {timeout_s:g} s, state {state or '?'}{f', waits in {waits}' if waits else ''}"
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        state, _ = state_of(child.pid)
        return (
            f"{told}; still there {GRACE:g} s after SIGKILL (state {state or '?'}), left behind as process {child.pid}"
        )
    return told


def state_of(pid: int) -> tuple[str, str]:
    """A process's state letter (`D`: uninterruptible) and the kernel function that it waits in, where told."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "", ""
    try:
        waits = Path(f"/proc/{pid}/wchan").read_text("utf-8", "replace").strip("\0 \n0")
    except OSError:
        waits = ""
    return state, waits
