"""`launch --run` with a stand-in for the engine's program: it is started, followed until ready, and left running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from sse_server import running

LOG = Path(__file__).parents[2] / "src/loadpath/examples"
WORDS = ("launch", "Qwen/Qwen3-8B", "--gpu", "L4", "--max-model-len", "8192", "--as", "command", "--run")


def started(tmp_path: Path, log: str, *more: str, exits: bool = False) -> tuple[subprocess.CompletedProcess[str], int]:
    """The command with a `vllm` on PATH that prints a log and stays; the process group that it says it started."""
    program = tmp_path / "vllm"
    program.write_text(f"#!/bin/sh\ncat {LOG / log}\n{'exit 3' if exits else 'exec sleep 60'}\n")
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "loadpath", *WORDS, *more], capture_output=True, text=True, env=env, timeout=90
    )
    said = re.search(r"started (\d+), its output is in", done.stderr)
    assert said, done.stderr
    return done, int(said[1])


def test_a_server_that_becomes_ready_is_left_running(tmp_path: Path) -> None:
    done, group = started(tmp_path, "kv-fp8-healthy.log")
    os.killpg(group, signal.SIGTERM)  # raises where it is gone
    assert done.returncode == 0 and "HEALTHY" in done.stdout


def test_one_that_fails_is_reported_with_its_finding(tmp_path: Path) -> None:
    done, group = started(tmp_path, "kv-bf16-refused.log")
    os.killpg(group, signal.SIGTERM)
    assert done.returncode == 1 and "cannot hold one full-length request" in done.stdout


def test_with_a_gate_it_counts_only_when_it_generates(tmp_path: Path) -> None:
    with running(ttft=0.005, itl=0.0005) as url:
        done, group = started(tmp_path, "kv-fp8-healthy.log", "--gate", "ready", "--port", url.rpartition(":")[2])
    os.killpg(group, signal.SIGTERM)
    assert done.returncode == 0 and "Ready in" in done.stdout


def test_a_program_that_ends_ends_the_following(tmp_path: Path) -> None:
    done, _ = started(tmp_path, "kv-bf16-refused.log", exits=True)
    assert done.returncode == 1
    assert "ended with exit status 3" in done.stderr


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    env = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "loadpath", *WORDS], capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert "vllm is not on PATH" in done.stderr
