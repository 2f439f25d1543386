"""Facts of the kernel log and of what stands between hardware and driver: Xids, bus errors, the OOM-killer, modules.

A PCI address is as printed, lower case, without the function (`0000:3b:00`), so facts of one GPU can be joined.
Times are the lines' own (`origin.time`, `origin.uptime`). Sizes in bytes.
"""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact


class XidEvent(Fact, frozen=True, kw_only=True):
    """One `NVRM: Xid` line. `pid` and `name` are those that the driver charged with it: often only the victim.

    `gi`: the MIG GPU instance. For 154 `recovery` is the action that the driver now asks for. For NVLink 5 (144 to 150)
    `unit`, `fatal`, `link` and `words` (interrupt info, error status, debug words) are as printed; 74 has the last two.
    """

    pci: str
    code: int
    pid: int | None = None
    name: str | None = None
    gi: int | None = None
    detail: str = ""
    recovery: str | None = None
    unit: str | None = None
    fatal: bool | None = None
    link: int | None = None
    words: tuple[int, ...] = ()
    caused_by: int | None = None
    """The Xid that a 45 names as its cause (`caused by previous Xid 149`)."""


class SxidEvent(Fact, frozen=True, kw_only=True):
    """One `SXid` line of the NVSwitch driver. `switch`: its number; `fatal` as the line says (None: only a detail)."""

    pci: str
    code: int
    switch: int | None = None
    fatal: bool | None = None
    link: int | None = None
    detail: str = ""


class GpuLost(Fact, frozen=True, kw_only=True):
    """A GPU that no longer answers, told without an Xid: `fallen off the bus`, `GPU is lost`, no handle for it."""

    pci: str | None = None
    index: int | None = None
    said_by: Literal["kernel", "nvml"] = "kernel"
    words: str = ""


class AdapterInitFailed(Fact, frozen=True, kw_only=True):
    """`RmInitAdapter failed!`: the module found the GPU and could not start it. `code` is its triple as printed."""

    pci: str | None
    code: str


class AerError(Fact, frozen=True, kw_only=True):
    """A PCIe error that the kernel reports. `device` is who reports it (often the root port)."""

    device: str
    severity: Literal["corrected", "nonfatal", "fatal"]
    layer: str = ""


class SlotLinkDown(Fact, frozen=True, kw_only=True):
    """A PCIe slot lost its link or its card (`pciehp`, `DPC`)."""

    device: str
    what: str


class OomKill(Fact, frozen=True, kw_only=True):
    """The kernel's OOM-killer ended a process. `scope`: a cgroup's limit or the whole host's memory."""

    pid: int | None = None
    name: str | None = None
    scope: Literal["cgroup", "host", "unknown"] = "unknown"
    cgroup: str | None = None
    total_vm_bytes: int | None = None
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    limit_bytes: int | None = None
    usage_bytes: int | None = None


class ProcessCrashed(Fact, frozen=True, kw_only=True):
    """The kernel noted a crash of a user process (`segfault at …`, `traps:`) and in which library."""

    pid: int
    name: str
    how: str
    library: str | None = None


class DriverPart(Fact, frozen=True, kw_only=True):
    """A part of the driver: the loaded kernel `module`, the user-space `library`, or an installed `package`.

    `previous` is what a package upgrade replaced. `flavour`: `open` or `proprietary`, of a module. `name`: the package.
    """

    side: Literal["module", "library", "package"]
    version: str
    flavour: Literal["open", "proprietary"] | None = None
    previous: str | None = None
    name: str | None = None


class GpuIdentity(Fact, frozen=True, kw_only=True):
    """`NVRM: GPU at PCI:…: GPU-<uuid>`: which card a PCI address is."""

    pci: str
    uuid: str


class DkmsModule(Fact, frozen=True, kw_only=True):
    """One row of `dkms status` for the NVIDIA module: built and installed for which kernel (None: only added)."""

    version: str
    kernel: str | None
    state: str


class GpuRefused(Fact, frozen=True, kw_only=True):
    """The kernel module said why it does not drive a GPU that it saw. `device_id`: four hexadecimal digits.

    `why`: `open-module` (the open flavour cannot), `proprietary-module` (the GPU needs the open flavour), `not-supported`
    (this release does not know it), `legacy` (a branch for old GPUs does), `owned` (another driver has it).
    `release` is the module's own version where named, `wanted` the legacy branch, `count` devices, `owner` the other driver.
    """

    why: Literal["open-module", "proprietary-module", "not-supported", "legacy", "owned"]
    pci: str | None = None
    device_id: str | None = None
    release: str | None = None
    wanted: str | None = None
    count: int | None = None
    owner: str | None = None


class PackagesUpgraded(Fact, frozen=True, kw_only=True):
    """Who changed packages, as apt's or dnf's history names the command (`unattended-upgrades`, `apt upgrade`)."""

    by: str
