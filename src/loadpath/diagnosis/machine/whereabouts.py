"""Where loadpath looked from, and what it therefore could not see: said with every report on a live machine."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.machine import ProbeRan, ProcessesInSight, Whereabouts
from loadpath.diagnosis.machine.calls import CALLS

MOST_NAMED = 4


OF_OURS = "this is a fault of loadpath"


def notes(case: Case) -> Iterator[str]:
    """Sentences for the report's notes; none where no probe ran."""
    yield from _unanswered(case)
    where = case.last(Whereabouts)
    if where is None or (where.kernel in (None, "unknown") and not where.container):
        return
    machine = ", in a virtual machine" if where.virtual_machine else ""
    user = f" as {where.user}" if where.user else ""
    kernel = f", kernel {where.kernel}" if where.kernel not in (None, "unknown") else ""
    yield f"loadpath ran {place(where)}{machine}{user}{kernel}."
    if where.container:
        yield (
            "From inside a container the host's module files, its container engine, its services and the processes of other "
            "containers are out of sight, and nothing done in here changes the host's driver."
        )
    denied = [p.command for p in case.all(ProbeRan) if p.outcome == "denied"]
    sight = case.last(ProcessesInSight)
    if sight is not None and sight.hidden:
        denied.append(f"the open files of {sight.hidden} of {sight.shown} processes")
    if denied:
        more = f" and {len(denied) - MOST_NAMED} more" if len(denied) > MOST_NAMED else ""
        yield f"This user has no right to: {'; '.join(denied[:MOST_NAMED])}{more}. As root they are seen."


def _unanswered(case: Case) -> Iterator[str]:
    """Probes that gave nothing for a reason of their own; calls into the driver that hang are findings."""
    late = [p.command for p in case.all(ProbeRan) if p.outcome == "timed-out" and p.name not in CALLS]
    if late:
        yield f"No answer in time: {'; '.join(late[:MOST_NAMED])}. More time: loadpath check --timeout 60."
    for ran in case.all(ProbeRan):
        if ran.note.endswith(OF_OURS):
            yield f"The probe {ran.name} broke off ({ran.note})."


def place(where: Whereabouts) -> str:
    sign = f" ({where.container[0]})" if where.container else ""
    if where.pod:
        return f"inside a Kubernetes pod{sign}"
    return f"inside a container{sign}" if where.container else "on the host"
