"""Run as a child: NVML's inventory through nvidia-ml-py, one JSON object a line, under the names and in the units that
`nvidia-smi --query-gpu` has for them; errors in the words of nvidia-smi.

{"system":true,"driver_version":"580.95.05","nvml_version":"13.580.95.05","cuda_version":"13.0","count":2}
{"gpu":0,"name":"NVIDIA H200","uuid":"GPU-…","pci.bus_id":"00000000:17:00.0"}
{"gpu":0,"remapped_rows.pending":"Yes","remapped_rows.failure":"No"}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

Fields = dict[str, Any]
_MISSING = 3
"""Exit status where nvidia-ml-py is not installed here."""
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_VIRTUAL = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}
_FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}
_FABRIC_HEALTH = {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}
_P2P = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_RECOVERY = {0: "None", 1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset", 5: "Recover IMEX Domain",
             6: "Bus Reset", 7: "Reboot"}  # fmt: skip
_SAID = {4: "Insufficient Permissions", 9: "Driver Not Loaded", 12: "NVML Shared Library Not Found", 15: "GPU is lost",
         16: "GPU requires reset", 18: "Driver/library version mismatch", 999: "Unknown Error"}  # fmt: skip
GONE = ("[GPU is lost]", "[GPU requires reset]")
MOST_NVLINKS = 18


def say(fields: Fields) -> None:
    told = {name: value for name, value in fields.items() if value is not None}
    print(json.dumps(told, separators=(",", ":"), ensure_ascii=False), flush=True)


class Asked:
    """NVML calls that may be unsupported (None), or fail for a reason that is itself a value (`[GPU is lost]`)."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self._words = {
            nvml.NVML_ERROR_GPU_IS_LOST: "[GPU is lost]", nvml.NVML_ERROR_RESET_REQUIRED: "[GPU requires reset]",
            nvml.NVML_ERROR_UNKNOWN: "[Unknown Error]", nvml.NVML_ERROR_NO_PERMISSION: "[Insufficient Permissions]",
        }  # fmt: skip

    def __call__(self, name: str, *arguments: Any, show: Callable[[Any], Any] = lambda value: value) -> Any:
        call = getattr(self.nvml, name, None)
        if call is None:
            return None  # an older nvidia-ml-py
        try:
            value = call(*arguments)
            return show(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
        except self.nvml.NVMLError as error:
            return self._words.get(error.value)
        except Exception:  # nvidia-ml-py raises errors of its own where the library is older than it
            return None

    def fields(self, gpu: Any, *wanted: Any) -> dict[Any, int]:
        """Field values that NVML has for this GPU; scope ids are given as (field, scope)."""
        try:
            values = self.nvml.nvmlDeviceGetFieldValues(gpu, list(wanted))
        except self.nvml.NVMLError:
            return {}
        got = {}
        for key, value in zip(wanted, values, strict=True):
            if value.nvmlReturn == 0:
                kind = value.valueType
                got[key] = value.value.dVal if kind == 0 else value.value.uiVal if kind == 1 else value.value.ullVal
        return got


def words(error: Any) -> str:
    """An NVML error in the words of nvidia-smi."""
    return _SAID.get(error.value, str(error))


def mib(value: int) -> str:
    return f"{value // (1 << 20)} MiB"


def watts(value: int) -> str:
    return f"{value / 1000:.2f} W"


def yes(value: Any) -> str:
    return "Yes" if value else "No"


def on(value: Any) -> str:
    return "Enabled" if value else "Disabled"


def main() -> int:
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        print("nvidia-ml-py is not installed here: pip install nvidia-ml-py")
        return _MISSING
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(f"Failed to initialize NVML: {words(error)}", flush=True)
        return 1
    ask = Asked(pynvml)
    count = ask("nvmlDeviceGetCount")
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2", show=lambda v: f"{v // 1000}.{v % 1000 // 10}")
    say({"system": True, "driver_version": ask("nvmlSystemGetDriverVersion"), "nvml_version": ask("nvmlSystemGetNVMLVersion"),
         "cuda_version": cuda, "count": count})  # fmt: skip
    if count == 0:
        print("No devices were found", flush=True)
    handles = []
    for index in range(count if isinstance(count, int) else 0):
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            print(f"Unable to determine the device handle for GPU{index}: {words(error)}", flush=True)
            continue
        handles.append((index, gpu))
        if identity(ask, index, gpu) in GONE:
            continue
        for part in (state, clocks, health, ecc, link, fabric, mig, processes, nvlinks):
            part(ask, index, gpu)
    peers(ask, handles)
    return 0


def identity(ask: Asked, index: int, gpu: Any) -> str | None:
    """Says which GPU this is; returns its name, or why it does not answer any more (said in a line of its own)."""
    pci = ask("nvmlDeviceGetPciInfo_v3", gpu)
    known = not isinstance(pci, str) and pci is not None
    bus = pci.busId if known else None
    bus = bus.decode() if isinstance(bus, bytes) else bus
    name: str | None = ask("nvmlDeviceGetName", gpu)
    if name in GONE:
        print(f"GPU {bus or index}: {name.strip('[]')}", flush=True)
        return name
    capability = ask("nvmlDeviceGetCudaComputeCapability", gpu, show=lambda v: f"{v[0]}.{v[1]}")
    say({
        "gpu": index, "name": name, "uuid": ask("nvmlDeviceGetUUID", gpu), "pci.bus_id": bus,
        "pci.device_id": f"0x{pci.pciDeviceId:08X}" if known else None, "compute_cap": capability,
        "minor": ask("nvmlDeviceGetMinorNumber", gpu), "vbios_version": ask("nvmlDeviceGetVbiosVersion", gpu),
    })  # fmt: skip
    return name


def state(ask: Asked, index: int, gpu: Any) -> None:
    nvml = ask.nvml
    memory = ask("nvmlDeviceGetMemoryInfo", gpu, getattr(nvml, "nvmlMemory_v2", 0))
    if memory is None:
        memory = ask("nvmlDeviceGetMemoryInfo", gpu)
    figures: Fields = {"memory.used": memory} if isinstance(memory, str) else {}
    if memory is not None and not isinstance(memory, str):
        figures = {"memory.total": mib(memory.total), "memory.used": mib(memory.used), "memory.free": mib(memory.free),
                   "memory.reserved": mib(memory.reserved) if hasattr(memory, "reserved") else None}  # fmt: skip
    rates = ask("nvmlDeviceGetUtilizationRates", gpu)
    busy = rates if isinstance(rates, str) else f"{rates.gpu} %" if rates is not None else None
    activity = None if rates is None or isinstance(rates, str) else f"{rates.memory} %"
    say({"gpu": index, **figures, "utilization.gpu": busy, "utilization.memory": activity})
    memory_heat = ask.fields(gpu, nvml.NVML_FI_DEV_MEMORY_TEMP).get(nvml.NVML_FI_DEV_MEMORY_TEMP)
    say({
        "gpu": index, "temperature.gpu": ask("nvmlDeviceGetTemperature", gpu, 0),
        "temperature.gpu.tlimit": ask("nvmlDeviceGetMarginTemperature", gpu), "temperature.memory": memory_heat or None,
        "fan.speed": ask("nvmlDeviceGetFanSpeed", gpu, show=lambda v: f"{v} %"),
        "power.draw": ask("nvmlDeviceGetPowerUsage", gpu, show=watts),
        "enforced.power.limit": ask("nvmlDeviceGetEnforcedPowerLimit", gpu, show=watts),
        "power.default_limit": ask("nvmlDeviceGetPowerManagementDefaultLimit", gpu, show=watts),
        "pstate": ask("nvmlDeviceGetPerformanceState", gpu, show=lambda v: f"P{v}" if v < 32 else None),
    })  # fmt: skip
    mode = ask("nvmlDeviceGetMigMode", gpu)
    told = isinstance(mode, (list, tuple))
    say({
        "gpu": index, "persistence_mode": ask("nvmlDeviceGetPersistenceMode", gpu, show=on),
        "compute_mode": ask("nvmlDeviceGetComputeMode", gpu, show=_COMPUTE_MODES.get),
        "display_active": ask("nvmlDeviceGetDisplayActive", gpu, show=on),
        "mig.mode.current": on(mode[0]) if told else mode, "mig.mode.pending": on(mode[1]) if told else None,
        "virtualization_mode": ask("nvmlDeviceGetVirtualizationMode", gpu, show=_VIRTUAL.get),
        "gsp.mode.current": ask("nvmlDeviceGetGspFirmwareMode", gpu, show=lambda v: on(v[0])),
        "gpm": ask("nvmlGpmQueryDeviceSupport", gpu, show=lambda v: yes(v.isSupportedDevice)),
    })  # fmt: skip


def clocks(ask: Asked, index: int, gpu: Any) -> None:
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", gpu, show=lambda v: f"0x{v:016x}")
    if reasons is None:
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, show=lambda v: f"0x{v:016x}")
    say({
        "gpu": index, "clocks_event_reasons.active": reasons,
        "clocks.current.sm": ask("nvmlDeviceGetClockInfo", gpu, 1, show="{} MHz".format),
        "clocks.max.sm": ask("nvmlDeviceGetMaxClockInfo", gpu, 1, show="{} MHz".format),
        "clocks.current.memory": ask("nvmlDeviceGetClockInfo", gpu, 2, show="{} MHz".format),
        "clocks.max.memory": ask("nvmlDeviceGetMaxClockInfo", gpu, 2, show="{} MHz".format),
    })  # fmt: skip


def health(ask: Asked, index: int, gpu: Any) -> None:
    nvml = ask.nvml
    remapped = ask("nvmlDeviceGetRemappedRows", gpu)
    if isinstance(remapped, tuple):
        rows = ask("nvmlDeviceGetRowRemapperHistogram", gpu)
        say({
            "gpu": index, "remapped_rows.correctable": remapped[0], "remapped_rows.uncorrectable": remapped[1],
            "remapped_rows.pending": yes(remapped[2]), "remapped_rows.failure": yes(remapped[3]),
            "remapped_rows.histogram.none": None if rows is None or isinstance(rows, str) else rows.none,
        })  # fmt: skip
    wanted = [getattr(nvml, name) for name in (
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "NVML_FI_DEV_RETIRED_SBE", "NVML_FI_DEV_RETIRED_DBE", "NVML_FI_DEV_RETIRED_PENDING",
    ) if hasattr(nvml, name)]  # fmt: skip
    got = ask.fields(gpu, *wanted)
    if action := _RECOVERY.get(got.get(getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None), -1)):
        say({"gpu": index, "gpu_recovery_action": action})
    retired = {name: got.get(getattr(nvml, f"NVML_FI_DEV_RETIRED_{name}", None)) for name in ("SBE", "DBE", "PENDING")}
    if any(retired.values()):
        say({"gpu": index, "retired_pages.sbe": retired["SBE"], "retired_pages.dbe": retired["DBE"],
             "retired_pages.pending": yes(retired["PENDING"])})  # fmt: skip
    repair = ask("nvmlDeviceGetRepairStatus", gpu)
    if isinstance(repair, list):
        say({"gpu": index, "repair.pending": yes(any(repair))})


