"""What the rest of the log says of an error text: it stopped the start, was survived, or is noise of the end.

A server that reported ready after an error was not stopped by it; one that goes on answering after an error lost a
request, not the service; what a server prints after it was told to stop is not a fault.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import RequestServed, ServerReady, ServingStats, StepMark, Stopped
from loadpath.core.report import Finding
from loadpath.core.vocabulary import STACK, Severity
from loadpath.diagnosis.rule import row_of

F = TypeVar("F", bound=Fact)

TOLD_TO_STOP = ("signal", "orderly", "interrupt", "time-limit")
# These stay what they are, however the engine coped: the machine itself is at fault.
LASTING = ("device-fault", "hardware-kernel")


def temper(case: Case, made: list[Finding]) -> list[Finding]:
    """`made`, each error lowered to what it came to."""
    return [_tempered(case, f) for f in made]


def _tempered(case: Case, f: Finding) -> Finding:
    if f.severity == "info" or not f.evidence or f.boundary in LASTING or row_of(f).state == "degraded":
        return f
    source, first, last = f.evidence[0].source, f.evidence[0].line, f.evidence[-1].line
    stop = next((s for s in _in(case.all(Stopped), source) if s.how in TOLD_TO_STOP), None)
    if stop is not None and first > stop.span.first_line:
        return _lowered(f, "info", "It was printed after the server had been told to stop, and is no fault.")
    if f.severity == "error" and any(r.span.first_line > last for r in _in(case.all(ServerReady), source)):
        if _without_gpu(case, source) and f.boundary in STACK:
            return _lowered(f, "warning", "The server started all the same, on the CPU: the GPU is not used.")
        return _lowered(f, "info", "The server reported ready after it, so it did not stop the start.")
    ready = any(r.span.first_line < first for r in _in(case.all(ServerReady), source))
    if f.severity == "error" and ready and _answers_after(case, source, last):
        return _lowered(f, "warning", "The server went on answering after it.")
    return f


def _without_gpu(case: Case, source: str) -> bool:
    """Whether the engine failed to get its devices and went on without them, as llama.cpp and Ollama do."""
    return any(m.step == "device-enumeration" and m.event == "failed" for m in _in(case.all(StepMark), source))


def _answers_after(case: Case, source: str, line: int) -> bool:
    answered = any(
        r.span.first_line > line and r.status < 400 and "health" not in r.path and "metrics" not in r.path
        for r in _in(case.all(RequestServed), source)
    )
    working = any(s.span.first_line > line and (s.generation_tps or 0) > 0 for s in _in(case.all(ServingStats), source))
    return answered or working


def _in(facts: list[F], source: str) -> list[F]:
    return [fact for fact in facts if fact.span.source == source]


def _lowered(f: Finding, severity: Severity, why: str) -> Finding:
    return msgspec.structs.replace(f, severity=severity, cause=f"{f.cause} {why}")
