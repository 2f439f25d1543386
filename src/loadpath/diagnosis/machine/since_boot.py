"""On a checked machine the kernel log goes back to the boot: how long ago its lines are, and which are only history.

A fault of a card stays one until somebody deals with it. That a process was killed or crashed an hour ago is no state of the
machine: it may be what the person is after, so it is told, as a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.machine import ProbeRan, Whereabouts
from loadpath.core.report import Finding
from loadpath.core.units import show_seconds
from loadpath.diagnosis.machine.nodes import cuda_works

PAST = ("gpu-application-fault", "uvm-fatal", "gpu-hang")
"""Findings about a card that are over where the driver answers again."""
OF_THE_MACHINE = ("device-fault", "hardware-kernel", "kernel-usermode", "interconnect")


def aged(case: Case, made: Sequence[Finding]) -> list[Finding]:
    """`made`, with the age of what stands in the kernel log alone; what is history lowered to a warning."""
    logs = {p.span.source for p in case.all(ProbeRan) if p.kind == "kernel-log"}
    if not logs:
        return list(made)
    where = case.last(Whereabouts)
    now = where.uptime_seconds if where is not None else None
    times = {(f.span.source, f.span.first_line): f.origin.uptime for f in case.facts if f.span.source in logs}
    return [_aged(case, f, times, now) if _only_in(f, logs) else f for f in made]


def _only_in(f: Finding, logs: set[str]) -> bool:
    return bool(f.evidence) and all(e.source in logs for e in f.evidence)


def _aged(case: Case, f: Finding, times: dict[tuple[str, int], float | None], now: float | None) -> Finding:
    seen = [at for e in f.evidence if (at := times.get((e.source, e.line))) is not None]
    age = now - max(seen) if seen and now is not None and now >= max(seen) else None
    told = f" The last of these lines is {show_seconds(age)} old." if age is not None else ""
    past = f.id in PAST and cuda_works(case)
    if f.severity == "error" and (past or f.boundary not in OF_THE_MACHINE):
        why = " It stands in the kernel log since boot; nothing here shows that it goes on."
        return msgspec.structs.replace(f, severity="warning", cause=f"{f.cause}{told}{why}")
    return msgspec.structs.replace(f, cause=f"{f.cause}{told}") if told else f
