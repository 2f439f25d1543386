"""From findings to a verdict: which one leads, which fold under it, and what state that leaves."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.engine import ServerReady, StepMark
from loadpath.core.report import Finding, Verdict
from loadpath.core.vocabulary import State
from loadpath.knowledge.tables import FindingRow, findings

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_CERTAINTY = {"established": 0, "likely": 1, "possible": 2}
_BY_SEVERITY: dict[str, State | None] = {"error": "failed", "warning": "degraded", "info": None}


def _row(made: Finding) -> FindingRow:
    return findings()[made.id]


def order(made: list[Finding]) -> list[Finding]:
    """Findings by weight: errors first, causes before consequences, deeper before shallower, then as they were printed."""

    def weight(f: Finding) -> tuple[int, bool, int, int, int]:
        row = _row(f)
        line = f.evidence[0].line if f.evidence else 1 << 60
        return (_SEVERITY[f.severity], row.consequence, -row.depth, _CERTAINTY[f.certainty], line)

    return sorted(made, key=weight)


def fold(made: list[Finding]) -> list[Finding]:
    """`made` with each finding that another one explains moved under it (its id kept in `consequences`)."""
    gone: set[str] = set()
    out: list[Finding] = []
    for f in made:
        if f.id in gone:
            continue
        row = _row(f)
        folded = [
            other.id for other in made
            if other.id != f.id and other.id not in gone and any(fnmatchcase(other.id, p) for p in row.folds)
        ]  # fmt: skip
        if f is made[0]:
            folded += [
                o.id for o in made if o.id != f.id and o.id not in gone and o.id not in folded and _row(o).consequence
            ]
        gone.update(folded)
        out.append(msgspec.structs.replace(f, consequences=(*f.consequences, *folded)) if folded else f)
    return [f for f in out if f.id not in gone]


def root_cause(made: list[Finding]) -> Finding | None:
    """The finding to lead with: the first error, else the first warning; None where nothing is wrong."""
    return made[0] if made and made[0].severity != "info" else None


def verdict(case: Case, made: list[Finding]) -> Verdict:
    """State and sentence. Absent data is never health: with no step seen and nothing found the state is `unknown`."""
    root = root_cause(made)
    if root is not None:
        state = _row(root).state or _BY_SEVERITY[root.severity] or "unknown"
        return Verdict(state, sentence(root))
    if case.has(ServerReady):
        return Verdict("healthy", "The server started and is ready; no fault found.")
    if case.has(StepMark):
        last = case.all(StepMark)[-1]
        return Verdict("starting", f"The start has reached {last.step}; no fault found so far.")
    return Verdict("unknown", "Nothing in this input can be judged.")


def sentence(root: Finding) -> str:
    hedge = {"established": "", "likely": "Likely: ", "possible": "Possibly: "}[root.certainty]
    return f"{hedge}{root.title}."
