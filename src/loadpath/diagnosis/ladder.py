"""The step ladder: which steps of the start were seen, how long each took, and where a fact stands on it."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import StepMark
from loadpath.core.report import StepReport
from loadpath.core.vocabulary import STEPS, FindingStep


def step_at(case: Case, fact: Fact) -> FindingStep:
    """The step in which the run was when `fact` was printed: the last mark before its line, in the same source and run."""
    before = [
        mark for mark in case.all(StepMark)
        if mark.span.source == fact.span.source and mark.run == fact.run
        and mark.span.first_line <= fact.span.first_line
    ]  # fmt: skip
    if not before:
        return "unseen"
    last = max(before, key=lambda mark: (mark.span.first_line, STEPS.index(mark.step)))
    if last.event == "ended" and last.step in STEPS[:-1]:
        return STEPS[STEPS.index(last.step) + 1]
    return last.step


def ladder(case: Case) -> tuple[StepReport, ...]:
    """One StepReport for each step, in order."""
    reports = []
    for step in STEPS:
        marks = [mark for mark in case.all(StepMark) if mark.step == step]
        if not marks:
            reports.append(StepReport(step, "unseen"))
            continue
        last = marks[-1]
        state = {"ended": "done", "failed": "failed", "skipped": "skipped"}.get(last.event, "running")
        seconds = next((m.seconds for m in reversed(marks) if m.seconds is not None), None)
        reports.append(StepReport(step, state, seconds))  # type: ignore[arg-type]
    return tuple(reports)
