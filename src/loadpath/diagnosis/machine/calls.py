"""Calls into the driver that did not come back, or took their process with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.machine import ProbeRan
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding

CALLS = {"nvidia-smi": "nvidia-smi", "nvml": "NVML", "cuda-init": "cuInit", "device-access": "Opening the device files",
         "gpu-topology": "nvidia-smi topo"}  # fmt: skip
_WAITS = re.compile(r"state D(?:, waits in (\w+))?")
_SIGNAL = re.compile(r"ended by (SIG\w+)")
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")


def judge_hung(case: Case) -> Iterator[Finding]:
    """Of several calls that hang, the first one is shown; all are evidence."""
    hung = [p for p in case.all(ProbeRan) if p.outcome == "timed-out" and p.name in CALLS]
    if not hung:
        return
    first = hung[0]
    stuck = next((found for p in hung if (found := _WAITS.search(p.note))), None)
    values = {
        "what": CALLS[first.name], "seconds": f"{first.seconds:.0f}" if first.seconds >= 1 else f"{first.seconds:.1f}",
        "command": first.command, "last": _last(case, first),
        "waits": (f" (in {stuck[1]})" if stuck[1] else " there") if stuck else None,
    }  # fmt: skip
    figures = {"timed_out": [p.name for p in hung]}
    # Only what is stuck in the kernel needs a person at once; another call may merely have been slow.
    action: dict[str, Any] = {} if stuck else {"operator_action": "none", "blast_radius": None}
    yield finding(
        "driver-call-hangs", hung, case=case, values=values, certainty="established", figures=figures, **action
    )


def judge_crashed(case: Case) -> Iterator[Finding]:
    for ran in case.all(ProbeRan):
        found = _SIGNAL.search(ran.note)
        if ran.name in CALLS and found and found[1] in _CRASHES:
            values = {"what": CALLS[ran.name], "signal": found[1], "last": _last(case, ran)}
            yield finding("driver-library-crashed", [ran], case=case, values=values)
            return


def _last(case: Case, ran: ProbeRan) -> str | None:
    """The last line that a child printed: what it was at when it stopped."""
    own = [c for c in case.captures if c.source == ran.span.source and c.kind == ran.kind]
    lines = [line.raw.strip() for c in own for line in c.lines if line.raw.strip()]
    if not lines or ran.name not in ("nvml", "cuda-init", "device-access"):
        return None
    return f"`{lines[-1][:80]}`"


RULES = (
    Rule(judge_hung, (ProbeRan,), ("driver-call-hangs",)),
    Rule(judge_crashed, (ProbeRan,), ("driver-library-crashed",)),
)
