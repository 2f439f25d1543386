"""What proves layers 1 to 4 of a checked machine, and what would show them where they were not seen."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import BoardInformation, DeviceNode, DriverVersions, GpuState, LinkState, PciDevice
from loadpath.core.facts.machine import CudaCalled, DeviceAccess, KernelModules, PciBus, ProbeRan
from loadpath.core.layers import Layer
from loadpath.core.units import show_bytes
from loadpath.diagnosis.gpu.words import say
from loadpath.diagnosis.machine.driver import CUDA, taken
from loadpath.diagnosis.machine.layers import Proof, Seen
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.machine.nodes import allotted, cuda_works, inside_container
from loadpath.knowledge.gpus import by_pci_id


def ran(case: Case, name: str) -> ProbeRan | None:
    """How the probe of that name went; None where it did not run."""
    return next((p for p in case.all(ProbeRan) if p.name == name), None)


def _counted(names: list[str]) -> str:
    """ "8 × H200", "L4 and A10": names with their counts."""
    return say([f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names)])


def pci(case: Case) -> Proof | None:
    boards = [d for d in case.all(PciDevice) if d.is_gpu]
    if not boards or any(not d.answers or d.unassigned for d in boards):
        return None
    known = [by_pci_id(d.device_id) if d.device_id else None for d in boards]
    names = [
        k.names[0].removeprefix("NVIDIA ") if k else d.name or f"10de:{d.device_id}"
        for k, d in zip(known, boards, strict=True)
    ]
    links = [x for x in case.all(LinkState) if x.speed_gts and x.width]
    link = f", link x{min(x.width or 0 for x in links)}" if links else ""
    errors = " and no uncorrected PCIe errors" if all(d.aer and not d.aer[1] and not d.aer[2] for d in boards) else ""
    return Proof(f"{_counted(names)} on the bus, memory windows assigned{link}{errors}", (boards[0],))


def pci_missing(case: Case) -> str:
    if _wsl(case):
        return "WSL: the GPU is on the bus of Windows, /dev/dxg leads to it"
    if inside_container(case) and not case.has(PciBus):
        return "/sys/bus/pci is not visible here: run on the host, or lspci -nn -d 10de:"
    return "no listing of the bus: lspci -nnk -d 10de:"


def kernel_module(case: Case) -> Proof | None:
    version = loaded_version(case)
    if version is None:
        return None
    proc = next((v for v in case.all(DriverVersions) if v.view == "proc"), None)
    modules = case.last(KernelModules)
    flavour = f", {proc.flavour} module" if proc and proc.flavour else ""
    uvm = (
        ""
        if modules is None or not modules.loaded
        else ", uvm too"
        if "nvidia_uvm" in modules.loaded
        else ", uvm not loaded yet"
    )
    log = ran(case, "kernel-log")
    quiet = "; the kernel log may not be read by this user" if log is not None and log.outcome == "denied" else ""
    fact: Fact | None = proc or modules
    return Proof(f"nvidia {version} is loaded{flavour}{uvm}{quiet}", (fact,) if fact else ())


def _wsl(case: Case) -> bool:
    return any(bus.wsl for bus in case.all(PciBus))


def kernel_module_missing(case: Case) -> str:
    if _wsl(case):
        return "WSL: the kernel driver is that of Windows; nvidia-smi.exe shows its version"
    modules = case.last(KernelModules)
    if modules is None or modules.loaded is None:
        return "/proc/modules cannot be read here: cat /proc/driver/nvidia/version, on the host"
    return "no nvidia module is loaded, and no GPU on the bus that would need one"


def device_nodes(case: Case) -> Proof | None:
    there = {n.path: n for n in case.all(DeviceNode) if not n.missing}
    gpus = [n for path, n in there.items() if path.removeprefix("/dev/nvidia").isdigit()]
    access = case.all(DeviceAccess)
    wanted = {f"/dev/nvidia{i.minor}" for i in case.all(BoardInformation) if i.minor is not None}
    called = case.last(CudaCalled)
    if not gpus or "/dev/nvidiactl" not in there or "/dev/nvidia-uvm" not in there:
        made = called is not None and cuda_works(case)
        return (
            Proof("the device files were made when CUDA was first called; cuInit works", (called,))
            if made and called
            else None
        )
    failed = [a for a in access if a.outcome != "ok"]
    own = allotted(case)
    if any(a.outcome != "EPERM" or not own for a in failed) or (wanted - set(there) and not inside_container(case)):
        return None
    files = f"nvidiactl, nvidia-uvm and {len(gpus)} GPU file{'s' if len(gpus) > 1 else ''} are there"
    opened = f", {len(own)} of them for this process" if failed else " and opened" if access else ", opening not tried"
    return Proof(f"{files}{opened}", (gpus[0],))


def device_nodes_missing(case: Case) -> str:
    if _wsl(case):
        return "WSL: /dev/dxg stands in for NVIDIA's device files"
    there = {n.path for n in case.all(DeviceNode) if not n.missing}
    if there and "/dev/nvidia-uvm" not in there:
        return "no /dev/nvidia-uvm: CUDA makes it at its first start on a host; ls -l /dev/nvidia*"
    return "no NVIDIA device files here: ls -l /dev/nvidia*"


def user_driver(case: Case) -> Proof | None:
    called = case.last(CudaCalled)
    library = taken(case, CUDA)
    if called is not None and called.code == 0 and called.devices:
        version = f"libcuda {library.version}" if library and library.version else "libcuda"
        cuda = f" (CUDA {called.cuda})" if called.cuda else ""
        nvml = _nvml(case)
        return Proof(
            f"{version}{cuda}: cuInit works and sees {called.devices} GPU{'s' if called.devices > 1 else ''}{nvml}",
            (called,),
        )
    return None


def _nvml(case: Case) -> str:
    states = [s for s in case.all(GpuState) if s.view in ("csv", "table", "query") and s.total_bytes]
    if not states:
        return "; NVML did not answer"
    return f"; NVML answers ({_counted([show_bytes(s.total_bytes or 0) for s in states if s.view == states[0].view])})"


def user_driver_missing(case: Case) -> str:
    called = case.last(CudaCalled)
    if case.has(GpuState):
        return "NVML answers, cuInit did not show a GPU: loadpath check --layer user-driver"
    if called is not None and called.library is None:
        return "no libcuda.so.1 for the loader: ldconfig -p | grep libcuda"
    return "no driver library answered: nvidia-smi; ldconfig -p | grep -E 'libcuda|libnvidia-ml'"


PROOFS: dict[Layer, Seen] = {
    "pci": Seen(pci, pci_missing),
    "kernel-module": Seen(kernel_module, kernel_module_missing),
    "device-nodes": Seen(device_nodes, device_nodes_missing),
    "user-driver": Seen(user_driver, user_driver_missing),
}
