"""Layer 5 on machines whose container stack is broken in one place: `check` says what would fail, for whom, and why."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from loadpath.core.report import Finding, Report
from machines import DRIVER, Tree

Machine = Callable[..., Tree]
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OLD = "550.54.15"


def spec(version: str = DRIVER, kind: str = "nvidia.com/gpu") -> str:
    return (
        f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n"
        "- name: '0'\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n"
        "- name: all\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n"
        "containerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n  hooks:\n  - hookName: createContainer\n"
        "    path: /usr/bin/nvidia-cdi-hook\n    args: [nvidia-cdi-hook, update-ldcache]\n  mounts:\n"
        f"  - hostPath: {LIBRARIES}/libcuda.so.{version}\n    containerPath: {LIBRARIES}/libcuda.so.{version}\n"
    )


def with_cdi(tree: Tree, version: str = DRIVER, path: str = "/etc/cdi/nvidia.yaml") -> Tree:
    tree.file(path, spec(version))
    tree.file("/usr/bin/nvidia-cdi-hook")
    return tree


def with_docker(tree: Tree, info: str, version: str = "28.2.2") -> Tree:
    tree.file("/usr/bin/docker")
    tree.file("/usr/bin/dockerd")
    tree.command("docker info", f"Client:\n Version: {version}\n\nServer:\n Server Version: {version}\n{info}")
    return tree


def named(report: Report, name: str) -> Finding:
    found = [f for f in report.findings if f.id == name]
    assert found, f"{name} is not among {[f.id for f in report.findings]}"
    return found[0]


def state(report: Report, layer: str = "container-runtime") -> str:
    return next(one.state for one in report.layers if one.layer == layer)


def test_a_specification_whose_paths_exist_proves_the_layer(machine: Machine) -> None:
    report = with_cdi(machine()).check()
    assert state(report) == "holds"
    why = next(one.why for one in report.layers if one.layer == "container-runtime")
    assert "2 devices" in why
    assert DRIVER in why
    assert not [f.id for f in report.findings if "cdi" in f.id]


def test_a_stale_specification_stops_podman(machine: Machine) -> None:
    tree = with_cdi(machine(), OLD)
    tree.file("/usr/bin/podman")
    report = tree.check()
    found = named(report, "cdi-spec-paths-missing")
    assert report.root_cause == "cdi-spec-paths-missing"
    assert state(report) == "broken"
    assert f"libcuda.so.{OLD}" in found.cause
    assert f"made for driver {OLD}; {DRIVER} is loaded" in found.cause
    assert "Podman" in found.cause
    assert found.remedies[0].command == "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


def test_a_stale_specification_that_nobody_reads_is_no_error(machine: Machine) -> None:
    report = with_docker(with_cdi(machine(), OLD), " Runtimes: nvidia runc\n Default Runtime: runc\n").check()
    assert named(report, "cdi-spec-paths-missing").severity == "warning"


def test_a_stale_specification_behind_a_fresh_one_does_no_harm(machine: Machine) -> None:
    tree = with_cdi(with_cdi(machine(), OLD), DRIVER, "/var/run/cdi/nvidia.yaml")
    tree.file("/usr/bin/podman")
    found = named(tree.check(), "cdi-spec-paths-missing")
    assert found.severity == "info"
    assert "/var/run/cdi/nvidia.yaml defines the same devices and comes first" in found.cause


def test_two_specifications_of_one_folder_are_void(machine: Machine) -> None:
    tree = with_cdi(with_cdi(machine()), path="/etc/cdi/copy.yaml")
    tree.file("/usr/bin/podman")
    found = named(tree.check(), "cdi-specs-conflict")
    assert found.severity == "error"
    assert "nvidia.com/gpu=0" in found.cause


def test_a_runtime_whose_program_is_gone(machine: Machine) -> None:
    tree = machine()
    tree.file(
        "/etc/containerd/config.toml",
        'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"\n'
        '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]\n'
        'BinaryName = "/usr/bin/nvidia-container-runtime"\n',
    )
    found = named(tree.check(), "container-runtime-program-gone")
    assert found.severity == "error"
    assert "It is the default runtime" in found.cause
    tree.file("/usr/bin/nvidia-container-runtime")
    assert state(tree.check()) == "holds"


def test_docker_without_the_toolkit(machine: Machine) -> None:
    report = with_docker(machine(), " Runtimes: runc\n Default Runtime: runc\n").check()
    found = named(report, "container-toolkit-not-installed")
    assert found.severity == "warning", "whoever runs engines outside containers needs none"
    assert "Docker" in found.title


def test_a_client_without_a_daemon_is_only_noted(machine: Machine) -> None:
    tree = machine()
    tree.file("/usr/bin/docker")
    tree.command("docker info", b'#loadpath-sample {"name":"docker-info","kind":"docker-info","outcome":"failed","status":1}\n'
                 b"Client:\n\nServer:\nCannot connect to the Docker daemon at unix:///run/docker.sock.\n")  # fmt: skip
    found = named(tree.check(), "container-daemon-silent")
    assert found.severity == "info"


def test_toolkit_settings_that_cannot_work(machine: Machine) -> None:
    tree = with_docker(machine(), " Runtimes: nvidia runc\n Default Runtime: runc\n")
    tree.file("/usr/bin/nvidia-ctk")
    tree.file(
        "/etc/nvidia-container-runtime/config.toml",
        '[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig.real"\nno-cgroups = true\n',
    )
    report = tree.check()
    assert "/sbin/ldconfig.real" in named(report, "toolkit-ldconfig-missing").title
    assert named(report, "toolkit-no-cgroups").severity == "warning"


def test_a_configuration_that_is_no_toml_is_named_with_its_line(machine: Machine) -> None:
    tree = machine()
    tree.file("/etc/containerd/config.toml", "version = 2\n[plugins\n[debug]\n")
    found = named(tree.check(), "container-configuration-unreadable")
    assert "/etc/containerd/config.toml" in found.title
    assert "line" in found.cause


def test_docker_with_systemd_cgroups_can_lose_the_gpu(machine: Machine) -> None:
    tree = with_docker(machine(), " Cgroup Driver: systemd\n Runtimes: nvidia runc\n Default Runtime: runc\n")
    assert named(tree.check(), "container-gpu-access-fragile").certainty == "possible"


def test_switches_without_fabric_manager(machine: Machine) -> None:
    tree = machine("cuInit 802")
    for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
        tree.file(f"/sys/bus/pci/devices/0000:a1:00.0/{name}", text)
    report = tree.check()
    found = named(report, "fabric-manager-not-running")
    assert report.root_cause == found.id
    assert "not installed" in found.cause
    assert found.remedies[0].command == f"sudo apt-get install nvidia-fabricmanager-{DRIVER.split('.')[0]}"


def test_a_node_without_device_plugin(machine: Machine) -> None:
    tree = machine()
    tree.file("/var/lib/kubelet/device-plugins/kubelet.sock")
    tree.file(
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps({"Data": {"RegisteredDevices": {}}})
    )
    assert named(tree.check(), "device-plugin-missing").severity == "warning"
    tree.file("/var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    tree.file("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
              json.dumps({"Data": {"RegisteredDevices": {"nvidia.com/gpu": []}}}))  # fmt: skip
    assert named(tree.check(), "device-plugin-without-devices").severity == "error"


@pytest.mark.parametrize(("given", "left_out"), [("compute", "libnvidia-ml.so.1"), ("utility", "libcuda.so.1")])
def test_a_container_without_a_driver_capability(machine: Machine, given: str, left_out: str) -> None:
    tree = machine()
    tree.container()
    tree.environ["NVIDIA_DRIVER_CAPABILITIES"] = given
    stem = left_out.removesuffix(".1")
    tree.remove(f"{LIBRARIES}/{left_out}")
    tree.remove(f"{LIBRARIES}/{stem}.{DRIVER}")
    if "cuda" in left_out:
        tree.command(
            "cuda_child", "libcuda: none (libcuda.so.1: cannot open shared object file: No such file or directory)\n"
        )
    else:
        tree.command("nvml_child", "Failed to initialize NVML: NVML Shared Library Not Found\n")
    report = tree.check()
    assert report.root_cause == "driver-capability-missing"
    assert left_out in named(report, "driver-capability-missing").cause


def test_a_runtime_of_docker_by_its_bare_name(machine: Machine) -> None:
    tree = machine()
    tree.file("/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}')
    found = named(tree.check(), "container-runtime-program-gone")
    assert found.title == "Docker is configured to use `nvidia-container-runtime`, which does not exist"
    assert "/etc/docker/daemon.json" in found.cause
    tree.file("/usr/bin/nvidia-container-runtime")
    assert not [f for f in tree.check().findings if f.id == "container-runtime-program-gone"]


def test_fabric_manager_of_another_version_than_the_driver(machine: Machine) -> None:
    tree = machine()
    for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
        tree.file(f"/sys/bus/pci/devices/0000:a1:00.0/{name}", text)
    tree.file("/usr/bin/nv-fabricmanager")
    tree.command("nv-fabricmanager --version", f"Fabric Manager version is : {OLD}\n")
    found = named(tree.check(), "fabric-manager-version")
    assert OLD in found.title
    assert DRIVER in found.title
