"""PCIe errors as the kernel reports them: AER, DPC, hot-plug.

pcieport 0000:3a:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
pcieport 0000:b0:01.0: pciehp: Slot(7): Link Down
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import AerError, SlotLinkDown
from loadpath.core.pci import ADDRESS, pci_address
from loadpath.core.text import Capture


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    return (
        re.compile(
            r"(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able))(?: ?\((?P<how>[^)\n]*)\))? error(?: message)? received"
            rf"(?: from|:) (?P<device>{ADDRESS})"
        ),
        re.compile(
            rf"(?P<device>{ADDRESS})[^\n]*?severity=(?P<severity>Corrected|Uncorrect(?:ed|able))"
            r"(?: ?\((?P<how>[^)\n]*))?(?:\)?, type=(?P<layer>[\w ]+))?"
        ),
        re.compile(
            rf"(?P<device>{ADDRESS})[^\n]*?"
            r"(?P<what>Slot\([^)]*\): (?:Link Down|Card not present)|DPC: containment event)"
        ),
    )


def read(capture: Capture) -> Iterator[Fact]:
    received, bus, slot = _patterns()
    for line in capture.lines:
        if line.prose or not any(word in line.text for word in ("severity=", "received", "Slot(", "DPC: containment")):
            continue
        common = at(capture, line)
        if found := received.search(line.text):
            yield AerError(**common, device=pci_address(found["device"]), severity=_severity(found))
        elif found := bus.search(line.text):
            layer = (found["layer"] or "").strip()
            yield AerError(**common, device=pci_address(found["device"]), severity=_severity(found), layer=layer)
        elif (found := slot.search(line.text)) and "ignored" not in line.text:
            yield SlotLinkDown(**common, device=pci_address(found["device"]), what=found["what"])


def _severity(found: re.Match[str]) -> Literal["corrected", "nonfatal", "fatal"]:
    if found["severity"].startswith("Correct"):
        return "corrected"
    return "nonfatal" if (found["how"] or "").lower().startswith("non") else "fatal"
