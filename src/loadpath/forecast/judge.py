"""From a plan to a report: the lines that the engine would print go through the reader and the rules of its logs.

So "fewer than one full-length request fits" is judged, and remedied, as if it had happened. What differs is said:
the lines are predicted, and a refusal within the plan's own error is no more than likely.
"""

from __future__ import annotations

import msgspec

from loadpath.core.plan import GpuPlan, Plan
from loadpath.core.report import Finding, MemoryLedger, MemoryPart, Report, Verdict
from loadpath.core.units import show_bytes, show_count
from loadpath.core.vocabulary import State
from loadpath.reading.service import read_bytes

TOLD = 0.005
"""Errors below this share of a part are as good as none."""


def judged(plan: Plan) -> Report:
    """The report on a plan: verdict, findings and remedies on its predicted lines, the ledger part by part."""
    text = "\n".join(plan.lines) + "\n"
    read = read_bytes([(f"predicted {plan.engine} log", text.encode())])
    doubt = uncertainty(plan)
    findings = tuple(_tempered(f, plan, doubt) for f in read.findings)
    return msgspec.structs.replace(
        read,
        verdict=_verdict(plan, read, findings, doubt),
        findings=findings,
        memory=tuple(_ledger(gpu, plan) for gpu in plan.gpus_planned),
        steps=(),
        holds=(),
        captures=(),
        facts=(),
        skipped=(),
        notes=_notes(plan, doubt),
        plan=plan,
    )


def uncertainty(plan: Plan) -> int:
    """Bytes by which the KV share may be off: the mean errors of the modelled parts, added."""
    parts = min(plan.gpus_planned, key=lambda gpu: gpu.budget_bytes, default=None)
    return round(sum(p.bytes * p.error for p in parts.parts if p.error)) if parts else 0


def _near(plan: Plan, doubt: int) -> bool:
    """Whether the plan's error could turn the answer round: by what the pool holds beyond one request, or, where the
    settings size the cache (llama.cpp), by what stays free."""
    if plan.utilisation is None and plan.gpus_planned:
        free = min(gpu.budget_bytes - sum(part.bytes for part in gpu.parts) for gpu in plan.gpus_planned)
        return abs(free) < 2 * doubt
    return plan.request_bytes is not None and abs(plan.kv_bytes - plan.request_bytes) < 2 * doubt


def _tempered(found: Finding, plan: Plan, doubt: int) -> Finding:
    """A finding on predicted lines is established only where the plan's own error cannot turn it round.

    Checks on the live machine are left out: nothing has been started there.
    """
    found = msgspec.structs.replace(found, next_checks=())
    if found.certainty != "established" or (not plan.fits and not _near(plan, doubt)):
        return found
    return msgspec.structs.replace(found, certainty="likely")


def _verdict(plan: Plan, read: Report, findings: tuple[Finding, ...], doubt: int) -> Verdict:
    room = f"{plan.max_concurrency:.2f} requests of {show_count(plan.max_model_len)} tokens"
    root = next((f for f in findings if f.id == read.root_cause), None)
    if not plan.fits or (root and root.severity == "error"):
        why = root.title.rstrip(".") if root else f"the KV cache holds {room}"
        near = f", within the plan's error of {show_bytes(doubt)}" if _near(plan, doubt) else ""
        return Verdict("failed", f"Does not fit: {why[:1].lower() + why[1:] if why[1:2].islower() else why}{near}.")
    near = f"; near the limit, the plan's error is {show_bytes(doubt)}" if _near(plan, doubt) else ""
    state: State = "degraded" if root is not None and root.severity == "warning" else "healthy"
    return Verdict(state, f"Fits: room for {room} at once{near}.")


def _ledger(gpu: GpuPlan, plan: Plan) -> MemoryLedger:
    parts = tuple(
        MemoryPart(p.name, p.bytes, f"{p.basis}, ±{p.error:.0%}" if p.error and p.error >= TOLD else p.basis)
        for p in gpu.parts
    )
    return MemoryLedger(gpu.gpu, gpu.total_bytes, parts, budget_bytes=gpu.budget_bytes, utilisation=plan.utilisation)


def _notes(plan: Plan, doubt: int) -> tuple[str, ...]:
    told = [*plan.notes]
    if doubt:
        told.append(
            f"Planned, not measured: modelled parts were off by {show_bytes(doubt)} on real starts, on average. "
            "`loadpath plan … --against startup.log` compares with a real start."
        )
    return tuple(told)
