"""Facts about GPUs as NVIDIA's tools and the operating system show them.

Bytes, watts, °C, MHz; shares (utilisation, activity, fan) are 0..1. `None` is "not printed or N/A"; a cell that
the tool could not read at all (`ERR!`, `[Unknown Error]`) is named in `failed_cells`.
"""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

View = Literal["table", "query", "xml", "csv", "list", "version", "proc", "other"]
ProcessList = Literal["rows", "none-found", "empty", "not-supported", "absent"]


class OfGpu(Fact, frozen=True, kw_only=True):
    """What says which GPU a fact is about. `index` is nvidia-smi's (in `-q` and XML: its place in the listing);
    `bus_id` as printed (`00000000:17:00.0`)."""

    index: int | None = None
    bus_id: str | None = None
    name: str | None = None


class DriverVersions(Fact, frozen=True, kw_only=True):
    """Versions that one output states. `driver` is the kernel driver (610+: "KMD"), `tool` nvidia-smi's own,
    `nvml` the user-space library's; `cuda` the newest CUDA that the libcuda in sight accepts, never a toolkit.
    `flavour`: of the loaded kernel module. `cuda_missing`: the CUDA figure reads N/A, no libcuda was usable."""

    view: View
    cuda_missing: bool = False
    driver: str | None = None
    tool: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    flavour: Literal["open", "proprietary"] | None = None


class SmiSnapshot(Fact, frozen=True, kw_only=True):
    """One nvidia-smi output as a whole: how many GPUs it says are attached (`-q`, XML), how many it shows, and
    what stands in its process list (`empty`: the box is there, without a row and without a text)."""

    view: View
    attached: int | None = None
    shown: int = 0
    processes: ProcessList = "absent"


class GpuState(OfGpu, frozen=True, kw_only=True):
    """One GPU at one moment. `name_cut`: the table had no room for the whole name. `utilisation` is the share of
    the last sample period in which any kernel ran; `memory_activity` in which memory was read or written.
    `memory`: `unified` where the board has no memory of its own to report ("Not Supported")."""

    view: View
    name_cut: bool = False
    uuid: str | None = None
    device_id: str | None = None
    """PCI device id, four hexadecimal digits in lower case."""
    persistence: bool | None = None
    driver_model: str | None = None
    display_active: bool | None = None
    fan: float | None = None
    temperature_c: float | None = None
    temperature_margin_c: float | None = None
    """Degrees left before the GPU's limit (T.Limit, Hopper and later)."""
    memory_temperature_c: float | None = None
    performance_state: str | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    power_default_w: float | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    memory: Literal["own", "unified", "hidden"] = "own"
    utilisation: float | None = None
    memory_activity: float | None = None
    compute_mode: str | None = None
    mig: str | None = None
    """`Enabled`, `Disabled`, None; `mig_pending` where a change waits for a reset."""
    mig_pending: bool = False
    ecc: str | None = None
    """The table's cell: `Off`, `On` (MIG), N/A as None, or the count."""
    uncorrected_errors: int | None = None
    """Volatile: since the driver was loaded."""
    virtualisation: str | None = None
    failed_cells: tuple[str, ...] = ()


class GpuClocks(OfGpu, frozen=True, kw_only=True):
    """Clocks and why they are what they are. `reasons`: the active clock event (throttle) reasons by the bit's
    name: `idle`, `applications-clocks`, `sw-power-cap`, `hw-slowdown`, `sync-boost`, `sw-thermal`, `hw-thermal`,
    `power-brake`, `display`, `board-limit`, `reliability`; None where not printed."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    max_sm_mhz: float | None = None
    max_memory_mhz: float | None = None
    reasons: tuple[str, ...] | None = None


class GpuHealth(OfGpu, frozen=True, kw_only=True):
    """What the driver says of the board's condition (`-q`, XML, CSV)."""

    recovery_action: str | None = None
    reset_required: bool | None = None
    drain_and_reset: bool | None = None
    uncorrected_volatile: int | None = None
    uncorrected_aggregate: int | None = None
    corrected_volatile: int | None = None
    sram_threshold_exceeded: bool | None = None
    repair_pending: bool | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    banks_without_spare: int | None = None
    retired_single: int | None = None
    retired_double: int | None = None
    retirement_pending: bool | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: str | None = None


class LinkState(OfGpu, frozen=True, kw_only=True):
    """A PCIe link. `generation`: now; `device_generation`/`host_generation`: what each end can do;
    `speed_gts`: transfer rate in GT/s as lspci prints it, `speed_lowered`/`width_lowered` its `(downgraded)` and
    `(ok)`. `busy`: the GPU was at work when this was read."""

    generation: int | None = None
    max_generation: int | None = None
    device_generation: int | None = None
    host_generation: int | None = None
    width: int | None = None
    max_width: int | None = None
    speed_gts: float | None = None
    max_speed_gts: float | None = None
    speed_lowered: bool | None = None
    width_lowered: bool | None = None
    replays: int | None = None
    busy: bool | None = None


