"""Other kernel lines: lost GPUs, failed starts, PCIe errors, the OOM-killer, refusals of the module, driver parts."""

from __future__ import annotations

from types import ModuleType

import pytest

from loadpath.core.facts.base import Fact
from loadpath.core.facts.kernel import (
    AdapterInitFailed,
    AerError,
    DkmsModule,
    DriverPart,
    GpuLost,
    GpuRefused,
    OomKill,
    PackagesUpgraded,
    ProcessCrashed,
    SlotLinkDown,
)
from loadpath.core.text import Capture
from loadpath.core.units import KIB
from loadpath.intake.clean import clean
from loadpath.readers.host import kernel_log, module_refusals, oom_killer, pcie_errors
from loadpath.readers.nvidia import driver_parts, gpu_lost


def read(reader: ModuleType, text: str) -> list[Fact]:
    return list(reader.read(Capture("log", "paste", tuple(clean(text.encode())))))


@pytest.mark.parametrize(
    ("line", "pci", "index"),
    [
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", "0000:29:00", None),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "0000:0b:00", None),
        ("Unable to determine the device handle for GPU0000:3D:00.0: Unknown Error", "0000:3d:00", None),
        (
            "Unable to determine the device handle for GPU1: 0000:0A:00.0: GPU is lost.  Reboot the system",
            "0000:0a:00",
            1,
        ),
        ("Unable to determine the device handle for gpu 0000:01:00.0: Not Found", "0000:01:00", None),
        ("failed to get device handle from index: ERROR_GPU_IS_LOST", None, None),
    ],
)
def test_lost_gpu(line: str, pci: str | None, index: int | None) -> None:
    (lost,) = read(gpu_lost, line)
    assert isinstance(lost, GpuLost)
    assert (lost.pci, lost.index) == (pci, index)


def test_lost_gpu_told_over_three_lines() -> None:
    (lost,) = read(gpu_lost, """\
NVRM: The NVIDIA GPU 0000:18:00.0
NVRM: (PCI ID: 10de:2901) installed in this system has
NVRM: fallen off the bus and is not responding to commands.
""")  # fmt: skip
    assert isinstance(lost, GpuLost) and lost.pci == "0000:18:00"


def test_failed_start_of_an_adapter() -> None:
    new, old = read(gpu_lost, """\
NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x24:0x72:1447)
NVRM: RmInitAdapter failed! (0x26:0xffff:1375)
""")  # fmt: skip
    assert isinstance(new, AdapterInitFailed) and (new.pci, new.code) == ("0000:05:00", "0x24:0x72:1447")
    assert isinstance(old, AdapterInitFailed) and old.pci is None


def test_pcie_errors() -> None:
    facts = read(pcie_errors, """\
pcieport 0000:3a:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
pcieport 0000:b0:01.0: pciehp: Slot(7): Link Down
pcieport 0000:b0:01.0: pciehp: Slot(7): Link Down/Up ignored (recovered by DPC)
""")  # fmt: skip
    assert [f.severity for f in facts if isinstance(f, AerError)] == ["fatal", "corrected"]
    assert [f.device for f in facts if isinstance(f, SlotLinkDown)] == ["0000:b0:01"]


def test_one_oom_kill_told_in_four_lines() -> None:
    (kill,) = read(oom_killer, """\
kernel: python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=984
kernel: memory: usage 67108864kB, limit 67108864kB, failcnt 1337
kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods/pod1,task=python3,pid=4321,uid=0
kernel: Memory cgroup out of memory: Killed process 4321 (python3) total-vm:91234567kB, anon-rss:66000000kB, file-rss:4kB, shmem-rss:8kB
kernel: oom_reaper: reaped process 4321 (python3), now anon-rss:0kB
""")  # fmt: skip
    assert isinstance(kill, OomKill)
    assert (kill.pid, kill.name, kill.scope, kill.cgroup) == (4321, "python3", "cgroup", "/kubepods/pod1")
    assert kill.anon_bytes == 66_000_000 * KIB and kill.limit_bytes == 67_108_864 * KIB
    assert "Killed process" in kill.text, "the line with the figures is the evidence"


