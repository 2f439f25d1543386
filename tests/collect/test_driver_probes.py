"""What the probes of layers 1 to 4 write of a made machine."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from loadpath.collect.driver_calls import gather_nvml
from loadpath.collect.holders import gather_holders
from loadpath.collect.kernel_module import gather_log, gather_module
from loadpath.collect.loader import CACHE, cache_entries, candidates
from loadpath.collect.pci import gather
from loadpath.collect.probe import Machine
from loadpath.collect.runner import Ran
from loadpath.collect.user_driver import gather as gather_driver
from loadpath.collect.whereabouts import container_signs
from machines import DRIVER, LIBRARIES, Tree


def text(samples: object) -> str:
    return "".join(sample.data.decode() for sample in samples)  # type: ignore[attr-defined]


def test_the_bus_is_written_as_lspci_writes_it(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path, gpus=1)
    tree.file("/sys/bus/pci/devices/0000:01:00.0/current_link_width", "8")
    told = text(gather(tree.machine()))
    assert told.startswith("PCI bus: 2 devices, 1 of NVIDIA\n")
    assert "0000:01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)" in told
    assert "LnkSta: Speed 32GT/s, Width x8 (downgraded)" in told
    assert "Region 0: Memory at 200000000 (64-bit, prefetchable) [size=4G]" in told
    assert "Kernel driver in use: nvidia" in told


def test_a_machine_without_a_bus_in_sight_says_so(tmp_path: Path) -> None:
    assert next(iter(gather(Machine(tmp_path)))).outcome == "missing"


def test_the_module_is_looked_up_for_every_installed_kernel(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path)
    tree.file("/lib/modules/6.8.0-47-generic/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    tree.file("/etc/modprobe.d/gpu.conf", "blacklist  nouveau\n# blacklist nvidia\n")
    told = text(gather_module(tree.machine()))
    assert "loaded: nvidia version=580.95.05 references=9 used-by=nvidia_uvm" in told
    assert "module-file: kernel=6.8.0-47-generic none" in told
    assert "modprobe: /etc/modprobe.d/gpu.conf: blacklist nouveau" in told and "blacklist nvidia" not in told


def test_a_long_kernel_log_keeps_its_telling_lines_and_its_end(tmp_path: Path) -> None:
    lines = [f"[{n}.0] usb 1-1: nothing of interest" for n in range(9000)]
    lines[17] = "[17.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."
    machine = Machine("/", run=lambda *_: Ran("ok", 0, 0.1, "\n".join(lines).encode()))
    sample = next(iter(gather_log(machine)))
    assert b"Xid" in sample.data and sample.data.endswith(lines[-1].encode())
    assert len(sample.data.splitlines()) < 4100 and "telling lines" in sample.note


def test_a_kernel_log_that_is_forbidden_is_denied_not_empty(tmp_path: Path) -> None:
    said = b"dmesg: read kernel buffer failed: Operation not permitted\n"
    machine = Machine("/", run=lambda argv, *_: Ran("failed", 1, 0.1, said) if argv[0] == "dmesg" else Ran("missing"))
    assert next(iter(gather_log(machine))).outcome == "denied"


def test_who_holds_the_device_files_is_told_with_the_container(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.link("/proc/4711/fd/3", "/dev/nvidia0")
    tree.link("/proc/4711/fd/4", "/dev/null")
    tree.file("/proc/4711/status", "Name:\tpython3\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n")
    tree.file("/proc/4711/cmdline", b"vllm\0serve\0--api-key\0sk-verysecretkey123\0")
    tree.file("/proc/4711/cgroup", f"0::/system.slice/docker-{'ab' * 32}.scope\n")
    tree.file("/proc/12/status", "Name:\tbash\n")
    told = text(gather_holders(tree.machine()))
    assert (
        "holder: pid=4711 uid=1000 state=S devices=nvidia0 container=abababababab name=python3 command=vllm serve"
        in told
    )
    assert "verysecretkey" not in told
    assert "processes: 2 in sight, 0 of them hide" in told


def cache(entries: list[tuple[str, str]]) -> bytes:
    """A loader cache of glibc's present format."""
    strings, table = b"", b""
    start = 20 + 8 + 20 + 24 * len(entries)
    for name, path in entries:
        table += struct.pack("<iIIIQ", 0x0303, start + len(strings), start + len(strings) + len(name) + 1, 0, 0)
        strings += name.encode() + b"\0" + path.encode() + b"\0"
    return b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + b"\0" * 20 + table + strings


