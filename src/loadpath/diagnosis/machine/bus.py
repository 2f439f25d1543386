"""Layer 1 of a live machine: is a GPU on the PCI bus, does it have its memory windows, does its link count errors?"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.gpu import DeviceNode, GpuListed, GpuState, PciDevice
from loadpath.core.facts.kernel import GpuLost, XidEvent
from loadpath.core.facts.machine import CudaCalled, PciBus, Whereabouts
from loadpath.core.report import Finding
from loadpath.diagnosis.gpu.words import say
from loadpath.diagnosis.rule import Rule, finding

FALLEN_OFF = 79  # the Xid of a GPU that left the bus
_LOOK = "lspci -nn -d 10de:   # shows it when it is there"


def judge_empty_bus(case: Case) -> Iterator[Finding]:
    """The whole bus without an NVIDIA device, unless something else shows a GPU (WSL, SoCs, sandboxes)."""
    bus, where = case.last(PciBus), case.last(Whereabouts)
    if bus is None or bus.nvidia or not bus.devices or bus.wsl or _seen_elsewhere(case):
        return
    values = {
        "devices": bus.devices, "vm": where.virtual_machine if where else None,
        "container": where.container[0] if where and where.container else None,
    }  # fmt: skip
    values["vm_command" if values["vm"] else "bare"] = _LOOK
    yield finding("no-gpu-on-bus", [bus], case=case, values=values)


def _seen_elsewhere(case: Case) -> bool:
    """Whether a GPU answers by another way, or is known to have just left the bus (then that is the finding)."""
    cuda = case.last(CudaCalled)
    lost = any(x.code == FALLEN_OFF for x in case.all(XidEvent)) or any("bus" in g.words for g in case.all(GpuLost))
    nodes = any(not n.missing and n.path.removeprefix("/dev/nvidia").isdigit() for n in case.all(DeviceNode))
    return case.has(GpuState) or case.has(GpuListed) or nodes or lost or (cuda is not None and cuda.code == 0)


def judge_windows(case: Case) -> Iterator[Finding]:
    """Memory windows (BARs) that firmware, hypervisor or kernel gave no address."""
    own = [d for d in case.all(PciDevice) if d.is_gpu and d.unassigned]
    if own:
        slots = say([f"{d.slot} (region {', '.join(d.unassigned)})" for d in own])
        cause = (
            f"No address was given to the memory window of {slots}: the driver cannot map the card. Firmware (BIOS) without "
            "64-bit decoding, or a VM with too small a 64-bit MMIO window, does that; the driver is not at fault."
        )
        yield finding("gpu-bars-unmapped", own, case=case, cause=cause)


def judge_link_errors(case: Case) -> Iterator[Finding]:
    """PCIe errors that the kernel counted on the GPU itself; corrected ones are told where there are many."""
    own = [d for d in case.all(PciDevice) if d.is_gpu and d.aer]
    bad = [d for d in own if d.aer and (d.aer[1] or d.aer[2])]
    if bad:
        counts = [d.aer for d in bad if d.aer]
        values = {"device": bad[0].slot, "count": sum(nonfatal + fatal for _, nonfatal, fatal in counts)}
        yield finding("pcie-uncorrected", bad, case=case, values=values)


RULES = (
    Rule(judge_empty_bus, (PciBus,), ("no-gpu-on-bus",), (Whereabouts, CudaCalled, DeviceNode, GpuState)),
    Rule(judge_windows, (PciDevice,), ("gpu-bars-unmapped",)),
    Rule(judge_link_errors, (PciDevice,), ("pcie-uncorrected",)),
)
