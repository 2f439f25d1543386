"""The engine of diagnosis: run the rules whose needs are met, order what they found, write the report."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Finding, Report, Skipped
from loadpath.core.vocabulary import STACK
from loadpath.diagnosis.ladder import ladder
from loadpath.diagnosis.registry import rules
from loadpath.diagnosis.verdict import fold, order, root_cause, verdict
from loadpath.knowledge.tables import findings


def diagnose(case: Case) -> Report:
    """The report on a case. Captures and raw facts are added by the caller, who knows what to show of them."""
    made: list[Finding] = []
    skipped: list[Skipped] = []
    for rule in rules():
        missing = [kind.__name__ for kind in rule.needs if not case.has(kind)]
        if missing:
            if rule.makes and len(missing) < len(rule.needs):
                skipped.append(Skipped(rule.name, f"needs {', '.join(missing)}, not in this input"))
            continue
        made += rule.judge(case)
    made = fold(order(made))
    root = root_cause(made)
    return Report(
        verdict=verdict(case, made),
        root_cause=root.id if root else None,
        findings=tuple(made),
        steps=ladder(case),
        holds=holds(case),
        skipped=tuple(skipped),
    )


def holds(case: Case) -> tuple[str, ...]:
    """Boundaries of the stack that something in the case proves to work, from the ground up."""
    rows = findings()
    proven = {b for s in case.all(Symptom) for b in rows[s.finding].holds}
    return tuple(b for b in STACK if b in proven)
