"""Configuration of container engines and of NVIDIA's toolkit, and the kernel's own figures, as facts."""

from __future__ import annotations

from collections.abc import Iterable

from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import RuntimesKnown
from loadpath.core.facts.host import HostMemory
from loadpath.core.facts.runtime import (
    CgroupLimits,
    ConfigBroken,
    HostSetting,
    HugePages,
    InsideSeen,
    RuntimeBinary,
    ToolkitSetting,
)
from loadpath.core.text import Capture, Line
from loadpath.readers.containers import inside, podman_info, runtime_toml, toolkit_config
from loadpath.readers.host import host_settings, meminfo
from loadpath.reading.service import read_bytes

KIB = 1 << 10


def capture(text: str) -> Capture:
    return Capture("any", "sample", tuple(Line(i, line, line) for i, line in enumerate(text.splitlines(), 1)))


def of(kind: type[Fact], facts: Iterable[Fact]) -> list[Fact]:
    return [fact for fact in facts if isinstance(fact, kind)]


CONTAINERD_2 = """# /etc/containerd/config.toml
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
"""
CRIO = """# /etc/crio/crio.conf.d/99-nvidia.toml
[crio.runtime]
default_runtime = "nvidia"
cgroup_manager = "systemd"
[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/bin/nvidia-container-runtime"
"""


def test_containerd_registers_a_runtime() -> None:
    facts = list(runtime_toml.read(capture(CONTAINERD_2)))
    known = of(RuntimesKnown, facts)[0]
    assert isinstance(known, RuntimesKnown)
    assert (known.names, known.default, known.cdi, known.cgroup_driver) == (("runc", "nvidia"), "runc", True, "systemd")
    binary = of(RuntimeBinary, facts)[0]
    assert isinstance(binary, RuntimeBinary)
    assert (binary.engine, binary.name, binary.path) == ("containerd", "nvidia", "/etc/containerd/config.toml")
    assert "BinaryName" in binary.text, "its evidence is the line itself"


def test_crio_registers_a_runtime() -> None:
    facts = list(runtime_toml.read(capture(CRIO)))
    known = of(RuntimesKnown, facts)[0]
    assert isinstance(known, RuntimesKnown)
    assert (known.default, known.basis) == ("nvidia", "CRI-O configuration")
    assert [b.binary for b in facts if isinstance(b, RuntimeBinary)] == ["/usr/bin/nvidia-container-runtime"]


def test_a_containerd_without_runtimes_says_nothing() -> None:
    assert list(runtime_toml.read(capture("# /etc/containerd/config.toml\ndisabled_plugins = []\n"))) == []


def test_broken_toml_is_a_fact() -> None:
    broken = next(iter(runtime_toml.read(capture("# /etc/crio/crio.conf\n[crio\nx = 1\n"))))
    assert isinstance(broken, ConfigBroken)
    assert broken.path == "/etc/crio/crio.conf"


def test_settings_of_the_toolkit() -> None:
    text = '# /etc/x.toml\ndisable-require = false\n[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig.real"\n'
    found = {f.name: f.value for f in toolkit_config.read(capture(text)) if isinstance(f, ToolkitSetting)}
    assert found == {"disable-require": "false", "nvidia-container-cli.ldconfig": "@/sbin/ldconfig.real"}


PODMAN = """host:
  cgroupManager: systemd
  cgroupVersion: v2
  memTotal: 67000000000
  ociRuntime:
    name: crun
    path: /usr/bin/crun
  security:
    rootless: true
version:
  Version: 4.9.4
"""


def test_podman_info_pasted_between_other_words() -> None:
    report = read_bytes([("paste", f"I ran podman info:\n\n```\n{PODMAN}```\nand then it failed\n".encode())])
    known = next(fact for fact in report.facts if fact["type"] == "RuntimesKnown")
    assert (known["default"], known["rootless"], known["engine_version"]) == ("crun", True, "4.9.4")


def test_podman_info_cut_in_the_middle_breaks_nothing() -> None:
    assert list(podman_info.read(capture(PODMAN.replace("name: crun", "name: [")))) == []


def test_meminfo_pasted() -> None:
    text = (
        "MemTotal:       263832344 kB\nMemFree:  100 kB\nMemAvailable:   131916172 kB\n"
        "HugePages_Total:    1024\nHugePages_Free:  512\nHugepagesize:       2048 kB\n"
    )
    facts = list(meminfo.read(capture(text)))
    memory, pages = of(HostMemory, facts)[0], of(HugePages, facts)[0]
    assert isinstance(memory, HostMemory)
    assert isinstance(pages, HugePages)
    assert memory.available_bytes == 131916172 * KIB
    assert (pages.total, pages.free, pages.page_bytes) == (1024, 512, 2048 * KIB)
    assert any(c.kind == "meminfo" for c in read_bytes([("paste", text.encode())]).captures)


def test_settings_and_limits_of_a_host() -> None:
    text = 'vm.overcommit_memory: 2\ncgroup: {"path": "/sys/fs/cgroup/a", "memory_bytes": 1024, "cpus": 1.5}\ncgroup: {broken\n'
    facts = list(host_settings.read(capture(text)))
    setting, group = facts
    assert isinstance(setting, HostSetting)
    assert isinstance(group, CgroupLimits)
    assert (setting.name, setting.value, group.memory_bytes, group.cpus) == ("vm.overcommit_memory", "2", 1024, 1.5)


def test_a_look_inside() -> None:
    text = (
        "place: container llm\ntool: docker\nasked: \nos: Ubuntu 24.04\ndevice: /dev/nvidia0 opened\ndevice: /dev/nvidiactl refused\n"
        "library: /usr/lib/libcuda.so.1 /usr/lib/libcuda.so.580.95.05\nenv: NVIDIA_VISIBLE_DEVICES=all\n"
        "shm: shm 65536 0 65536 0% /dev/shm\nlimit: Max locked memory         unlimited            unlimited            bytes\n"
        "smi-there: /usr/bin/nvidia-smi\nsmi: Failed to initialize NVML: Unknown Error\npackage: torch 2.9.0+cu130\n"
    )
    seen = next(iter(inside.read(capture(text))))
    assert isinstance(seen, InsideSeen)
    assert seen.devices == {"/dev/nvidia0": True, "/dev/nvidiactl": False}
    assert seen.shm_bytes == 65536 * KIB
    assert seen.memlock_unlimited
    assert seen.smi == ("Failed to initialize NVML: Unknown Error",)
    assert seen.packages == {"torch": "2.9.0+cu130"}
