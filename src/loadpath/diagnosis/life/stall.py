"""A followed start that has fallen silent for longer than its step normally takes."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.engine import Silence, StepMark
from loadpath.core.report import Finding
from loadpath.core.units import show_seconds
from loadpath.diagnosis.ladder import ladder, patience
from loadpath.diagnosis.rule import Rule, finding


def judge(case: Case) -> Iterator[Finding]:
    """The step that is stalled by the clock; said with its normal pace, and as likely, since silence proves nothing."""
    silence = case.last(Silence)
    if silence is None:
        return
    for rung in ladder(case):
        if rung.state == "stalled" and silence.seconds > (normal := patience(case, rung.step)):
            yield finding(
                "start-stalled",
                [m for m in case.all(StepMark) if m.step == rung.step][-1:],
                case=case, step=rung.step,
                values={"step": rung.step, "silent": show_seconds(silence.seconds), "normal": show_seconds(normal)},
            )  # fmt: skip


RULES = (Rule(judge, (Silence, StepMark), ("start-stalled",)),)
