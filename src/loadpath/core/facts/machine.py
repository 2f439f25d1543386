"""Facts about a live machine that only probes state: how each probe went, where loadpath ran, what the kernel, the
device files and the driver's libraries look like. Sizes in bytes."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Outcome = Literal["ok", "failed", "missing", "denied", "timed-out", "not-run"]


class ProbeRan(Fact, frozen=True, kw_only=True):
    """One probe of a machine: how it was asked and how that went (see `core.sample.Sample`)."""

    name: str
    kind: str
    command: str = ""
    status: int | None = None
    seconds: float = 0.0
    started: str = ""
    outcome: Outcome = "ok"
    note: str = ""


class Whereabouts(Fact, frozen=True, kw_only=True):
    """Where loadpath ran. `container`: the signs of one, in words; `user`: `root` or `uid N`; `virtual_machine`: what
    shows that the machine is one."""

    kernel: str | None = None
    os: str | None = None
    user: str | None = None
    groups: tuple[int, ...] = ()
    container: tuple[str, ...] = ()
    pod: bool = False
    user_namespace: bool = False
    virtual_machine: str | None = None
    uptime_seconds: float | None = None
    asked: tuple[str, ...] = ()
    """The layers that were asked for; empty for all."""


class PciBus(Fact, frozen=True, kw_only=True):
    """How many devices are on the PCI bus, and how many of them are NVIDIA's. `wsl`: the GPU belongs to Windows."""

    devices: int
    nvidia: int
    wsl: bool = False


class KernelModules(Fact, frozen=True, kw_only=True):
    """The NVIDIA module as the running kernel has it, and as the installed kernels do.

    `loaded`: name → version (`?` where it has none), of NVIDIA's modules and of those that may hold its cards; None where
    the list may not be seen. `files`: installed kernel → its nvidia.ko ("" for none); empty where /lib/modules is not here.
    `dkms`: version → kernels that it was built for.
    """

    running: str | None = None
    loaded: dict[str, str] | None = None
    files: dict[str, str] = {}
    dkms: dict[str, tuple[str, ...]] = {}
    headers_missing: bool = False
    secure_boot: Literal["on", "off", "none", "unknown"] = "unknown"
    lockdown: str | None = None
    signatures_enforced: bool | None = None
    settings: tuple[str, ...] = ()
    """Lines of modprobe.d and the kernel's command line that concern NVIDIA, nouveau or vfio."""


class DeviceAccess(Fact, frozen=True, kw_only=True):
    """Whether this process could open a device file: `ok`, an errno's name (`EPERM`), or `hung`."""

    path: str
    outcome: str


class DeviceMajor(Fact, frozen=True, kw_only=True):
    """A character device's major number as the running kernel has it (/proc/devices)."""

    number: int
    name: str


class DeviceHolder(Fact, frozen=True, kw_only=True):
    """A process that has device files of the GPU open. `state`: its letter (`D`: uninterruptible)."""

    pid: int
    name: str
    devices: tuple[str, ...]
    uid: str = ""
    state: str = ""
    container: str | None = None
    pod: str | None = None
    command: str = ""


class ProcessesInSight(Fact, frozen=True, kw_only=True):
    """How many processes /proc shows, and how many of them hide their open files from this user."""

    shown: int
    hidden: int


class DriverLibrary(Fact, frozen=True, kw_only=True):
    """A file that the loader would come by for `libcuda.so.1` or `libnvidia-ml.so.1`; path None: there is none.

    `via`: `LD_LIBRARY_PATH`, `ld.so.cache`, `default`. `taken`: it comes first. `version`: of its file name, or found inside.
    """

    soname: str
    path: str | None = None
    real: str | None = None
    version: str | None = None
    size_bytes: int | None = None
    via: str = ""
    taken: bool = False

    @property
    def stub(self) -> bool:
        """The toolkit's stand-in for linking, in its `stubs` folder. (Size tells nothing: WSL's libcuda is small too.)"""
        return "/stubs/" in f"{self.path} {self.real}"

    @property
    def compat(self) -> bool:
        """A forward-compatibility library of an image or toolkit."""
        return "/compat/" in f"{self.path} {self.real}"


class NvmlFailed(Fact, frozen=True, kw_only=True):
    """NVML could not be initialised, in nvidia-smi's words."""

    words: str


class CudaCalled(Fact, frozen=True, kw_only=True):
    """What libcuda's first calls gave. `code`: of cuInit, None where it did not come back; `devices`: their count;
    `cuda`: the newest CUDA that this libcuda offers; `library`: the file that was loaded, None where none could be."""

    library: str | None = None
    cuda: str | None = None
    code: int | None = None
    error: str = ""
    devices: int | None = None
    called: bool = False
