"""The small outputs: -L, --version, nvlink, mig, lspci, device files, ubuntu-drivers, /proc, and nvidia-smi that fails."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from conftest import shared_file
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import (
    BoardInformation,
    DeviceNode,
    DriverPackage,
    DriverVersions,
    GpuListed,
    LinkState,
    MigInstance,
    NvlinkStatus,
    PciDevice,
    SmiFailed,
)
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.host import device_nodes, lspci
from loadpath.readers.nvidia import proc_driver, ubuntu_drivers
from loadpath.readers.nvidia_smi import errors as nvidia_smi_errors
from loadpath.readers.nvidia_smi import list as nvidia_smi_list
from loadpath.readers.nvidia_smi import mig as nvidia_smi_mig
from loadpath.readers.nvidia_smi import nvlink as nvidia_smi_nvlink
from loadpath.readers.nvidia_smi import version as nvidia_smi_version


def facts_in(reader: ModuleType, text: str) -> list[Any]:
    """The facts of all blocks of `reader` in `text`."""
    lines = clean(text.encode())
    facts: list[Fact] = []
    i = 0
    while i < len(lines):
        end = reader.extent(lines, i)
        if end > i:
            facts += reader.read(Capture("x", "paste", tuple(lines[i:end])))
        i = max(end, i + 1)
    return facts


def test_list_with_mig_devices() -> None:
    gpu, mig, old, snapshot = facts_in(
        nvidia_smi_list,
        "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-00000001-0000-4000-8000-000000000001)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-00000002-0000-4000-8000-000000000002)\n"
        "  MIG 1g.5gb Device 1: (UUID: MIG-GPU-00000001-0000-4000-8000-000000000001/7/0)\n",
    )
    assert isinstance(gpu, GpuListed) and gpu.index == 3
    assert isinstance(mig, MigInstance) and (mig.profile, mig.index) == ("1g.10gb", 3)
    assert old.gpu_instance == 7 and snapshot.shown == 1


def test_nvlink_is_not_taken_for_a_list() -> None:
    text = (
        "GPU 0: NVIDIA H200 (UUID: GPU-0000)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA H200 (UUID: GPU-0001)\n\t Link 0: 26.562 GB/s\n"
    )
    assert facts_in(nvidia_smi_list, text) == []
    first, second = facts_in(nvidia_smi_nvlink, text)
    assert isinstance(first, NvlinkStatus) and first.links == {0: 26.562, 1: None}
    assert second.links == {0: 26.562}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("status-inactive-rtx2080s", "inactive"),
        ("status-mig-not-supported", "mig"),
        ("status-no-nvlink-l40s", "no-nvlink"),
    ],
)
def test_nvlink_without_figures(name: str, why: str) -> None:
    (status,) = facts_in(nvidia_smi_nvlink, shared_file("captures", "nvidia", "nvlink", f"{name}.txt").read_text())
    assert status.why_none == why


def test_version_of_610() -> None:
    (versions,) = facts_in(
        nvidia_smi_version,
        'NVIDIA-SMI version  : 610.43.02\nNVML version        : 610.43\nDRIVER version      : Deprecated, see "KMD version" instead\n'
        'CUDA version        : Deprecated, see "CUDA UMD version" instead\nKMD version         : 610.43.02\nCUDA UMD version    : 13.3\n',
    )
    assert isinstance(versions, DriverVersions)
    assert (versions.driver, versions.cuda, versions.nvml) == ("610.43.02", "13.3", "610.43")


def test_gpu_instances() -> None:
    found = facts_in(
        nvidia_smi_mig,
        "+-------------------------------------------------------+\n| GPU instances:                                        |\n"
        "| GPU   Name             Profile  Instance   Placement  |\n|=======================================================|\n"
        "|   0  MIG 2g.12gb          5        2          2:2     |\n",
    )
    assert [(m.profile, m.gpu_instance) for m in found] == [("2g.12gb", 2)]


LSPCI = """\
00:02.0 VGA compatible controller: Intel Corporation UHD Graphics (rev 04)
01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2bb1] (rev a1) (prog-if 00 [VGA controller])
\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nouveau
\tKernel modules: nvidiafb, nouveau
02:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev ff)
0000:03:00.0 0302: 10de:2330 (rev a1)
04:00.0 Audio device: NVIDIA Corporation GA102 High Definition Audio Controller (rev a1)
"""


def test_lspci() -> None:
    facts = facts_in(lspci, LSPCI)
    devices = [fact for fact in facts if isinstance(fact, PciDevice)]
    assert [(d.device_id, d.name, d.is_gpu, d.answers) for d in devices] == [
        ("2bb1", None, True, True), (None, "GH100 [H100 PCIe]", True, False), ("2330", None, True, True),
        (None, "GA102 High Definition Audio Controller", False, True),
    ]  # fmt: skip
    assert (devices[0].kernel_driver, devices[0].kernel_modules) == ("nouveau", ("nvidiafb", "nouveau"))
    (link,) = [fact for fact in facts if isinstance(fact, LinkState)]
    assert (link.speed_gts, link.max_speed_gts, link.width, link.max_width, link.generation) == (2.5, 32, 8, 16, 1)


def test_link_lines_without_their_device() -> None:
    (link,) = facts_in(
        lspci,
        "    LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1\n    LnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)\n",
    )
    assert (link.width, link.max_speed_gts, link.bus_id) == (16, 16, None)


def test_device_files() -> None:
    nodes = facts_in(
        device_nodes,
        "crw-rw-rw- 1 root root 195,   0 Sep  3 08:11 /dev/nvidia0\nls: cannot access '/dev/nvidia-uvm': No such file or directory\n\n"
        "/dev/nvidia-caps:\ntotal 0\ncr-------- 1 root root 240, 1 Sep  3 08:11 nvidia-cap1\n",
    )
    assert all(isinstance(node, DeviceNode) for node in nodes)
    assert [(n.path, n.missing) for n in nodes] == [
        ("/dev/nvidia0", False), ("/dev/nvidia-uvm", True), ("/dev/nvidia-caps/nvidia-cap1", False),
    ]  # fmt: skip


def test_ubuntu_drivers() -> None:
    packages = facts_in(
        ubuntu_drivers,
        "== /sys/devices/pci0000:00/0000:01:00.0 ==\nmodalias : pci:v000010DEd00002BB1sv000010DEsd0000204Bbc03sc00i00\n"
        "driver   : nvidia-driver-580-server-open - distro non-free\ndriver   : nvidia-driver-535 - third-party non-free recommended\n"
        "driver   : xserver-xorg-video-nouveau - distro free builtin\n",
    )
    assert all(isinstance(p, DriverPackage) and p.device_id == "2bb1" for p in packages)
    assert [(p.branch, p.server, p.open, p.recommended) for p in packages] == [
        (580, True, True, False), (535, False, False, True), (None, False, False, False),
    ]  # fmt: skip


def test_proc() -> None:
    (version,) = facts_in(
        proc_driver,
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)  Tue\nGCC version:  gcc 13\n",
    )
    assert (version.driver, version.flavour) == ("580.95.05", "open")
    (board,) = facts_in(
        proc_driver,
        "Model: \t\t NVIDIA A10G\nIRQ:   \t\t 42\nVideo BIOS: \t ??.??.??.??.??\n"
        "Bus Location: \t 0000:00:1e.0\nDevice Minor: \t 3\nBlacklisted:\t No\n",
    )
    assert isinstance(board, BoardInformation)
    assert (board.initialised, board.minor, board.excluded) == (False, 3, False)


@pytest.mark.parametrize(
    "line",
    [
        "bash: nvidia-smi: command not found", "zsh: command not found: nvidia-smi", "sh: 1: nvidia-smi: not found",
        "Command 'nvidia-smi' not found, but can be installed with:",
        "'nvidia-smi' is not recognized as an internal or external command,",
    ],
)  # fmt: skip
def test_every_shell_that_does_not_find_nvidia_smi(line: str) -> None:
    (failed,) = nvidia_smi_errors.read(Capture("log", "paste", tuple(clean(line.encode())[:1])))
    assert isinstance(failed, SmiFailed) and failed.how == "command-not-found"