def test_old_wording_of_the_oom_killer() -> None:
    (kill,) = read(oom_killer, "Out of memory: Kill process 456 (python) score 50 or sacrifice child")
    assert isinstance(kill, OomKill) and (kill.pid, kill.scope) == (456, "host")


def test_crash_of_a_process() -> None:
    (crash,) = read(
        oom_killer, "python3[77]: segfault at 7f79 ip 00007f7c sp 00007f7d error 4 in libnccl.so.2[7f7c+d3d]"
    )
    assert isinstance(crash, ProcessCrashed) and (crash.pid, crash.library) == (77, "libnccl.so.2")


@pytest.mark.parametrize(
    ("text", "why", "release", "device_id"),
    [
        ("NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:1db6)\nNVRM: installed in this system is not supported by open\n"
         "NVRM: nvidia.ko because it does not include the required GPU\nNVRM: System Processor (GSP).", "open-module", None,
         "1db6"),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)\n"
         "NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "proprietary-module", None, "2b85"),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2684)\nNVRM: installed in this system is not supported by the\n"
         "NVRM: NVIDIA 515.105.01 driver release.", "not-supported", "515.105.01", "2684"),
        ("NVRM: The NVIDIA GeForce GT 710 GPU installed in this system is\n"
         "NVRM:  supported through the NVIDIA 470.xx Legacy drivers. Please", "legacy", None, None),
    ],
)  # fmt: skip
def test_refusal_of_a_gpu(text: str, why: str, release: str | None, device_id: str | None) -> None:
    (refused,) = read(module_refusals, text)
    assert isinstance(refused, GpuRefused)
    assert (refused.why, refused.release, refused.device_id) == (why, release, device_id)


def test_gpu_held_by_another_driver() -> None:
    counted, bound = read(module_refusals, """\
NVRM: The NVIDIA probe routine was not called for 3 device(s).
NVRM: GPU 0000:01:00.0 is already bound to vfio-pci.
""")  # fmt: skip
    assert isinstance(counted, GpuRefused) and (counted.count, counted.owner) == (3, None)
    assert isinstance(bound, GpuRefused) and bound.owner == "vfio-pci"


def test_parts_of_the_driver() -> None:
    facts = read(driver_parts, """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.90.05  Release Build
NVRM: API mismatch: the client has the version 535.54.03, but#012NVRM: this kernel module has the version 530.30.02.
NVML library version: 570.124
ii  libnvidia-compute-525:amd64   525.85.12-0ubuntu1  amd64  NVIDIA libcompute package
Commandline: /usr/bin/unattended-upgrade
Upgrade: libc6:amd64 (2.35-1, 2.35-2), libnvidia-compute-460:amd64 (460.56-0ubuntu0.20.04.1, 460.73.01-0ubuntu0.20.04.1)
nvidia/535.113.01, 6.2.0-34-generic, x86_64: installed
""")  # fmt: skip
    parts = {(p.side, p.version) for p in facts if isinstance(p, DriverPart)}
    assert parts == {
        ("module", "520.56.06"), ("module", "550.90.05"), ("module", "530.30.02"), ("library", "535.54.03"),
        ("library", "570.124"), ("package", "525.85.12"), ("package", "460.73.01"),
    }  # fmt: skip
    assert [p.flavour for p in facts if isinstance(p, DriverPart) and p.version == "550.90.05"] == ["open"]
    assert [p.previous for p in facts if isinstance(p, DriverPart) and p.previous] == ["460.56"]
    assert [p.by for p in facts if isinstance(p, PackagesUpgraded)] == ["unattended-upgrades"]
    assert [(m.version, m.kernel) for m in facts if isinstance(m, DkmsModule)] == [("535.113.01", "6.2.0-34-generic")]


def test_a_stretch_of_kernel_log_is_one_capture() -> None:
    lines = clean(b"""\
[   10.735323] nvidia: loading out-of-tree module taints kernel.
[   10.901234] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)
               NVRM: installed in this system requires use of the NVIDIA open kernel modules.

[   11.000123] usb 1-1: new high-speed USB device
INFO 11-30 03:24:00 [core.py:58] Initializing a V1 LLM engine
""")
    end = kernel_log.extent(lines, 0)
    assert "high-speed USB" in lines[end - 1].text and "LLM engine" in lines[end].text
    assert kernel_log.extent(lines, end) == end
