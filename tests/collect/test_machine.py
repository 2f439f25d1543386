"""A machine below a root: paths stay inside it, nothing is run, and saved commands stand in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadpath.collect.probe import Machine, Probe, Sample, slug
from loadpath.collect.registry import PROBES, probes
from loadpath.collect.run import collect
from loadpath.collect.runner import Ran
from loadpath.core.sample import from_bytes, to_bytes
from machines import Tree


def test_links_of_a_saved_machine_never_lead_out_of_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    (tmp_path / "secret").write_text("outside")
    tree.file("/etc/real", "inside")
    tree.link("/etc/absolute", "/etc/real")
    tree.link("/etc/out", "../../../../secret")
    tree.link("/etc/loop", "loop")
    machine = tree.machine()
    assert machine.text("/etc/absolute") == "inside"
    assert machine.read("/etc/out") is None and machine.read("/../secret") is None
    assert machine.read("/etc/loop") is None
    assert machine.why_unread("/etc/none") == "missing"


def test_nothing_is_run_on_a_saved_machine(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    machine = Machine(tmp_path, run=lambda *_: 1 / 0)  # type: ignore[arg-type]
    assert machine.run(["nvidia-smi", "-q"]).outcome == "not-run"
    tree.command("nvidia-smi -q", "saved output\n")
    assert machine.run(["/usr/bin/nvidia-smi", "-q"]).data == b"saved output\n"


def test_a_saved_sample_keeps_how_it_went(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.command("dmesg", to_bytes(Sample("any", "any", "dmesg", 1, 0.5, "", "denied", b"")))
    ran = tree.machine().run(["dmesg"], name="kernel-log", kind="kernel-log")
    assert (ran.name, ran.kind, ran.outcome, ran.status) == ("kernel-log", "kernel-log", "denied", 1)


def test_a_sample_survives_its_text_form() -> None:
    sample = Sample("n", "k", "ls -l", 0, 1.5, "2026-01-01T00:00:00Z", "ok", b"line\n\xff\n", "a note")
    assert from_bytes(to_bytes(sample)) == sample
    assert from_bytes(b"something else\n") is None


def test_commands_have_file_names() -> None:
    assert slug(["/usr/bin/nvidia-smi", "topo", "-m"]) == "nvidia-smi_topo_-m"
    assert slug(["python", "-m", "loadpath.collect.nvml_child", "x"]) == "nvml_child"


def test_a_probe_that_breaks_is_a_sample_that_says_so(monkeypatch: object, tmp_path: Path) -> None:
    import os

    def broken(machine: Machine) -> object:
        raise RuntimeError("no luck")

    strict = os.environ.pop("LOADPATH_STRICT", None)
    try:
        made = collect(Machine(tmp_path), [Probe("x", "text", "pci", broken)])  # type: ignore[arg-type]
    finally:
        if strict:
            os.environ["LOADPATH_STRICT"] = strict
    assert made[0].outcome == "failed" and "no luck" in made[0].note


def test_every_module_of_probes_is_in_the_registry() -> None:
    folder = Path(__import__("loadpath.collect").collect.__file__).parent
    named = {entry.module for entry in PROBES}
    for path in folder.rglob("*.py"):
        if "\nPROBES = (" in path.read_text("utf-8") or "\nPROBES: tuple[Probe, ...] = (" in path.read_text("utf-8"):
            assert ".".join(path.relative_to(folder).with_suffix("").parts) in named, (
                f"{path.name} is not in collect/registry.py"
            )
    assert len({probe.name for probe in probes()}) == len(probes()), "two probes have the same name"


def test_layers_can_be_asked_for_alone() -> None:
    assert {probe.layer for probe in probes(["pci"])} == {"pci", "host"}


def test_after_a_driver_call_that_hung_no_other_is_made() -> None:
    asked: list[str] = []

    def hang(argv: Sequence[str], *_: object) -> Ran:
        asked.append(argv[0])
        return Ran("timed-out", note="no answer in 30 s, state D")

    machine = Machine("/", run=hang)
    first = machine.ask_driver(["nvidia-smi"], name="nvidia-smi", kind="nvidia-smi")
    second = machine.ask_driver(["nvidia-smi", "-q"], name="nvml", kind="nvidia-smi-q")
    assert (first.outcome, second.outcome) == ("timed-out", "not-run")
    assert asked == ["nvidia-smi"] and "nvidia-smi did not answer" in second.note
