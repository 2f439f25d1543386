"""Layer 2, the kernel module: loaded or not and of which flavour, built for which kernels, what may refuse it, and what
the kernel itself said (its log)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from loadpath.collect.probe import Machine, Probe, Sample

_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_fs", "gdrdrv",
            "nouveau", "nova_core", "vfio_pci", "nvidia_vgpu_vfio")  # fmt: skip
_PROC = "/proc/driver/nvidia"
_EFI = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULE_FILE = re.compile(r"^nvidia\.ko(?:\.(?:xz|zst|gz))?$")
MOST_KERNELS = 12
KERNEL_LOG_LINES = 4000
# What to keep of a long kernel log: lines of the driver, of the bus, of processes that were killed.
_TELLING = re.compile(
    rb"NVRM|[Nn][Vv][Ii][Dd][Ii][Aa]|nouveau|Xid|AER|pcie|PCIe|DPC|BAR \d|oom|Out of memory|Killed process|lockdown"
    rb"|Loading of|module verification|IOMMU|DMAR|vfio|hung task|blocked for more|segfault|nvlink|nvswitch|mce:|MCE"
)


def gather_module(machine: Machine) -> Iterator[Sample]:
    running = machine.text("/proc/sys/kernel/osrelease") or ""
    lines = [f"running-kernel: {running or 'unknown'}"]
    lines += _loaded(machine)
    lines += _on_disk(machine, running)
    lines += _refusers(machine)
    command = "cat /proc/modules /sys/module/nvidia/version; find /lib/modules -name 'nvidia.ko*'; mokutil --sb-state"
    yield machine.told(lines, name="kernel-module", kind="kernel-module", command=command)


def _loaded(machine: Machine) -> Iterator[str]:
    listed = machine.text("/proc/modules")
    if listed is None:
        yield f"loaded-unknown: /proc/modules {machine.why_unread('/proc/modules')}"
        return
    for line in listed.splitlines():
        words = line.split()
        if len(words) < 3 or words[0] not in _MODULES:
            continue
        name, used_by = words[0], words[3].strip(",-") if len(words) > 3 else ""
        version = machine.text(f"/sys/module/{name}/version")
        taint = machine.text(f"/sys/module/{name}/taint")
        parts = [name, f"version={version or '?'}", f"references={words[2]}"]
        if used_by:
            parts.append(f"used-by={used_by}")
        if taint:
            parts.append(f"taint={taint}")
        yield f"loaded: {' '.join(parts)}"
    if machine.exists("/sys/module/nvidia") and "nvidia " not in listed:
        yield "loaded: nvidia version=? built-in"


def _on_disk(machine: Machine, running: str) -> Iterator[str]:
    """Which installed kernels have an NVIDIA module; depmod's list is quicker than a walk and what modprobe reads."""
    kernels = machine.listdir("/lib/modules")
    if not kernels:
        yield "modules-unknown: /lib/modules is empty or not here (usual inside a container)"
        return
    for kernel in sorted(kernels, key=lambda name: name != running)[:MOST_KERNELS]:
        found = _module_files(machine, kernel)
        yield f"module-file: kernel={kernel} {' '.join(found) if found else 'none'}"
    if versions := machine.listdir("/var/lib/dkms/nvidia"):
        for version in versions:
            if version[:1].isdigit():
                built = [k for k in machine.listdir(f"/var/lib/dkms/nvidia/{version}") if k not in ("source", "build")]
                yield f"dkms: nvidia/{version} built-for={','.join(built) or 'none'}"
    if running and not machine.exists(f"/lib/modules/{running}/build"):
        yield f"headers: none for {running} (/lib/modules/{running}/build)"


def _module_files(machine: Machine, kernel: str) -> list[str]:
    here = f"/lib/modules/{kernel}"
    listed = machine.text(f"{here}/modules.dep")
    if listed is not None:
        paths = [line.partition(":")[0] for line in listed.splitlines()]
        found = [path for path in paths if _MODULE_FILE.match(path.rpartition("/")[2])]
        if found:
            return found
    folders = (
        "updates/dkms",
        "extra",
        "updates",
        "kernel/drivers/video",
        "kernel/drivers/video/nvidia",
        "weak-updates",
    )
    return [f"{f}/{n}" for f in folders for n in machine.listdir(f"{here}/{f}") if _MODULE_FILE.match(n)]


