"""Commands that end well, fail, are missing, crash, or never come back."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from loadpath.collect.runner import run_command

ENVIRON = {"PATH": "/usr/bin:/bin"}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_both_streams_are_kept_with_the_exit_status() -> None:
    ran = run_command(
        python("import sys; print('a', flush=True); print('b', file=sys.stderr); sys.exit(3)"), 10, ENVIRON
    )
    assert (ran.outcome, ran.status, ran.data) == ("failed", 3, b"a\nb\n")


def test_a_missing_command_is_said() -> None:
    ran = run_command(["no-such-command-here"], 10, ENVIRON)
    assert ran.outcome == "missing" and "no-such-command-here" in ran.note


def test_a_crash_names_its_signal() -> None:
    ran = run_command(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), 10, ENVIRON)
    assert (ran.outcome, ran.status) == ("failed", -11) and "SIGSEGV" in ran.note


def test_what_does_not_answer_is_ended_with_its_children_and_keeps_what_it_said() -> None:
    began = time.monotonic()
    code = "import subprocess, time; print('first', flush=True); subprocess.Popen(['sleep', '60']); time.sleep(60)"
    ran = run_command(python(code), 1.0, ENVIRON)
    assert time.monotonic() - began < 8
    assert (ran.outcome, ran.status, ran.data) == ("timed-out", None, b"first\n")
    assert "no answer in 1 s, state S" in ran.note


def test_a_folder_of_the_path_that_may_not_be_entered_does_not_hide_that_a_program_is_missing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    ran = run_command(["no-such-command-here"], 10, {"PATH": f"{closed}:/bin"})
    assert ran.outcome == "missing"


def test_a_program_that_may_not_be_run_is_denied(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    assert run_command([str(program)], 10, ENVIRON).outcome == "denied"
