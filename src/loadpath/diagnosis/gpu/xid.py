"""From single Xids to incidents: which came together, which of them leads, and which only followed.

The first Xid of an incident leads, but a fault of the hardware leads over a program's fault just before it, and the worst of
the memory codes over the others: they are one event told several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from loadpath.core.facts.kernel import XidEvent
from loadpath.core.text import Origin
from loadpath.knowledge.xid import link_rule, xids

QUIET_SECONDS = 900
"""A pause after which the next Xid is another incident: follow-ups come within seconds, a GSP's time-outs within minutes."""

CONTAINED, UNCONTAINED = 94, 95
_SAME_MEMORY_ERROR = (48, 94, 171, 172)  # the same memory error, before it is known whom it hits

APPLICATION = "gpu-application-fault"
HANG = "gpu-hang"
NVLINK = "nvlink-fault"

_FINDING_OF = {
    79: "gpu-off-bus",
    95: "gpu-memory-uncorrectable", 48: "gpu-memory-uncorrectable", 140: "gpu-memory-uncorrectable",
    171: "gpu-memory-uncorrectable", 172: "gpu-memory-uncorrectable", 175: "gpu-memory-uncorrectable",
    94: "gpu-memory-contained",
    64: "gpu-memory-repair-failed", 157: "gpu-memory-repair-failed", 161: "gpu-memory-repair-failed",
    63: "gpu-memory-repair-pending", 156: "gpu-memory-repair-pending", 160: "gpu-memory-repair-pending",
    92: "gpu-memory-corrected", 168: "gpu-memory-reduced",
    119: "gsp-timeout", 120: "gsp-timeout",
    61: "gpu-firmware-halted", 62: "gpu-firmware-halted", 110: "gpu-firmware-halted", 169: "gpu-firmware-halted",
    143: "gpu-init-failed",
    43: APPLICATION, 8: HANG, 46: HANG, 109: HANG, 158: HANG,
    74: NVLINK, 136: NVLINK, 155: NVLINK, 166: NVLINK, 170: NVLINK, 173: NVLINK,
    **dict.fromkeys(range(144, 151), NVLINK),
    108: "nvlink-peer-access", 137: "nvlink-peer-access",
    32: "pcie-data-corrupted", 80: "pcie-data-corrupted", 167: "pcie-data-corrupted",
    54: "gpu-power-missing", 78: "vgpu-refused",
    45: "xid-cleanup", 154: "gpu-recovery-required",
}  # fmt: skip
_BY_KIND = {"app": APPLICATION, "firmware": "gpu-firmware-halted", "memory": "xid-notice"}

# Which finding leads where several came together: lower leads. Equal weights: the first.
_WEIGHT = {
    "gpu-off-bus": 0, "gpu-power-missing": 0,
    "gpu-memory-uncorrectable": 1, "gpu-memory-repair-failed": 1, "gpu-memory-contained": 2,
    "gsp-timeout": 2, "gpu-firmware-halted": 2, "gpu-init-failed": 2, "pcie-data-corrupted": 2, NVLINK: 2,
    APPLICATION: 3, "nvlink-peer-access": 3, HANG: 3,
    "gpu-recovery-required": 4, "gpu-memory-repair-pending": 4, "gpu-memory-reduced": 4,
}  # fmt: skip


class Incident(msgspec.Struct, frozen=True):
    """Xids that belong together: `lead` is the one to act on, `finding` the row that says so."""

    finding: str
    lead: XidEvent
    events: tuple[XidEvent, ...]

    def of(self, *codes: int) -> list[XidEvent]:
        return [event for event in self.events if event.code in codes]

    @property
    def before(self) -> list[XidEvent]:
        """What came before the lead and is another fault (not the same code)."""
        place = self.events.index(self.lead)
        return [event for event in self.events[:place] if event.code != self.lead.code]

    @property
    def followers(self) -> Counter[int]:
        """Codes after the lead that only tell of it, with the number of their lines."""
        place = self.events.index(self.lead)
        return Counter(event.code for event in self.events[place + 1 :] if event.code not in (self.lead.code, 154))

    @property
    def gpus(self) -> list[str]:
        """The GPUs that the lead's finding is about, in order of appearance."""
        return list(dict.fromkeys(e.pci for e in self.events if finding_of(e) == self.finding)) or [self.lead.pci]

    @property
    def recovery(self) -> dict[str, str]:
        """The recovery action that the driver last stated for each GPU."""
        return {event.pci: event.recovery for event in self.events if event.recovery}


def finding_of(event: XidEvent) -> str:
    """The finding that this Xid alone would be."""
    code = event.caused_by or event.code
    if known := _FINDING_OF.get(code):
        return known
    row = xids().get(code)
    if row is None or row.severity == "info":
        return "xid-notice"
    return _BY_KIND.get(row.kind, "xid-notice")


def incidents(events: Iterable[XidEvent]) -> list[Incident]:
    """The incidents in order; those with the same finding are one (the same fault again, or on several GPUs)."""
    groups: list[list[XidEvent]] = []
    for event in events:
        if groups and _together(groups[-1][-1].origin, event.origin):
            groups[-1].append(event)
        else:
            groups.append([event])
    merged: dict[str, Incident] = {}
    for group in groups:
        made = _incident(group)
        if made.finding == HANG and made.lead.pci in (merged[APPLICATION].gpus if APPLICATION in merged else ()):
            made = Incident(APPLICATION, made.lead, made.events)  # the same program's fault, seen only as its time-out
        before = merged.get(made.finding)
        merged[made.finding] = made if before is None else Incident(
            made.finding, before.lead, before.events + made.events
        )  # fmt: skip
    return list(merged.values())


def _together(earlier: Origin, later: Origin) -> bool:
    apart = seconds_between(earlier, later)
    return apart is None or abs(apart) <= QUIET_SECONDS


def _incident(group: Sequence[XidEvent]) -> Incident:
    lead = min(group, key=lambda event: (weight(event), group.index(event)))
    contained = next((e for e in group if e.code == CONTAINED and e.pid), None)
    uncontained = next((e for e in group if e.code == UNCONTAINED), None)
    if lead.code in _SAME_MEMORY_ERROR:
        lead = uncontained or contained or lead
    return Incident(finding_of(lead), lead, tuple(group))


def weight(event: XidEvent) -> int:
    """How much this Xid asks to lead; an NVLink event that its own words call harmless asks little."""
    if event.caused_by:
        return 4  # hearsay: better the event itself, where it is there
    if finding_of(event) == NVLINK and event.fatal is False:
        return 4 if harmless_link(event) else 3  # peers report the link of the GPU whose own event is fatal
    return _WEIGHT.get(finding_of(event), 5)


def harmless_link(event: XidEvent) -> bool:
    """Whether an NVLink 5 event decodes to one that needs nothing done (or, undecoded, calls itself nonfatal)."""
    if event.fatal is None:
        return False
    rule = link_rule(event.code, event.unit or "", event.words)
    return rule.action == "none" if rule else False


def seconds_between(first: Origin, later: Origin) -> float | None:
    """From one line to another in seconds, by whichever clock both have; None where they share none."""
    if first.time is not None and later.time is not None:
        return later.time - first.time
    if first.uptime is not None and later.uptime is not None:
        return later.uptime - first.uptime
    return None
