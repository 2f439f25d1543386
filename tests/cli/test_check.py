"""`loadpath check` from the command line: what it prints, keeps, and exits with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import loadpath
from loadpath.cli.main import main
from machines import DRIVER, LIBRARIES, Tree

INVENTORY = (
    '{"system":true,"driver_version":"580.95.05","cuda_version":"13.0","count":1}\n'
    '{"gpu":0,"name":"NVIDIA H100 80GB HBM3","pci.bus_id":"00000000:01:00.0","compute_cap":"9.0"}\n'
    '{"gpu":0,"memory.total":"81559 MiB","memory.used":"4 MiB","utilization.gpu":"0 %"}\n'
    '{"processes":"listed","gpu":0}\n'
)
CUDA = f"libcuda: {LIBRARIES}/libcuda.so.{DRIVER}\ndriver-cuda: 13.0\ncuInit: called\ncuInit: 0\ndevices: 1\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree.healthy(tmp_path / "machine")
    made.command("nvml_child", INVENTORY)
    made.command("cuda_child", CUDA)
    return made


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_machine_that_holds_exits_with_0_and_lists_its_layers(tree: Tree) -> None:
    status, out, err = run("--root", str(tree.root), "--width", "80")
    assert status == 0 and err == ""
    assert "HEALTHY" in out and "1 pci" in out and "10 engine" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "Steps" not in out


def test_a_broken_machine_exits_with_1(tree: Tree) -> None:
    tree.remove("/dev/nvidia-uvm")
    tree.file("/dev/nvidia-uvm", "c 235 0 0666")
    status, out, _ = run("--root", str(tree.root), "--json")
    report = json.loads(out)
    assert status == 1 and report["root_cause"] == "device-node-stale"
    states = {layer["layer"]: layer["state"] for layer in report["layers"]}
    assert states["kernel-module"] == "holds" and states["device-nodes"] == "broken"


def test_nothing_to_see_is_not_health(tmp_path: Path) -> None:
    status, out, _ = run("--root", str(tmp_path), "--json")
    report = json.loads(out)
    assert status == 3 and report["verdict"]["state"] == "unknown"
    assert not any(layer["state"] == "holds" for layer in report["layers"])


def test_what_was_asked_is_told_on_standard_error(tree: Tree) -> None:
    _, out, err = run("--root", str(tree.root), "-v", "--json")
    assert "dmesg  [not-run]" in err and json.loads(out)


def test_saved_samples_read_elsewhere_give_the_same_findings(tree: Tree, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    status, out, _ = run("--root", str(tree.root), "--save", str(kept), "--json")
    again = loadpath.read(kept)
    assert status == 0
    assert [f["id"] for f in json.loads(out)["findings"]] == [f.id for f in again.findings]
    assert [(x["layer"], x["state"]) for x in json.loads(out)["layers"]] == [(x.layer, x.state) for x in again.layers]


def test_one_layer_asked_for_runs_only_its_probes(tree: Tree) -> None:
    _, out, _ = run("--root", str(tree.root), "--layer", "pci", "--json")
    kinds = {capture["kind"] for capture in json.loads(out)["captures"]}
    assert kinds == {"loadpath-sample", "whereabouts", "pci"}
    assert [layer["layer"] for layer in json.loads(out)["layers"]] == ["pci"]


def test_the_list_names_every_probe_and_runs_none() -> None:
    status, out, _ = run("--list")
    assert status == 0
    assert "user-driver        cuda-init" in out


@pytest.mark.parametrize("how", ["--markdown", "--html"])
def test_the_layers_stand_in_every_rendering(tree: Tree, tmp_path: Path, how: str) -> None:
    page = tmp_path / "page.html"
    arguments = ["--html", str(page)] if how == "--html" else ["--markdown"]
    _, out, _ = run("--root", str(tree.root), *arguments)
    text = page.read_text() if how == "--html" else out
    assert "kernel-module" in text and "holds" in text and "Layers" in text


def test_the_library_checks_a_saved_machine_too(tree: Tree) -> None:
    assert loadpath.check(tree.root).verdict.state == "healthy"


def test_this_machine_whatever_it_is_gets_a_report() -> None:
    report = loadpath.check()
    assert len(report.layers) == 11
    assert not [s for s in report.skipped if "fault of loadpath" in s.why]
    assert any("loadpath ran" in note for note in report.notes)
