"""docker info, daemon.json, docker inspect, nvidia-container-cli, nvidia-ctk."""

from __future__ import annotations

from conftest import shared_file
from loadpath.core.facts.container import CdiDevicesListed, ContainerCliInfo, ContainerState, RuntimesKnown
from loadpath.core.facts.engine import Setting
from loadpath.core.facts.runtime import RuntimeBinary
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.containers import (
    daemon_json,
    docker_info,
    docker_inspect,
    docker_runtimes,
    nvidia_container_cli,
    nvidia_ctk,
)


def _capture(text: str) -> Capture:
    return Capture("log", "paste", tuple(clean(text.encode())))


def test_docker_info_of_our_own_daemon() -> None:
    text = shared_file("captures", "containers", "docker-info.txt").read_text()
    (known,) = docker_runtimes.read(_capture(text))
    assert known.names[0] == "runc" and known.default == "runc"
    assert (known.engine_version, known.cgroup_driver, known.cgroup_version) == ("20.10.24+dfsg1", "cgroupfs", 1)
    lines = clean(text.encode())
    assert docker_info.extent(lines, 0) == len(lines)


def test_a_line_of_docker_info_by_itself() -> None:
    (known,) = docker_runtimes.read(
        _capture(" Runtimes: io.containerd.runc.v2 nvidia runc\n Default Runtime: nvidia\n")
    )
    assert "nvidia" in known.names and known.default == "nvidia"


def test_daemon_json_after_its_cat() -> None:
    text = (
        "$ cat /etc/docker/daemon.json\n{\n"
        '    "default-runtime": "nvidia",\n    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},\n'
        '    "exec-opts": ["native.cgroupdriver=systemd"], "features": {"cdi": true}\n}\nnext\n'
    )
    lines = clean(text.encode())
    end = daemon_json.extent(lines, 0)
    assert end == len(lines) - 1
    known, runtime = daemon_json.read(Capture("daemon-json", "paste", tuple(lines[:end])))
    assert isinstance(known, RuntimesKnown)
    assert (known.names, known.default, known.cgroup_driver, known.cdi) == (("nvidia",), "nvidia", "systemd", True)
    assert isinstance(runtime, RuntimeBinary)
    assert (runtime.name, runtime.binary, runtime.path) == (
        "nvidia",
        "nvidia-container-runtime",
        "/etc/docker/daemon.json",
    )


def test_inspect_says_how_it_ended_and_what_it_was_given() -> None:
    text = (
        '[{"State": {"Status": "exited", "OOMKilled": false, "ExitCode": 137, "Error": ""},\n'
        '"HostConfig": {"ShmSize": 67108864, "IpcMode": "private", "Memory": 0, "Runtime": "runc", "DeviceRequests": null}}]\n'
    )
    found = list(docker_inspect.read(_capture(text)))
    state = next(f for f in found if isinstance(f, ContainerState))
    assert (state.exit_code, state.oom_killed) == (137, False)
    settings = {s.name: s.value for s in found if isinstance(s, Setting)}
    assert settings == {
        "docker:shm-size": "64 MiB", "docker:ipc": "private", "docker:runtime": "runc", "docker:device-requests": "none",
    }  # fmt: skip


def test_container_cli_with_and_without_a_version() -> None:
    for name, driver in (
        ("nvidia-container-cli-info-gtx1070.txt", "525.105.17"),
        ("nvidia-container-cli-info-xavier-null.txt", None),
    ):
        lines = clean(shared_file("captures", "nvidia", "container", name).read_bytes())
        start = next(i for i, line in enumerate(lines) if line.text.startswith("NVRM"))
        end = nvidia_container_cli.extent(lines, start)
        (info,) = nvidia_container_cli.read(Capture("nvidia-container-cli", name, tuple(lines[start:end])))
        assert isinstance(info, ContainerCliInfo)
        assert info.driver_version == driver and len(info.devices) == 1


def test_listed_cdi_devices() -> None:
    (listed,) = nvidia_ctk.read(_capture("INFO[0000] Found 2 CDI devices\nnvidia.com/gpu=0\nnvidia.com/gpu=all\n"))
    assert isinstance(listed, CdiDevicesListed) and listed.names == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
