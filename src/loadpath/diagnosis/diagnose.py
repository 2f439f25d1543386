"""The engine of diagnosis: run the rules whose needs are met, order what they found, write the report."""

from __future__ import annotations

from functools import partial

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.engine import ServerReady
from loadpath.core.facts.errors import Symptom
from loadpath.core.guard import guarded
from loadpath.core.report import Finding, Report, Skipped, StepReport
from loadpath.core.vocabulary import STACK
from loadpath.diagnosis.context import temper
from loadpath.diagnosis.correlation import explain
from loadpath.diagnosis.ladder import ladder, time_spent
from loadpath.diagnosis.ledger import ledger
from loadpath.diagnosis.machine import whereabouts
from loadpath.diagnosis.machine.layers import layers, verdict_of
from loadpath.diagnosis.machine.since_boot import aged
from loadpath.diagnosis.profile.tables import tables
from loadpath.diagnosis.registry import rules
from loadpath.diagnosis.verdict import fold, order, root_cause, verdict
from loadpath.knowledge.tables import findings


def diagnose(case: Case) -> Report:
    """The report on a case. Captures and raw facts are added by the caller, who knows what to show of them."""
    made, skipped = judged(case)
    before = [judge_earlier(run) for run in case.earlier]
    if made_before := _unanswered(case, made, before):
        made = made_before
    root = root_cause(made)
    steps = ladder(case, root)
    checked = layers(case, made)
    return Report(
        verdict=verdict_of(verdict(case, made), checked),
        root_cause=root.id if root else None,
        findings=tuple(made),
        steps=steps,
        memory=ledger(case),
        layers=checked,
        holds=holds(case),
        skipped=tuple(skipped),
        tables=tables(case),
        notes=(*whereabouts.notes(case), *_history(case, before), *_time(made, steps)),
    )


def _time(made: list[Finding], steps: tuple[StepReport, ...]) -> list[str]:
    """Where the time went, unless a finding tells it with what shortens it."""
    told = any(f.id == "restart-cost" for f in made)
    return [] if told or not (spent := time_spent(steps)) else [spent]


def judged(case: Case) -> tuple[list[Finding], list[Skipped]]:
    """All findings on a case, ordered and folded, and the rules that lacked some of their facts."""
    made: list[Finding] = []
    skipped: list[Skipped] = []
    for rule in rules():
        missing = [kind.__name__ for kind in rule.needs if not case.has(kind)]
        if not missing:
            made += guarded(rule.name, partial(rule.judge, case), skipped)
        elif rule.makes and len(missing) < len(rule.needs):
            skipped.append(Skipped(rule.name, f"needs {', '.join(missing)}, not in this input", "rule"))
    return fold(order(explain(case, aged(case, temper(case, _merged(made)))))), skipped


def _merged(made: list[Finding]) -> list[Finding]:
    """One finding an id: two rules that agree are one finding, the first with the evidence of both."""
    by_id: dict[str, Finding] = {}
    for f in made:
        have = by_id.get(f.id)
        if have is None:
            by_id[f.id] = f
        else:
            extra = tuple(e for e in f.evidence if e not in have.evidence)
            by_id[f.id] = msgspec.structs.replace(have, evidence=have.evidence + extra)
    return list(by_id.values())


def judge_earlier(run: Case) -> list[Finding]:
    return judged(run)[0]


def _unanswered(case: Case, made: list[Finding], before: list[list[Finding]]) -> list[Finding] | None:
    """The findings of the run before, where the last run neither came up nor says why: a crash loop cut short."""
    if not before or case.has(ServerReady) or root_cause(made) is not None:
        return None
    last = before[-1]
    return last if last and last[0].severity == "error" else None


def _history(case: Case, before: list[list[Finding]]) -> list[str]:
    """A line for each earlier start in the same log."""
    notes = []
    for number, (run, made) in enumerate(zip(case.earlier, before, strict=True), 1):
        root = root_cause(made)
        where = f"lines {run.captures[0].first_line}-{run.captures[0].last_line}" if run.captures else ""
        came_up = "came up" if run.has(ServerReady) else "did not come up, without a known fault"
        told = f"failed: {root.title}" if root and root.severity == "error" else came_up
        notes.append(f"Start {number} of {len(before) + 1} ({where}) {told}.")
    return notes


def holds(case: Case) -> tuple[str, ...]:
    """Boundaries of the stack that something in the case proves to work, from the ground up."""
    rows = findings()
    proven = {b for s in case.all(Symptom) for b in rows[s.finding].holds}
    return tuple(b for b in STACK if b in proven)
