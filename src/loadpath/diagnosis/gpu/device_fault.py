"""Faults of the GPU itself: Xids, lost GPUs, adapters that do not start, NVSwitch errors, the driver's own health flags.

An Xid is where to start, not a verdict: what leads is chosen in `diagnosis.xid`, what to do is the recovery action that the
driver itself states, else the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.kernel import (
    AdapterInitFailed,
    AerError,
    GpuIdentity,
    GpuLost,
    SlotLinkDown,
    SxidEvent,
    XidEvent,
)
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_seconds
from loadpath.diagnosis.gpu.xid import APPLICATION, HANG, NVLINK, Incident, harmless_link, incidents, seconds_between
from loadpath.diagnosis.rule import Rule, fill, finding, row_remedies
from loadpath.knowledge.tables import findings
from loadpath.knowledge.xid import link_rule, recovery, response, sxids, xids

NEAR_SECONDS = 120
"""A bus or switch error this close to a GPU's loss belongs to it."""

_FOLLOWS = {
    13: "an exception of a program that was running there", 31: "a page fault of a program that was running there",
    43: "the reset of the process's channel", 45: "the clean-up of channels",
    63: "a spare row set aside, active after the next reset", 64: "a repair that could not be recorded",
    74: "its NVLink going down", 79: "the GPU leaving the bus", 94: "the error kept to one process",
    95: "the error not kept to one process", 109: "the context switch that timed out",
    119: "driver calls that its firmware no longer answers", 171: "its place: DRAM", 172: "its place: on-chip SRAM",
}  # fmt: skip
# What a PCIe error can explain.
_BY_BUS = ("gpu-off-bus", "gsp-timeout", "gpu-firmware-halted", "pcie-data-corrupted")
# The gravest recovery action leads where GPUs ask for different ones.
_GRAVITY = ("reboot_system", "reboot_node", "recover_imex", "bus_reset", "reset_gpu", "drain_and_reset", "drain_p2p")
_ACTION_OF = {"reset-gpu": "reset_gpu", "restart-process": "restart_app", "reboot": "reboot_node"}


def judge_xids(case: Case) -> Iterator[Finding]:
    for incident in incidents(case.all(XidEvent)):
        yield _of_incident(case, incident)


def _of_incident(case: Case, incident: Incident) -> Finding:
    row_id = incident.finding
    stated = _stated(incident)
    if stated and row_id in (APPLICATION, HANG, "nvlink-peer-access"):
        row_id = "gpu-recovery-required"  # a program's fault alone needs no reset: the driver knows of more
    row = findings()[row_id]
    decoded = [e for e in incident.events if e.unit]
    harmless = row_id == NVLINK and not stated and len(decoded) > 0 and all(map(harmless_link, decoded))
    gpus = _named(incident, row_id)
    values = _values(case, incident, gpus)
    action = stated or _catalogued(incident, row_id, harmless)
    doing = response(action)
    cause = [s for t in row.cause if (s := fill(t, values)) is not None] + _tail(case, incident, gpus)
    if harmless:
        cause.append("By the catalogue nothing has to be done for it now: watch whether it returns.")
    remedies = row_remedies(row, values)
    if doing is not None:
        remedies = (Remedy(doing.text.format_map(values), doing.command.format_map(values), doing.effect), *remedies)
    error = _bus_error(case, incident.finding, incident.lead, incident.gpus)
    return finding(
        row_id,
        [*_shown(incident), *([error] if error else [])],
        case=case,
        values=values,
        cause=" ".join(cause),
        remedies=remedies[:1] if harmless else remedies[:5],
        severity="warning" if harmless else None,
        operator_action=doing.does if doing else "none" if harmless else row.operator_action,
        blast_radius=doing.blast if doing else row.blast_radius,
        figures={
            "xid": values["xid"],
            "gpus": gpus,
            "xids": sorted({e.code for e in incident.events}),
            "uuids": [i.uuid for i in case.all(GpuIdentity) if i.pci in gpus],
        },
    )


def _named(incident: Incident, row_id: str) -> list[str]:
    """The GPUs to act on: those that the driver wants recovered, else those that the fault is on."""
    if row_id == "gpu-recovery-required" and incident.recovery:
        return list(incident.recovery)
    return list(dict.fromkeys([*incident.gpus, *incident.recovery])) if incident.recovery else incident.gpus