def test_the_loader_takes_the_library_path_first_then_its_cache(tmp_path: Path) -> None:
    tree = Tree.healthy(tmp_path)
    tree.file("/opt/extra/libcuda.so.1", "x")
    tree.file("/opt/cached/libcuda.so.1", "x")
    tree.file(CACHE, cache([("libcuda.so.1", "/opt/cached/libcuda.so.1")]))
    tree.environ["LD_LIBRARY_PATH"] = "/nowhere:/opt/extra/"
    found = candidates(tree.machine(), "libcuda.so.1")
    assert found == [
        ("LD_LIBRARY_PATH", "/opt/extra/libcuda.so.1"), ("ld.so.cache", "/opt/cached/libcuda.so.1"),
        ("default", f"{LIBRARIES}/libcuda.so.1"),
    ]  # fmt: skip


def test_a_damaged_cache_gives_what_it_can() -> None:
    whole = cache([("a.so", "/lib/a.so"), ("b.so", "/lib/b.so")])
    for cut in range(len(whole)):
        list(cache_entries(whole[:cut]))
    assert list(cache_entries(whole)) == [("a.so", "/lib/a.so"), ("b.so", "/lib/b.so")]


def test_this_machines_own_cache_reads_as_ldconfig_prints_it() -> None:
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    if not Path(ldconfig).exists() or not Path(CACHE).exists():
        pytest.skip("no loader cache here")
    printed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout
    wanted = {
        line.split(" => ")[1] for line in printed.splitlines() if " => " in line and "64" in line.split(" => ")[0]
    }
    got = {path for _, path in cache_entries(Path(CACHE).read_bytes())}
    assert wanted and wanted <= got


def test_the_drivers_libraries_are_told_with_their_versions(tmp_path: Path) -> None:
    told = text(gather_driver(Tree.healthy(tmp_path).machine()))
    assert (
        f"library: libcuda.so.1 path={LIBRARIES}/libcuda.so.1 real={LIBRARIES}/libcuda.so.{DRIVER} version={DRIVER}"
        in told
    )
    assert told.count(" taken") == 2


def test_without_nvidia_ml_py_nvidia_smi_is_asked(tmp_path: Path) -> None:
    answers = {
        "-m": Ran("failed", 3, 0.1, b"nvidia-ml-py is not installed here\n"),
        "-q": Ran("ok", 0, 0.1, b"==NVSMI LOG==\n"),
    }
    machine = Machine("/", run=lambda argv, *_: answers[argv[1]])
    sample = next(iter(gather_nvml(machine)))
    assert (sample.kind, sample.data) == ("nvidia-smi-q", b"==NVSMI LOG==\n")


@pytest.mark.parametrize(("path", "content"), [
    ("/.dockerenv", ""), ("/run/.containerenv", ""), ("/proc/1/cgroup", "0::/kubepods.slice/pod1\n"),
    ("/proc/1/mounts", "overlay / overlay rw 0 0\n"),
])  # fmt: skip
def test_signs_of_a_container(tmp_path: Path, path: str, content: str) -> None:
    tree = Tree(tmp_path)
    assert container_signs(tree.machine()) == []
    tree.file(path, content)
    assert container_signs(tree.machine())


def test_a_live_system_on_an_overlay_is_no_container(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/proc/1/mounts", "overlay / overlay rw 0 0\n")
    tree.file("/proc/1/comm", "systemd\n")
    assert container_signs(tree.machine()) == []
