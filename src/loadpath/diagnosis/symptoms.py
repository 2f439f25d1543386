"""Matched error texts → findings, by the words of their table rows.

Ranks and repeats of one text fold into one finding; a row that a rule judges (`judged_by`) makes none here.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.tables import findings


def judge(case: Case) -> Iterator[Finding]:
    by_row: dict[str, list[Symptom]] = {}
    for symptom in case.all(Symptom):
        by_row.setdefault(symptom.finding, []).append(symptom)
    for row_id, symptoms in by_row.items():
        if findings()[row_id].judged_by:
            continue
        values: dict[str, str] = {}
        for symptom in symptoms:
            for name, value in symptom.groups.items():
                values.setdefault(name, value)
                values.setdefault(name.rstrip("0123456789"), value)  # `what2`: the same thing in another spelling
        made = finding(row_id, symptoms, case=case, values=values)
        if ranks := said_by(symptoms):
            made = _replace_cause(made, f"{made.cause} {ranks}")
        yield made


def said_by(symptoms: list[Symptom]) -> str:
    """ "On all 8 ranks …" where several ranks printed the same; "" otherwise."""
    ranks = {s.origin.rank: s for s in symptoms if s.origin.rank is not None}
    if len(ranks) < 2:
        return ""
    first = min(symptoms, key=lambda s: (s.origin.time or 0, s.span.first_line))
    return f"Printed by {len(ranks)} ranks, first by rank {first.origin.rank}."


def _replace_cause(made: Finding, cause: str) -> Finding:
    import msgspec

    return msgspec.structs.replace(made, cause=cause.strip())


RULES = (Rule(judge, (Symptom,), ()),)