def _values(case: Case, incident: Incident, gpus: list[str]) -> dict[str, Any]:
    lead = incident.lead
    code = lead.caused_by or lead.code
    table = xids().get(code)
    same = [e for e in incident.events if e.code == lead.code]
    pids = {e.pid for e in incident.events if e.pid is not None and e.pci == lead.pci and e.code != 45}
    return {
        "gpus": " and ".join(gpus) if len(gpus) < 3 else ", ".join(gpus),
        "first_gpu": _with_function(lead.pci if lead.pci in gpus else gpus[0]),
        "xid": code,
        "what": table.what if table else "a code that is not in the catalogue of current GPUs.",
        "process": _process(case, lead, same),
        "detail": _detail(incident),
        "wait": _wait(same),
        "lines": len(same) if len(same) > 1 else None,
        "programs": len(pids) if len(pids) > 1 else None,
        "gi": lead.gi,
        "links": _links(incident),
        "decoded": _decoded(incident),
        "note_app": "yes" if table and table.app != "no" else None,
    }


def _with_function(pci: str) -> str:
    """The address as nvidia-smi's -i wants it: with the function, which the kernel's lines leave out."""
    if pci.startswith(("GPU-", "MIG-")):
        return pci
    return f"{pci}.0" if pci.count(":") == 2 else "<index>"


def _process(case: Case, lead: XidEvent, same: Sequence[XidEvent]) -> str | None:
    """The process that was charged with it, and which rank of an engine that is, where a log beside it tells."""
    event = next((e for e in [lead, *same] if e.pid is not None), None)
    if event is None:
        return None
    own = next(
        (f.origin for f in case.facts if f.origin.pid == event.pid and f.origin.process not in (None, "kernel")), None
    )
    rank = f"rank {own.rank}" if own and own.rank is not None else own.process if own else None
    known = ", ".join(word for word in (event.name, rank) if word)
    return f"pid {event.pid} ({known})" if known else f"pid {event.pid}"


def _detail(incident: Incident) -> str | None:
    """The words that name the kind of fault, of the lead or of a later line of the same code."""
    for event in incident.events:
        if event.code != incident.lead.code:
            continue
        for start in (": Illegal", ": Out Of Range", ": Misaligned", "FAULT_", ": Invalid", ": MMU NACK", ": Stack"):
            if (place := event.detail.find(start)) >= 0:
                return event.detail[place:].lstrip(": ").split(" ESR")[0].split(",")[0][:60].rstrip(". ")
    return None


def _wait(same: Sequence[XidEvent]) -> str | None:
    """How long each call waits: what the line says, else the even spacing of the lines."""
    for event in same:
        words = event.detail.split("Timeout after ")
        if len(words) > 1 and words[1].split("s")[0].isdigit():
            return f"{words[1].split('s')[0]} s"
    gaps = [g for a, b in pairwise(same) if (g := seconds_between(a.origin, b.origin)) is not None]
    if len(gaps) >= 2 and max(gaps) - min(gaps) <= 2 and gaps[0] > 1:
        return show_seconds(gaps[0])
    return None


def _links(incident: Incident) -> str | None:
    found = sorted({e.link for e in incident.events if e.link is not None and e.link >= 0})
    return None if not found else f"link {found[0]}" if len(found) == 1 else "links " + ", ".join(map(str, found))


def _decoded(incident: Incident) -> str | None:
    """What the interrupt words of NVLink 5 say, in the catalogue's terms, of the gravest event."""
    rules = [r for e in incident.events if e.unit and (r := link_rule(e.code, e.unit, e.words))]
    if not rules:
        return None
    worst = max(rules, key=lambda r: ("nonfatal", "link_fatal", "gpu_fatal").index(r.severity))
    kind = {"nonfatal": "nonfatal", "link_fatal": "fatal to the link", "gpu_fatal": "fatal to the GPU"}[worst.severity]
    return (
        f"unit {worst.unit.split('/')[0]}, {kind}; next by the catalogue: {worst.catalogue.replace('_', ' ').lower()}"
    )


def _stated(incident: Incident) -> str | None:
    """The gravest recovery action that the driver itself stated, as an action word."""
    words = {row.action for text in incident.recovery.values() if (row := recovery(text))}
    return next((action for action in _GRAVITY if action in words), None)


