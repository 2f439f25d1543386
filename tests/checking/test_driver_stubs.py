"""What the driver's two libraries answer, called for real against the stubs: inventory, refusals, hangs, crashes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadpath.core.report import Report
from machines import Tree

Machine = Callable[..., Tree]


def states(report: Report) -> dict[str, str]:
    return {layer.layer: layer.state for layer in report.layers}


def ids(report: Report) -> set[str]:
    return {f.id for f in report.findings} | {c for f in report.findings for c in f.consequences}


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_healthy_machine_holds_from_the_bus_to_the_driver(machine: Machine, gpus: int) -> None:
    report = machine(gpus=gpus).check()
    held = [layer for layer, state in states(report).items() if state == "holds"]
    assert held[:4] == ["pci", "kernel-module", "device-nodes", "user-driver"]
    assert report.verdict.state == "healthy", report.verdict
    driver = next(layer for layer in report.layers if layer.layer == "user-driver")
    assert f"sees {gpus} GPU" in driver.why
    assert sum(fact["type"] == "GpuState" for fact in report.facts) == gpus


@pytest.mark.parametrize(("scenario", "root"), [
    ("init 18", "driver-library-mismatch"),
    ("init 9", "driver-not-loaded"),
    ("init 4", "gpu-access-not-permitted"),
    ("cuInit 803", "libcuda-kernel-mismatch"),
    ("cuInit 804", "forward-compat-unsupported"),
    ("cuInit 100", "no-cuda-device"),
    ("cuInit 999", "cuda-init-failed"),
    ("cuInit 802", "fabric-not-ready"),
    ("cuInit 34", "stub-libcuda"),
    ("cuInit 805", "mps-no-server"),
    ("cuInit 101", "cuda-init-failed"),
    ("cuInit 1", "cuda-init-failed"),
    ("init 255", "nvml-fails"),
    ("answer.0 16", "smi-reset-required"),
    ("answer.0 999", "gpu-error-cells"),
    ("remap-failed.0 1", "gpu-remap-failed"),
    ("recovery.0 1", "gpu-recovery-action"),
    ("sram-exceeded.0 1", "gpu-sram-threshold"),
    ("fabric 2", "fabric-state-incomplete"),
])  # fmt: skip
def test_an_answer_of_the_driver_is_the_root_cause(machine: Machine, scenario: str, root: str) -> None:
    report = machine(scenario).check()
    assert report.root_cause == root, (report.root_cause, ids(report))
    assert report.verdict.state == "failed"


@pytest.mark.parametrize(("scenario", "expected"), [
    ("remap-pending.0 1\nremap-uncorrectable.0 1", "gpu-remap-pending"),
    ("uncorrected.0 3", "gpu-uncorrected-errors"),
    ("reasons.0 0x40\ntemperature.0 91\nbusy.0 99\nsm-clock.0 900", "gpu-thermal-slowdown"),
    ("reasons.0 0x80\nbusy.0 99", "gpu-power-brake"),
    ("compute-mode 2", "gpu-compute-prohibited"),
    ("fabric 3\nfabric-health 2", "gpu-fabric-unhealthy"),
    ("nvlinks 18\nnvlink-down 5", "nvlink-links-inactive"),
])  # fmt: skip
def test_what_nvml_shows_of_the_board_is_judged_as_from_nvidia_smi(
    machine: Machine, scenario: str, expected: str
) -> None:
    report = machine(scenario).check()
    assert report.root_cause == expected, (report.root_cause, ids(report))
    assert report.verdict.state == "degraded"


def test_one_lost_gpu_of_two_is_named(machine: Machine) -> None:
    report = machine("answer.1 15", gpus=2).check()
    assert report.root_cause == "gpu-off-bus"
    assert report.root is not None and "02:00" in report.root.title + report.root.evidence[0].text
    assert "GPU is lost" in report.root.evidence[0].text


def test_a_handle_that_gives_unknown_error_is_a_fault_of_that_gpu(machine: Machine) -> None:
    report = machine("handle.1 999", gpus=2).check()
    assert report.root is not None and report.root.severity == "error"
    assert "GPU1" in report.root.evidence[0].text


def test_unknown_error_at_the_start_in_a_container_is_lost_access(machine: Machine) -> None:
    tree = machine("init 999")
    tree.container()
    report = tree.check()
    assert report.root_cause == "container-lost-gpu-access"
    assert states(report)["device-nodes"] == "broken"


def test_mig_instances_are_read(machine: Machine) -> None:
    report = machine("mig 1\nmig-instances 2").check()
    assert "gpu-mig-slices" in ids(report)


def test_mig_without_an_instance_leaves_cuda_without_a_device(machine: Machine) -> None:
    report = machine("mig 1\nmig-instances 0\ncuInit 100").check()
    assert "gpu-mig-without-instances" in ids(report)


def test_who_holds_the_memory_is_told(machine: Machine) -> None:
    report = machine("process.0 4711\nprocess-used.0 70000\nused.0 70600\nprocess-name /opt/vllm/bin/python3").check()
    held = next(f for f in report.findings if f.id == "gpu-memory-held-idle")
    assert "4711" in held.cause


@pytest.mark.parametrize(("scenario", "expected"), [
    ("nvlinks 18", "nvlink-up"),
    ("nvlinks 18\nnvlink-speed 0", "p2p-supported"),
    ("nvlinks 4\nnvlinks-inactive 1\nname NVIDIA RTX A6000", "nvlink-no-bridge"),
])  # fmt: skip
def test_links_in_order_are_noted(machine: Machine, scenario: str, expected: str) -> None:
    report = machine(scenario, gpus=2).check()
    assert report.verdict.state == "healthy" and expected in ids(report), ids(report)


def test_memory_without_a_process_is_joined_with_who_holds_the_device(machine: Machine) -> None:
    tree = machine("used.0 70600")
    tree.link("/proc/4711/fd/3", "/dev/nvidia0")
    tree.file("/proc/4711/status", "Name:\tEngineCore\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n")
    tree.file("/proc/4711/cgroup", f"0::/system.slice/docker-{'ab' * 32}.scope\n")
    holders = next(f for f in tree.check().findings if f.id == "gpu-device-holders")
    assert "EngineCore (process 4711, container abababababab)" in holders.cause and "68.95 GiB" in holders.cause


def test_a_driver_call_that_hangs_is_a_finding_and_kills_nothing_else(machine: Machine) -> None:
    report = machine("hang cuInit", timeout_s=1.0).check()
    assert report.root_cause == "driver-call-hangs"
    assert report.root is not None and "cuInit" in report.root.title
    assert states(report)["pci"] == "holds" and states(report)["user-driver"] == "broken"


def test_a_library_that_crashes_is_a_finding(machine: Machine) -> None:
    report = machine("crash cuInit").check()
    assert report.root_cause == "driver-library-crashed"
    assert report.root is not None and "SIGSEGV" in report.root.title
