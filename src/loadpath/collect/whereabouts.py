"""Where loadpath itself runs: on the host or in a container or pod, as whom, on which kernel. It decides what the other
probes can see at all."""

from __future__ import annotations

import os
from collections.abc import Iterator

from loadpath.collect.probe import Machine, Probe, Sample

_RUNTIMES = ("docker", "containerd", "crio", "cri-o", "libpod", "podman", "kubepods", "lxc", "garden", "nspawn")


def gather(machine: Machine) -> Iterator[Sample]:
    lines = [f"kernel: {machine.text('/proc/sys/kernel/osrelease') or 'unknown'}"]
    if uptime := (machine.text("/proc/uptime") or "").split():
        lines.append(f"uptime: {uptime[0]}")
    if asked := machine.options.get("layers"):
        lines.append(f"asked: {asked}")
    os_name = _os_name(machine)
    if os_name:
        lines.append(f"os: {os_name}")
    if machine.live:
        lines.append(f"user: {'root' if os.geteuid() == 0 else f'uid {os.geteuid()}'}")
        lines.append(f"groups: {' '.join(map(str, sorted(os.getgroups())))}")
    lines += [f"container: {sign}" for sign in container_signs(machine)]
    if virtual := _virtual_machine(machine):
        lines.append(f"virtual-machine: {virtual}")
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        lines.append("pod: KUBERNETES_SERVICE_HOST is set")
    for name in ("pid", "mnt", "user"):
        if link := machine.readlink(f"/proc/self/ns/{name}"):
            lines.append(f"namespace {name}: {link}")
    uid_map = (machine.text("/proc/self/uid_map") or "").split()
    if uid_map and uid_map[:3] != ["0", "0", "4294967295"]:
        lines.append(f"uid-map: {' '.join(uid_map)}")
    yield machine.told(lines, name="whereabouts", kind="whereabouts", command="cat /proc/sys/kernel/osrelease /etc/os-release "
                       "/proc/1/cgroup; ls /.dockerenv /run/.containerenv; id")  # fmt: skip


def _os_name(machine: Machine) -> str:
    for line in (machine.text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return ""


def _virtual_machine(machine: Machine) -> str:
    """What says that this is a virtual machine; "" where nothing does."""
    maker = " ".join(machine.text(f"/sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name")).strip()
    flags = next((x for x in (machine.text("/proc/cpuinfo") or "").splitlines() if x.startswith("flags")), "")
    if " hypervisor" in flags:
        return f"the CPU has the hypervisor flag{f' ({maker})' if maker else ''}"
    return ""


def container_signs(machine: Machine) -> list[str]:
    """What shows that this is a container, in words; none on a host."""
    signs = [f"{path} exists" for path in ("/.dockerenv", "/run/.containerenv") if machine.exists(path)]
    groups = machine.text("/proc/1/cgroup") or ""
    if sign := next((name for name in _RUNTIMES if name in groups), None):
        signs.append(f"the cgroup of process 1 names {sign}")
    if told := machine.environ.get("container"):
        signs.append(f"container={told}")
    mounts = machine.text("/proc/1/mounts") or machine.text("/proc/self/mounts") or ""
    root = next((words[2] for line in mounts.splitlines() if (words := line.split())[1:2] == ["/"]), "")
    # A live system's root is an overlay too, but its first process is an init.
    if root in ("overlay", "fuse-overlayfs") and machine.text("/proc/1/comm") not in ("systemd", "init"):
        signs.append(f"the root file system is {root}")
    return signs


PROBES = (Probe("whereabouts", "whereabouts", "host", gather),)
