"""Which GPUs a case is about, by compute capability: from the tools' listings, the driver's, the PCI bus, or torch."""

from __future__ import annotations

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.binaries import FrameworkStarted
from loadpath.core.facts.gpu import GpuListed, GpuState, PciDevice
from loadpath.core.facts.placement import DeviceFound
from loadpath.core.facts.stack import GpuModel
from loadpath.knowledge import gpus


class Card(msgspec.Struct, frozen=True):
    """One sort of GPU: its name as printed, its compute capability (`12.0`)."""

    name: str
    capability: str

    @property
    def sm(self) -> str:
        return "sm_" + self.capability.replace(".", "")


def cards(case: Case) -> tuple[Card, ...]:
    """Each capability once, in the order in which the case names the cards."""
    found: dict[str, Card] = {}
    for name, capability in _named(case):
        board = None if capability else gpus.by_name(name)
        capability = capability or (board.capability if board else "")
        if capability and (capability not in found or not found[capability].name):
            found[capability] = Card(name, capability)
    if not found:
        for device in case.all(PciDevice):
            board = gpus.by_pci_id(device.device_id) if device.device_id else None
            if board is not None:
                found.setdefault(board.capability, Card(board.names[0], board.capability))
    return tuple(found.values())


def _named(case: Case) -> list[tuple[str, str]]:
    named = [(m.name, m.capability or "") for m in case.all(GpuModel)]
    named += [(d.name, d.capability or "") for d in case.all(DeviceFound) if d.library == "cuda"]
    named += [device for started in case.all(FrameworkStarted) for device in started.devices]
    named += [(g.name or "", "") for g in (*case.all(GpuState), *case.all(GpuListed))]
    return [(name, capability) for name, capability in named if name or capability]