def _catalogued(incident: Incident, row_id: str, harmless: bool) -> str:
    if harmless:
        return "none"
    if row_id == "gpu-off-bus":
        return "power_cycle"
    table = xids().get(incident.lead.code)
    if table and response(table.action):
        return table.action
    return _ACTION_OF.get(findings()[row_id].operator_action, "none")


def _tail(case: Case, incident: Incident, gpus: list[str]) -> list[str]:
    """What came before, what followed, and what the driver asks for: the same sentences for every kind of fault."""
    said = []
    if before := incident.before:
        first = before[0]
        gap = seconds_between(first.origin, incident.lead.origin)
        when = f" {show_seconds(gap)} earlier" if gap and gap >= 1 else " just before it"
        who = f" ({_process(case, first, [])})" if first.pid else ""
        said.append(f"Xid {first.code}{who} on {first.pci} came{when}: {_meaning(first.code)}.")
    followers = incident.followers
    if followers:
        told = [f"{code} is only {_FOLLOWS.get(code, 'a further report')}" for code in list(followers)[:3]]
        said.append(f"It was followed by others that are consequences: {'; '.join(told)}.")
    if incident.recovery:
        texts = dict.fromkeys(incident.recovery.values())
        where = f" on {len(incident.recovery)} GPUs" if len(incident.recovery) > 1 else ""
        said.append(f"The driver itself asks for it{where} in Xid 154: {', '.join(texts)}.")
    if error := _bus_error(case, incident.finding, incident.lead, incident.gpus):
        said.append(_blame(error))
    return said


def _meaning(code: int) -> str:
    table = xids().get(code)
    return table.what.rstrip(".")[:1].lower() + table.what.rstrip(".")[1:] if table else "an unlisted code"


def _bus_error(case: Case, row_id: str, lost: Fact, gpus: Sequence[str]) -> AerError | SlotLinkDown | None:
    """The PCIe error close to a GPU's loss, best one of the GPU itself: where its cause probably is."""
    if row_id not in _BY_BUS:
        return None
    reported: list[AerError | SlotLinkDown] = [*case.all(AerError), *case.all(SlotLinkDown)]
    near = [
        e for e in reported
        if (isinstance(e, SlotLinkDown) or e.severity != "corrected")
        and ((apart := seconds_between(e.origin, lost.origin)) is None or -5 <= apart <= NEAR_SECONDS)
    ]  # fmt: skip
    return next((e for e in near if e.device in gpus), near[0] if near else None)


def _blame(error: AerError | SlotLinkDown) -> str:
    what = f"an uncorrected ({error.severity}) PCIe error" if isinstance(error, AerError) else error.what
    return f"{error.device} reported {what} at that time: look at its slot, riser, cable and power first."


def _shown(incident: Incident) -> list[Fact]:
    """The lead, what came before, and one line of each other code."""
    lines: dict[tuple[int, str], XidEvent] = {(incident.lead.code, ""): incident.lead}
    for event in incident.events:
        lines.setdefault((event.code, event.pci if event.code == 154 else ""), event)
    return list(lines.values())


def judge_lost(case: Case) -> Iterator[Finding]:
    """A GPU that is gone, without Xid 79 to say so."""
    lost = case.all(GpuLost)
    known = [e.pci for e in case.all(XidEvent) if e.code == 79]
    new = [f for f in lost if f.pci not in known]
    if not lost or (known and not [f for f in new if f.pci]):
        return
    if all(f.words.lower() == "not found" for f in new):
        names = " and ".join(f.pci for f in new if f.pci) or "(not named)"
        yield finding("gpu-handle-not-found", new, case=case, values={"gpus": names})
        return
    kernel = [f for f in new if f.said_by == "kernel" or "lost" in f.words]
    gpus = list(dict.fromkeys(f.pci for f in new if f.pci))
    values = {
        "gpus": " and ".join(gpus) or f"{new[0].index}" if new[0].index is not None or gpus else "(not named)",
        "first_gpu": _with_function(gpus[0]) if gpus else "<bus id>",
        "words": new[0].words,
    }
    row = findings()["gpu-off-bus"]
    doing = response("power_cycle")
    assert doing is not None
    first = Remedy(doing.text.format_map(values), doing.command, doing.effect)
    cause = [s for t in row.cause if (s := fill(t, values)) is not None]
    error = _bus_error(case, row.id, new[0], gpus)
    if error is not None:
        cause.append(_blame(error))
    yield finding(
        row.id,
        [*lost, *([error] if error else [])],
        case=case,
        values=values,
        title=f"GPU {values['gpus']} no longer answers: it is off the PCIe bus or its firmware is dead",
        cause=" ".join(cause),
        certainty="established" if kernel else "likely",
        remedies=(first, *row_remedies(row, values)),
        operator_action=doing.does,
        blast_radius=doing.blast,
        figures={"gpus": gpus},
    )


