"""`loadpath ready` as it is typed: exit statuses, one line for probes, what is saved."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import loadpath
from loadpath.cli.main import main
from sse_server import running

FAST = {"ttft": 0.005, "itl": 0.0005}
NOWHERE = "http://127.0.0.1:9"


def test_ready_is_0_not_ready_is_1_bad_usage_is_2() -> None:
    run = CliRunner().invoke
    with running(**FAST) as url:
        good = run(main, ["ready", url, "--timeout", "5s"])
    assert good.exit_code == 0 and "first-token" in good.output
    assert run(main, ["ready", NOWHERE, "--timeout", "300ms"]).exit_code == 1
    assert run(main, ["ready", "ftp://host"]).exit_code == 2
    assert run(main, ["ready", NOWHERE, "--shape", "128"]).exit_code == 2
    assert run(main, ["ready", NOWHERE, "--state", "/tmp/x"]).exit_code == 2


def test_a_probe_prints_one_line() -> None:
    shown = CliRunner().invoke(main, ["ready", NOWHERE, "--probe"])
    assert shown.exit_code == 1 and shown.output.count("\n") == 1
    assert "Not ready" in shown.output and "port" in shown.output


def test_a_saved_result_is_read_to_the_same_finding_and_holds_no_key(tmp_path: Path) -> None:
    saved = tmp_path / "ready.json"
    with running(**FAST, error_every=1) as url:
        shown = CliRunner().invoke(
            main, ["ready", url, "--timeout", "500ms", "--save", str(saved), "--api-key", "sk-very-secret-0123456789"]
        )
    assert shown.exit_code == 1 and "very-secret" not in shown.output + saved.read_text()
    assert loadpath.read_text(saved.read_text(), "ready.json").root_cause == "ready-stream-error"


def test_a_saved_good_result_is_healthy_when_read(tmp_path: Path) -> None:
    saved = tmp_path / "ready.json"
    with running(**FAST) as url:
        CliRunner().invoke(main, ["ready", url, "--timeout", "5s", "--save", str(saved)])
    read = loadpath.read_text(saved.read_text(), "ready.json")
    assert read.verdict.state == "healthy" and "steadily" in read.verdict.sentence