def _refusers(machine: Machine) -> Iterator[str]:
    """Secure Boot, signature enforcement and black lists: what can keep a module out."""
    state = machine.read(_EFI, 8)
    if state is not None and len(state) >= 5:
        yield f"secure-boot: {'on' if state[4] == 1 else 'off'}"
    elif machine.exists("/sys/firmware/efi"):
        yield f"secure-boot: unknown ({machine.why_unread(_EFI)})"
    else:
        yield "secure-boot: none (no UEFI in sight)"
    if lockdown := re.search(r"\[(\w+)\]", machine.text("/sys/kernel/security/lockdown") or ""):
        yield f"lockdown: {lockdown[1]}"
    if enforce := machine.text("/sys/module/module/parameters/sig_enforce"):
        yield f"signatures-enforced: {'yes' if enforce == 'Y' else 'no'}"
    for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"):
        for name in machine.listdir(folder):
            for line in (machine.text(f"{folder}/{name}") or "").splitlines():
                if re.match(r"\s*(?:blacklist|options|install)\s+(?:nvidia|nouveau|vfio[-_]pci)", line):
                    yield f"modprobe: {folder}/{name}: {' '.join(line.split())}"
    if sources := re.findall(
        r"\S*(?:nvidia|nouveau|modprobe\.blacklist|vfio|iommu|pci=)\S*", machine.text("/proc/cmdline") or ""
    ):
        yield f"kernel-command-line: {' '.join(sources)}"


def gather_proc(machine: Machine) -> Iterator[Sample]:
    """What the module says of itself: its version, each GPU, its parameters."""
    yield machine.cat(f"{_PROC}/version", name="module-version", kind="proc-driver")
    for slot in machine.listdir(f"{_PROC}/gpus"):
        yield machine.cat(f"{_PROC}/gpus/{slot}/information", name=f"gpu-information-{slot.replace(':', '-')}",
                          kind="proc-driver")  # fmt: skip
    if machine.exists(f"{_PROC}/params"):
        yield machine.cat(f"{_PROC}/params", name="module-parameters", kind="text")


def gather_dkms(machine: Machine) -> Iterator[Sample]:
    """DKMS's own view; only asked where DKMS has anything of NVIDIA."""
    if machine.listdir("/var/lib/dkms/nvidia") or not machine.live:
        yield machine.run(["dkms", "status"], name="dkms-status")


def gather_log(machine: Machine) -> Iterator[Sample]:
    """The kernel log: dmesg, else journald; of a long one the telling lines, none of the newest left out."""
    sample = machine.run(["dmesg"], name="kernel-log", kind="kernel-log")
    if sample.outcome in ("failed", "missing") and machine.live:
        journal = machine.run(["journalctl", "-k", "-b", "--no-pager", "-o", "short-monotonic"], name="kernel-log",
                              kind="kernel-log")  # fmt: skip
        if journal.outcome == "ok" and b"No entries" not in journal.data and journal.data.strip():
            sample = journal
    if sample.outcome == "failed" and b"Operation not permitted" in sample.data:
        sample = msgspec.structs.replace(sample, outcome="denied", data=b"", note="the kernel log needs root here")
    yield _window(sample)


def _window(sample: Sample) -> Sample:
    lines = sample.data.splitlines(keepends=True)
    if len(lines) <= KERNEL_LOG_LINES:
        return sample
    newest = len(lines) - KERNEL_LOG_LINES // 2
    kept = [line for line in lines[:newest] if _TELLING.search(line)][-KERNEL_LOG_LINES // 2 :]
    note = f"{len(kept)} telling lines of the first {newest}, then the newest {len(lines) - newest}"
    return msgspec.structs.replace(sample, data=b"".join((*kept, *lines[newest:])), note=note)


PROBES = (
    Probe("kernel-module", "kernel-module", "kernel-module", gather_module),
    Probe("module-version", "proc-driver", "kernel-module", gather_proc),
    Probe("dkms-status", "text", "kernel-module", gather_dkms),
    Probe("kernel-log", "kernel-log", "kernel-module", gather_log),
)
