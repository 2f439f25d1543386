"""The command as its user meets it: a real process, real pipes, exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n"


def loadpath(*args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadpath", *args], input=stdin, capture_output=True, text=True, timeout=60,
        env={**os.environ, **env},
    )  # fmt: skip


def test_version() -> None:
    done = loadpath("--version")
    assert done.returncode == 0 and done.stdout.startswith("loadpath ")


@pytest.mark.parametrize("verb", ["read", "explain", "rules", "schema", "completion"])
def test_every_verb_helps_with_examples(verb: str) -> None:
    done = loadpath(verb, "--help")
    assert done.returncode == 0 and "Example" in done.stdout
    assert verb in loadpath("--help").stdout


def test_error_found_is_1_and_findings_go_to_standard_output() -> None:
    done = loadpath("read", "-", stdin=MISMATCH)
    assert done.returncode == 1 and "FAILED" in done.stdout and done.stderr == ""


def test_not_enough_to_judge_is_3_and_never_health() -> None:
    done = loadpath("read", "--json", "-", stdin="")
    assert done.returncode == 3 and json.loads(done.stdout)["verdict"]["state"] == "unknown"


def test_unreadable_input_is_2_and_names_the_file(tmp_path: Path) -> None:
    done = loadpath("read", str(tmp_path / "absent.log"))
    assert done.returncode == 2 and "absent.log" in done.stderr and "Traceback" not in done.stderr


def test_unknown_verb_names_the_verbs() -> None:
    done = loadpath("raed")
    assert done.returncode == 2 and "read" in done.stderr


def test_json_markdown_html(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    assert json.loads(loadpath("read", "--json", "-", stdin=MISMATCH).stdout)["schema"] == "loadpath.report/1"
    assert loadpath("read", "--markdown", "-", stdin=MISMATCH).stdout.startswith("## Failed")
    done = loadpath("read", "--html", str(page), "-", stdin=MISMATCH)
    assert done.returncode == 1 and page.read_text("utf-8").startswith("<!doctype html>")


def test_secrets_do_not_leave() -> None:
    log = f"HF_TOKEN=hf_AbCdEfGhIjKlMnOpQr vllm serve m\n{MISMATCH}"
    for form in ("--json", "--markdown"):
        assert "AbCdEfGh" not in loadpath("read", form, "-", stdin=log).stdout


def test_explain_a_term_a_finding_and_a_near_miss() -> None:
    assert "at least one kernel ran" in loadpath("explain", "GPU-Util").stdout
    done = loadpath("explain", "gpuutil")
    assert done.returncode == 2 and "gpu-util" in done.stderr


def test_rules_lists_every_boundary_asked_for() -> None:
    done = loadpath("rules", "--boundary", "interconnect")
    assert "collective-timeout" in done.stdout and "## memory-fit" not in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    assert "_LOADPATH_COMPLETE" in loadpath("completion", shell).stdout


def test_completion_completes_verbs() -> None:
    done = loadpath(_LOADPATH_COMPLETE="bash_complete", COMP_WORDS="loadpath re", COMP_CWORD="1")
    assert "read" in done.stdout
