"""Where loadpath looked from, and what it therefore could not see: said with every report on a live machine."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.machine import ProbeRan, ProcessesInSight, Whereabouts

MOST_NAMED = 4


def notes(case: Case) -> Iterator[str]:
    """Sentences for the report's notes; none where no probe ran."""
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


def place(where: Whereabouts) -> str:
    sign = f" ({where.container[0]})" if where.container else ""
    if where.pod:
        return f"inside a Kubernetes pod{sign}"
    return f"inside a container{sign}" if where.container else "on the host"
