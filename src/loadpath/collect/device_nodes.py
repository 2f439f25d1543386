"""Layer 3, the device files: which are there, whether this user may open them, and which processes hold them.

Opening is tried in a child process: it can hang where the driver does, and only opening shows that a container's device
cgroup forbids what the file's mode allows. In a saved machine a device file is a text file `c MAJOR MINOR MODE`.
"""

from __future__ import annotations

import re
import stat
import sys
import time
from collections.abc import Iterator

from loadpath.collect.holders import gather_holders
from loadpath.collect.probe import Machine, Probe, Sample

_NODES = re.compile(r"^nvidia(?:\d+|ctl|-uvm|-uvm-tools|-modeset|-nvswitch\d+|-nvswitchctl|-nvlink)$")
_FOLDERS = ("nvidia-caps", "nvidia-caps-imex-channels")
_MAJORS = re.compile(r"^\s*(\d+)\s+(nvidia\S*|nvswitch\S*)$", re.MULTILINE)
MOST_CAPS = 40
LISTING = "ls -l /dev/nvidia* /dev/nvidia-caps"


def paths(machine: Machine) -> list[str]:
    """Every device file of NVIDIA's driver."""
    found = [f"/dev/{name}" for name in machine.listdir("/dev") if _NODES.match(name)]
    for folder in _FOLDERS:
        found += [f"/dev/{folder}/{name}" for name in machine.listdir(f"/dev/{folder}")[:MOST_CAPS]]
    return found


def gather_nodes(machine: Machine) -> Iterator[Sample]:
    """The listing, in the form of `ls -l`."""
    found = paths(machine) or [path for path in ("/dev/dxg",) if machine.exists(path)]  # WSL has only that one
    if not machine.listdir("/dev"):
        note = "there is no /dev in this tree"
        yield machine.told((), name="device-nodes", kind="device-nodes", command=LISTING, outcome="not-run", note=note)
        return
    if not found:
        lines = ["ls: cannot access '/dev/nvidia*': No such file or directory"]
        yield machine.told(lines, name="device-nodes", kind="device-nodes", command=LISTING, outcome="missing")
        return
    lines = [line for path in found if (line := _listed(machine, path))]
    yield machine.told(lines, name="device-nodes", kind="device-nodes", command=LISTING)


def _listed(machine: Machine, path: str) -> str | None:
    if machine.live:
        node = machine.stat(path)
        if node is None or not stat.S_ISCHR(node.st_mode):
            return None
        major, minor = node.st_rdev >> 8 & 0xFFF, (node.st_rdev & 0xFF) | (node.st_rdev >> 12 & 0xFFF00)
        when = time.strftime("%b %e %H:%M", time.gmtime(node.st_ctime))
        return f"{stat.filemode(node.st_mode)} 1 {node.st_uid} {node.st_gid} {major}, {minor} {when} {path}"
    words = (machine.text(path) or "").split()
    if len(words) < 3 or words[0] != "c":
        return None
    mode = stat.filemode(stat.S_IFCHR | int(words[3], 8)) if len(words) > 3 else "crw-rw-rw-"
    return f"{mode} 1 0 0 {words[1]}, {words[2]} Jan  1 00:00 {path}"


def gather_access(machine: Machine) -> Iterator[Sample]:
    """Whether this process may open them, and what the kernel and the cgroup say of their numbers."""
    found = [path for path in paths(machine) if re.search(r"/nvidia(?:\d+|ctl|-uvm)$", path)]
    if found:
        argv = [sys.executable, "-m", "loadpath.collect.open_child", *found]
        yield machine.ask_driver(argv, name="device-access", kind="device-access")
    lines = [f"major: {number} {name}" for number, name in _MAJORS.findall(machine.text("/proc/devices") or "")]
    rules = machine.text("/sys/fs/cgroup/devices/devices.list")
    if rules is not None:
        lines += [f"cgroup-rule: {rule}" for rule in rules.splitlines()]
    elif machine.exists("/sys/fs/cgroup/cgroup.controllers"):
        lines.append("cgroup: version 2 (device rules are a BPF program: only opening tells)")
    if lines:
        yield machine.told(lines, name="device-majors", kind="device-access",
                           command="cat /proc/devices /sys/fs/cgroup/devices/devices.list")  # fmt: skip


PROBES = (
    Probe("device-nodes", "device-nodes", "device-nodes", gather_nodes),
    Probe("device-access", "device-access", "device-nodes", gather_access),
    Probe("device-holders", "device-access", "device-nodes", gather_holders),
)
