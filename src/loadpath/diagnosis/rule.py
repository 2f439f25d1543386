"""What a rule is, and the making of findings from table rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.report import Check, Evidence, Figures, Finding, Remedy
from loadpath.core.vocabulary import Certainty, FindingStep, Severity
from loadpath.knowledge.tables import FindingRow, findings

MOST_EVIDENCE = 6
GAP = re.compile(r"\s*(?:\([^()]*\{\w+\}[^()]*\)|(?::|,| of| by| at| in| on| to| with| for)?\s*['\"]?\{\w+\}['\"]?%?)")
SAME_ENDING = 160  # characters: messages that end alike so far are one message


class Rule(msgspec.Struct, frozen=True):
    """`judge` runs when at least one fact of every type in `needs` is there. `uses`: what sharpens it.
    `makes`: ids of the findings that it can make (each has a row in knowledge/findings)."""

    judge: Callable[[Case], Iterable[Finding]]
    needs: tuple[type[Fact], ...]
    makes: tuple[str, ...]
    uses: tuple[type[Fact], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.judge.__module__.partition('.diagnosis.')[2] or self.judge.__module__}.{self.judge.__name__}"


def fill(template: str, values: Mapping[str, Any]) -> str | None:
    """`template` with its `{names}` filled in; None where one of them has no value."""
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name]
    except ValueError:
        return template
    if any(values.get(name) in (None, "") for name in names):
        return None
    return template.format_map(values) if names else template.replace("{{", "{").replace("}}", "}")


def without_gaps(template: str) -> str:
    """`template` with its `{names}` taken out, along with the brackets, colons and prepositions that led to them."""
    return GAP.sub("", template).strip()


def finding(
    row_id: str,
    facts: Sequence[Fact],
    *,
    case: Case,
    values: Mapping[str, Any] | None = None,
    cause: str | None = None,
    title: str | None = None,
    severity: Severity | None = None,
    certainty: Certainty | None = None,
    step: FindingStep | None = None,
    remedies: Sequence[Remedy] | None = None,
    next_checks: Sequence[Check] | None = None,
    consequences: Sequence[str] = (),
    figures: Figures | None = None,
    **changes: Any,
) -> Finding:
    """The finding of table row `row_id`, shown by `facts` (their lines are its evidence).

    Whatever is not given comes from the row, its templates filled with `values`. `changes` are further
    fields of Finding (`boundary`, `operator_action`, `blast_radius`). Raises KeyError for an unknown row.
    """
    row = findings()[row_id]
    values = values or {}
    return Finding(
        id=row.id,
        severity=severity or row.severity,
        certainty=certainty or row.certainty,
        step=step or step_of(row, facts, case),
        boundary=changes.pop("boundary", row.boundary),
        title=title or fill(row.title, values) or without_gaps(row.title),
        cause=cause if cause is not None else " ".join(s for t in row.cause if (s := fill(t, values)) is not None),
        evidence=evidence(facts),
        remedies=tuple(remedies) if remedies is not None else row_remedies(row, values),
        next_checks=tuple(next_checks) if next_checks is not None else row_checks(row, values),
        operator_action=changes.pop("operator_action", row.operator_action),
        blast_radius=changes.pop("blast_radius", row.blast_radius),
        consequences=tuple(consequences),
        figures=figures or {},
        **changes,
    )


def row_of(made: Finding) -> FindingRow:
    """The table row of a finding; for one that a rule of another package made, a row of its own words."""
    row = findings().get(made.id)
    return row or FindingRow(made.id, made.boundary, made.title, severity=made.severity, certainty=made.certainty)


def row_remedies(row: FindingRow, values: Mapping[str, Any]) -> tuple[Remedy, ...]:
    made = []
    for remedy in row.remedies:
        action, command = fill(remedy.action, values), fill(remedy.command, values)
        if action is not None and command is not None:
            made.append(Remedy(action, command, fill(remedy.effect, values) or ""))
    return tuple(made)


def row_checks(row: FindingRow, values: Mapping[str, Any]) -> tuple[Check, ...]:
    made = []
    for check in row.next_checks:
        why, command = fill(check.why, values), fill(check.command, values)
        if why is not None and command is not None:
            made.append(Check(why, command))
    return tuple(made)


def evidence(facts: Iterable[Fact], most: int = MOST_EVIDENCE) -> tuple[Evidence, ...]:
    """The facts' own lines in order, each message once: ranks and loggers repeat it behind other prefixes."""
    seen: dict[tuple[str, int], Evidence] = {}
    for fact in facts:
        key = (fact.span.source, fact.span.first_line)
        if fact.text and key not in seen:
            seen[key] = Evidence(*key, fact.text)
    by_message: dict[str, Evidence] = {}
    for key in sorted(seen):
        by_message.setdefault(seen[key].text[-SAME_ENDING:], seen[key])
    return tuple(by_message.values())[:most]


def step_of(row: FindingRow, facts: Sequence[Fact], case: Case) -> FindingStep:
    """The row's step, or for `auto` the step in which the run was when the first of `facts` was printed.

    `auto:warm-up` says where such a thing usually happens, for logs that show no step.
    """
    how, _, usual = row.step.partition(":")
    if how != "auto":
        return row.step  # type: ignore[return-value]
    from loadpath.diagnosis.ladder import step_at

    seen = step_at(case, facts[0]) if facts else "unseen"
    return usual if usual and seen == "unseen" else seen  # type: ignore[return-value]