def judge_init(case: Case) -> Iterator[Finding]:
    """The module found the GPU and could not start it."""
    failed = case.all(AdapterInitFailed)
    gpus = list(dict.fromkeys(f.pci for f in failed if f.pci))
    earlier = next((e for e in case.all(XidEvent) if e.pci in gpus), None)
    first = _with_function(gpus[0]) if gpus else "<bus id>"
    values = {"gpus": " and ".join(gpus) or "(not named)", "first_gpu": first, "code": failed[0].code}
    if earlier is not None:
        values["earlier"] = f"Xid {earlier.code} on {earlier.pci}"
    yield finding("gpu-init-failed", failed, case=case, values=values, figures={"gpus": gpus, "code": failed[0].code})


def judge_switch(case: Case) -> Iterator[Finding]:
    """NVSwitch errors; those that come with a GPU's loss fold under it by the table."""
    events = case.all(SxidEvent)
    fatal = [e for e in events if e.fatal or (e.fatal is None and _always_fatal(e.code))]
    row_id = "nvswitch-fatal" if fatal else "nvswitch-nonfatal"
    shown = fatal or events
    switches = sorted({f"switch {e.switch}" if e.switch is not None else e.pci for e in shown})
    table = sxids().get(shown[0].code)
    values = {
        "code": shown[0].code,
        "name": table.name if table else None,
        "detail": shown[0].detail.removeprefix("Fatal, ").removeprefix("Non-fatal, "),
        "switches": ", ".join(switches),
        "links": ", ".join(map(str, sorted({e.link for e in shown if e.link is not None}))),
    }
    yield finding(row_id, shown, case=case, values=values, figures={"sxid": shown[0].code})


def _always_fatal(code: int) -> bool:
    table = sxids().get(code)
    return table is not None and table.severity == "always_fatal"


def judge_bus(case: Case) -> Iterator[Finding]:
    """PCIe errors on their own."""
    errors = case.all(AerError)
    grave: list[Fact] = [e for e in errors if e.severity != "corrected"]
    grave += case.all(SlotLinkDown)
    if grave:
        device = grave[0].device  # type: ignore[attr-defined]
        yield finding("pcie-uncorrected", grave, case=case, values={"device": device, "count": len(grave)})
    elif errors:
        yield finding("pcie-corrected", errors, case=case, values={"device": errors[0].device, "count": len(errors)})


_MADE = (
    "gpu-off-bus", "gpu-memory-uncorrectable", "gpu-memory-contained", "gpu-memory-repair-failed",
    "gpu-memory-repair-pending", "gpu-memory-corrected", "gpu-memory-reduced", "gsp-timeout", "gpu-firmware-halted",
    "gpu-hang", "nvlink-fault", "nvlink-peer-access", "pcie-data-corrupted", "gpu-power-missing", "vgpu-refused",
    "xid-cleanup", "gpu-recovery-required", "xid-notice", "gpu-application-fault", "gpu-init-failed",
)  # fmt: skip
RULES = (
    Rule(judge_xids, (XidEvent,), _MADE, (AerError, SlotLinkDown)),
    Rule(judge_lost, (GpuLost,), ("gpu-off-bus", "gpu-handle-not-found"), (XidEvent, AerError, SlotLinkDown)),
    Rule(judge_init, (AdapterInitFailed,), ("gpu-init-failed",), (XidEvent,)),
    Rule(judge_switch, (SxidEvent,), ("nvswitch-fatal", "nvswitch-nonfatal")),
    Rule(judge_bus, (), ("pcie-uncorrected", "pcie-corrected"), (AerError, SlotLinkDown)),
)