def ecc(ask: Asked, index: int, gpu: Any) -> None:
    def total(kind: int, counter: int) -> Any:
        return ask("nvmlDeviceGetTotalEccErrors", gpu, kind, counter)

    mode = ask("nvmlDeviceGetEccMode", gpu)
    if not isinstance(mode, (list, tuple)) or not mode[0]:
        return
    sram = None
    if status := getattr(ask.nvml, "c_nvmlEccSramErrorStatus_v1_t", None):
        sram = status()
        if ask("nvmlDeviceGetSramEccErrorStatus", gpu, ask.nvml.byref(sram)) != 0:
            sram = None
    say({
        "gpu": index, "ecc.mode.current": "Enabled", "ecc.errors.corrected.volatile.total": total(0, 0),
        "ecc.errors.uncorrected.volatile.total": total(1, 0), "ecc.errors.corrected.aggregate.total": total(0, 1),
        "ecc.errors.uncorrected.aggregate.total": total(1, 1),
        "ecc.errors.sram.threshold_exceeded": None if sram is None else yes(sram.bThresholdExceeded),
    })  # fmt: skip


def link(ask: Asked, index: int, gpu: Any) -> None:
    say({
        "gpu": index, "pcie.link.gen.gpucurrent": ask("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
        "pcie.link.gen.max": ask("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
        "pcie.link.gen.gpumax": ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", gpu),
        "pcie.link.width.current": ask("nvmlDeviceGetCurrPcieLinkWidth", gpu),
        "pcie.link.width.max": ask("nvmlDeviceGetMaxPcieLinkWidth", gpu),
        "pcie.replays": ask("nvmlDeviceGetPcieReplayCounter", gpu),
    })  # fmt: skip


def fabric(ask: Asked, index: int, gpu: Any) -> None:
    """The NVSwitch fabric: nothing is said of a GPU that has none."""
    nvml = ask.nvml
    info = None
    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        if info is None and hasattr(nvml, name):
            info = getattr(nvml, name)()
            if ask("nvmlDeviceGetGpuFabricInfoV", gpu, nvml.byref(info)) != 0:
                info = None
    if info is None or info.state not in _FABRIC_STATES:
        return
    done = info.state == 3
    status = ("Success" if info.status == 0 else f"Error {info.status}") if done else "N/A"
    say({"gpu": index, "fabric.state": _FABRIC_STATES[info.state], "fabric.status": status,
         "fabric.health.summary": _FABRIC_HEALTH.get(getattr(info, "healthSummary", 0))})  # fmt: skip


def mig(ask: Asked, index: int, gpu: Any) -> None:
    count = ask("nvmlDeviceGetMaxMigDeviceCount", gpu)
    mode = ask("nvmlDeviceGetMigMode", gpu)
    if not isinstance(count, int) or not isinstance(mode, (list, tuple)) or not mode[0]:
        return
    for place in range(count):
        device = ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, place)
        if device is None or isinstance(device, str):
            continue
        memory = ask("nvmlDeviceGetMemoryInfo", device)
        known = memory is not None and not isinstance(memory, str)
        name = ask("nvmlDeviceGetName", device)
        say({
            "mig": place, "gpu": index, "gpu_instance": ask("nvmlDeviceGetGpuInstanceId", device),
            "compute_instance": ask("nvmlDeviceGetComputeInstanceId", device), "uuid": ask("nvmlDeviceGetUUID", device),
            "profile": name.rpartition("MIG ")[2] if isinstance(name, str) else None,
            "memory.used": mib(memory.used) if known else None, "memory.total": mib(memory.total) if known else None,
        })  # fmt: skip


def processes(ask: Asked, index: int, gpu: Any) -> None:
    seen = False
    for kind, call in (("C", "Compute"), ("G", "Graphics"), ("M+C", "MPSCompute")):
        names = (f"nvmlDeviceGet{call}RunningProcesses{version}" for version in ("_v3", "_v2", ""))
        found = next((answer for name in names if (answer := ask(name, gpu)) is not None), None)
        if isinstance(found, str):
            say({"processes": found, "gpu": index})
            return
        seen = seen or found is not None
        for process in found or ():
            name = ask("nvmlSystemGetProcessName", process.pid)
            used = process.usedGpuMemory
            say(
                {
                    "process": process.pid,
                    "gpu": index,
                    "type": kind,
                    "name": name,
                    "used_gpu_memory": None if used is None else mib(used),
                }
            )
    say({"processes": "listed" if seen else "not supported", "gpu": index})


def nvlinks(ask: Asked, index: int, gpu: Any) -> None:
    """Each link's rate in GB/s a direction; null for an inactive one."""
    rates: dict[str, float | None] = {}
    for number in range(MOST_NVLINKS):
        active = ask("nvmlDeviceGetNvLinkState", gpu, number)
        if not isinstance(active, int):
            break
        speed = _link_speed(ask, gpu, number) if active else None
        rates[str(number)] = round(speed / 1000, 3) if speed else (0.0 if active else None)
    if rates:
        say({"gpu": index, "nvlink": rates})


def _link_speed(ask: Asked, gpu: Any, number: int) -> int | None:
    """MB/s of one link, else what all links have in common (older drivers)."""
    own, common = (getattr(ask.nvml, f"NVML_FI_DEV_NVLINK_{name}", None) for name in ("GET_SPEED", "SPEED_MBPS_COMMON"))
    wanted: list[Any] = [*([(own, number)] if own is not None else []), *([common] if common is not None else [])]
    got = ask.fields(gpu, *wanted)
    return next((got[key] for key in wanted if got.get(key)), None)


def peers(ask: Asked, handles: list[tuple[int, Any]]) -> None:
    """Whether each pair of GPUs can read each other's memory."""
    links = {}
    for a, first in handles:
        for b, second in handles:
            status = ask("nvmlDeviceGetP2PStatus", first, second, 0) if a != b else None
            if isinstance(status, int):
                links[f"GPU{a} GPU{b}"] = _P2P.get(status, "U")
    if links:
        say({"p2p": links, "gpus": [f"GPU{index}" for index, _ in handles]})


if __name__ == "__main__":
    raise SystemExit(main())