class GpuProcess(Fact, frozen=True, kw_only=True):
    """A process on a GPU. `kind`: `C`, `G`, `C+G`, `M` (MPS server), `M+C` (MPS client). `used_bytes` None: not
    printed, and `cut` where the figure did not fit its cell."""

    pid: int
    index: int | None = None
    bus_id: str | None = None
    uuid: str | None = None
    kind: str | None = None
    name: str | None = None
    used_bytes: int | None = None
    cut: bool = False
    gpu_instance: int | None = None
    compute_instance: int | None = None
    view: View = "table"


class MigInstance(Fact, frozen=True, kw_only=True):
    """A MIG device. Compute instances of one GPU instance share its memory: each prints the same figure."""

    index: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    device: int | None = None
    profile: str | None = None
    uuid: str | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    sms: int | None = None


class GpuListed(OfGpu, frozen=True, kw_only=True):
    """A line of `nvidia-smi -L`."""

    uuid: str | None = None


class SmiFailed(Fact, frozen=True, kw_only=True):
    """nvidia-smi (or NVML) did not answer, or not for one GPU."""

    how: Literal[
        "command-not-found", "no-driver", "no-devices", "version-mismatch", "library-missing", "gpu-lost",
        "handle-unknown", "reset-required", "unknown-error",
    ]  # fmt: skip
    index: int | None = None
    bus_id: str | None = None


class InforomCorrupted(Fact, frozen=True, kw_only=True):
    """`WARNING: infoROM is corrupted at gpu <bus>` under a table."""

    bus_id: str | None = None


class GpuSeries(Fact, frozen=True, kw_only=True):
    """Readings of one GPU over time (dmon, or a CSV query in a loop): a column for each figure, in the
    tool's own column names (`pwr`, `gtemp`, `sm`, `mem`, `pclk`, `smutil`, …) and units; None for `-`."""

    index: int
    tool: str
    columns: dict[str, tuple[float | None, ...]] = {}
    times: tuple[str, ...] = ()


class ProcessSeries(Fact, frozen=True, kw_only=True):
    """Readings of one process on one GPU over time (pmon)."""

    index: int
    pid: int
    kind: str | None = None
    command: str | None = None
    columns: dict[str, tuple[float | None, ...]] = {}


class Topology(Fact, frozen=True, kw_only=True):
    """`nvidia-smi topo -m` (`what="path"`) or `-p2p` (`what="p2p"`): `links[(a, b)]` as printed, keyed `"GPU0 GPU1"`."""

    what: Literal["path", "p2p"] = "path"
    gpus: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    links: dict[str, str] = {}
    numa: dict[str, str] = {}

    def between(self, a: str, b: str) -> str | None:
        return self.links.get(f"{a} {b}")


class NvlinkStatus(OfGpu, frozen=True, kw_only=True):
    """NVLink links of a GPU: GB/s a direction by link number, None for an inactive one. `why_none`: `no-nvlink`,
    `inactive`, `mig`. `errors`: sums over the links, where the error counters were printed."""

    links: dict[int, float | None] = {}
    why_none: str | None = None
    errors: dict[str, int] = {}


class PciDevice(Fact, frozen=True, kw_only=True):
    """An NVIDIA device in lspci. `device_id` four hexadecimal digits, lower case; `name` what pci.ids says;
    `answers` False where the device returns all ones (`rev ff`)."""

    slot: str | None = None
    kind: str | None = None
    name: str | None = None
    device_id: str | None = None
    kernel_driver: str | None = None
    kernel_modules: tuple[str, ...] = ()
    answers: bool = True
    unassigned: tuple[str, ...] = ()
    """Memory windows (BARs) without an address, as `1 (128G)`."""
    aer: tuple[int, int, int] | None = None
    """Corrected, nonfatal and fatal PCIe errors since boot; None where not counted."""
    numa_node: int | None = None
    iommu_group: int | None = None
    power_state: str | None = None
    virtual_function: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.kind is not None and any(
            w in self.kind.lower() for w in ("vga", "3d controller", "display", "0300", "0302", "0380")
        )


class DeviceNode(Fact, frozen=True, kw_only=True):
    """A device file below /dev; `missing` where `ls` says that there is none."""

    path: str
    major: int | None = None
    minor: int | None = None
    mode: str | None = None
    missing: bool = False


class DriverPackage(Fact, frozen=True, kw_only=True):
    """A driver that `ubuntu-drivers` offers. `device_id`: of the GPU it is offered for."""

    package: str
    branch: int | None = None
    server: bool = False
    open: bool = False
    recommended: bool = False
    free: bool = False
    device_id: str | None = None
    model: str | None = None


class BoardInformation(OfGpu, frozen=True, kw_only=True):
    """`/proc/driver/nvidia/gpus/*/information`. `initialised` False: the VBIOS version could not be read."""

    minor: int | None = None
    vbios: str | None = None
    initialised: bool = True
    excluded: bool = False
