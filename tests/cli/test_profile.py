"""`loadpath profile`: the options that choose a part, the exit status, and what is no recording."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from loadpath.cli.main import main
from recordings import eager_decode, nsys_export


def run(*arguments: str, given: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["profile", *arguments], input=given)
    return result.exit_code, result.output


def test_a_warning_is_no_failure_unless_asked(tmp_path: Path) -> None:
    path = str(nsys_export(tmp_path / "run.sqlite", *eager_decode()))
    status, shown = run(path, "--no-color", "--top", "2")
    assert status == 0 and "Launching small kernels one by one" in shown
    assert "rms_norm_kernel" in shown and "silu_and_mul_kernel" not in shown
    assert run(path, "--fail-on", "warning")[0] == 1


def test_a_window_holds_only_its_part(tmp_path: Path) -> None:
    path = str(nsys_export(tmp_path / "run.sqlite", *eager_decode(steps=20)))
    status, shown = run(path, "--json", "--window", "0:0.0005")
    report = json.loads(shown)
    (gpu,) = [fact for fact in report["facts"] if fact["type"] == "GpuTimeline"]
    assert status == 0 and gpu["kernels"] == 50
    assert run(path, "--window", "5:2")[0] == 2
    assert run(path, "--window", "soon")[0] == 2


def test_an_own_format_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"\0\1\2")
    status, shown = run(str(path))
    assert status == 2 and "nsys export --type sqlite" in shown
    assert run(str(tmp_path / "nowhere.json"))[0] == 2


def test_a_pipe_is_read() -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    status, shown = run(
        "-", "--no-color", given=head + "100.0,3000000,10,300000,300000,2000,900000,1.0,softmax_kernel\n"
    )
    assert status == 3 and "Sums of kernels without their timeline" in shown
