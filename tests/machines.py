"""Machines for tests: a file tree that looks like one with NVIDIA GPUs, and the stub libraries that play its driver.

`Tree` is what `loadpath check --root` reads. The driver's calls are made for real, against the stubs, and kept in the tree
as saved samples.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadpath.checking.service import check
from loadpath.collect.probe import COMMANDS, Machine, slug
from loadpath.core.report import Report
from loadpath.core.sample import to_bytes

DRIVER = "580.95.05"
KERNEL = "6.8.0-45-generic"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Tree:
    """A machine's files below `root`. `healthy` makes one where everything holds; tests then break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.stubs = Path()
        """Where the stub libraries lie that play its driver."""

    @classmethod
    def healthy(cls, root: Path, gpus: int = 1) -> Tree:
        tree = cls(root)
        tree.file("/proc/sys/kernel/osrelease", KERNEL)
        tree.file("/proc/1/cgroup", "0::/init.scope")
        tree.file("/sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086")
        tree.driver()
        for index in range(gpus):
            tree.gpu(index)
        for name, major, minor in (("nvidiactl", 195, 255), ("nvidia-uvm", 511, 0), ("nvidia-uvm-tools", 511, 1)):
            tree.node(name, major, minor)
        tree.file("/proc/devices", "Character devices:\n195 nvidia-frontend\n511 nvidia-uvm\n")
        for name in ("libcuda.so", "libnvidia-ml.so"):
            tree.file(f"{LIBRARIES}/{name}.{DRIVER}", "x" * 400_000)
            tree.link(f"{LIBRARIES}/{name}.1", f"{name}.{DRIVER}")
        paths = [*(f"/dev/nvidia{index}" for index in range(gpus)), "/dev/nvidia-uvm", "/dev/nvidiactl"]
        tree.command("open_child", "".join(f"open {path}: ok\n" for path in paths))
        return tree

    def file(self, path: str, text: str | bytes = "") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def remove(self, path: str) -> None:
        place = self.root / path.lstrip("/")
        if place.is_dir() and not place.is_symlink():
            for inside in sorted(place.rglob("*"), reverse=True):
                inside.rmdir() if inside.is_dir() and not inside.is_symlink() else inside.unlink()
            place.rmdir()
        else:
            place.unlink()

    def driver(self, version: str = DRIVER, kernel: str = KERNEL) -> None:
        """The loaded kernel module, and its file for one kernel."""
        self.file("/proc/modules", "nvidia_uvm 4943872 0 - Live 0x0\nnvidia 14376960 9 nvidia_uvm, Live 0x0\n")
        self.file("/sys/module/nvidia/version", version)
        self.file(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
        )
        self.file(
            f"/lib/modules/{kernel}/modules.dep", "updates/dkms/nvidia.ko.zst: kernel/drivers/video/backlight.ko\n"
        )
        self.file(f"/lib/modules/{kernel}/build", "")

    def gpu(self, index: int, *, bound: str | None = "nvidia", resource: str = "") -> None:
        """An H100 in slot index + 1 with its device file."""
        here = f"/sys/bus/pci/devices/0000:{index + 1:02x}:00.0"
        window = f"0x000000{2 + index:x}00000000 0x000000{2 + index:x}ffffffff 0x000000000014220c"
        for name, text in (
            ("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200"), ("revision", "0xa1"), ("config", b"\xde\x10\x30\x23"),
            ("max_link_speed", "32.0 GT/s PCIe"), ("current_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16"),
            ("current_link_width", "16"), ("numa_node", "0"), ("power_state", "D0"),
            ("resource", resource or f"{window}\n"), ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n"),
            ("aer_dev_nonfatal", "DLP 0\nTOTAL_ERR_NONFATAL 0\n"), ("aer_dev_fatal", "DLP 0\nTOTAL_ERR_FATAL 0\n"),
        ):  # fmt: skip
            self.file(f"{here}/{name}", text)
        if bound:
            self.link(f"{here}/driver", f"../../../bus/pci/drivers/{bound}")
        if bound == "nvidia":
            self.file(
                f"/proc/driver/nvidia/gpus/0000:{index + 1:02x}:00.0/information",
                f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 130\nGPU UUID: \t GPU-00000000-0000-0000-0000-00000000000{index}\n"
                f"Video BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\nBus Location: \t 0000:{index + 1:02x}:00.0\nDevice Minor: \t {index}\n",
            )
            self.node(f"nvidia{index}", 195, index)

    def node(self, name: str, major: int, minor: int, mode: str = "0666") -> None:
        """A device file, as a saved machine keeps one."""
        self.file(f"/dev/{name}", f"c {major} {minor} {mode}")

    def command(self, command: str, output: str | bytes) -> None:
        """What a command printed (or a whole saved sample): found by the probe that would run it."""
        self.file(f"/{COMMANDS}/{slug(command.split())}", output)

    def container(self) -> None:
        """Let the tree be the inside of a container."""
        self.file("/.dockerenv")
        self.remove("/lib/modules")

    def machine(self) -> Machine:
        return Machine(self.root, environ=self.environ)

    def check(self) -> Report:
        return check(self.machine())


def play(tree: Tree, stubs: Path, scenario: str = "", timeout_s: float = 15.0) -> Tree:
    """Run the children that call NVML and libcuda against the stubs, told to play `scenario`; their samples go to the tree."""
    tree.stubs = stubs
    told = tree.root.parent / f"{tree.root.name}.scenario"
    told.write_text(f"{scenario}\n")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(stubs), "LOADPATH_STUB": str(told)}
    live = Machine("/", environ=environ, timeout_s=timeout_s)
    for child, kind in (("nvml_child", "nvml"), ("cuda_child", "cuda-init")):
        sample = live.run([sys.executable, "-m", f"loadpath.collect.{child}"], kind=kind)
        tree.command(child, to_bytes(sample))
    return tree
