"""A readiness check as a report, and as one line."""

from __future__ import annotations

import msgspec

from loadpath.core.readiness import Readiness, Stage, to_bytes
from loadpath.core.report import Report, Verdict
from loadpath.core.table import Column, Table
from loadpath.core.units import show_seconds


def report_on(result: Readiness) -> Report:
    """Verdict, the stages with their times, findings: those of `loadpath read` on the saved result."""
    from loadpath.reading.service import read_bytes  # a probe prints one line, and needs no rules

    read = read_bytes([("readiness", to_bytes(result))])
    notes = []
    if result.health_says and result.ready:
        notes.append(f"{result.health_says}.")
    if result.restarts:
        often = "once" if result.restarts == 1 else f"{result.restarts} times"
        notes.append(f"It went away {often} during the check, last in the stage {result.went_away}.")
    state = "healthy" if result.ready else read.verdict.state
    if state == "healthy" and not result.ready:
        state = "failed"
    return msgspec.structs.replace(
        read,
        verdict=Verdict(state, f"{line(result)}."),
        findings=() if result.ready else read.findings,
        tables=(_table(result),),
        steps=(),
        facts=(),
        captures=(),
        skipped=(),
        notes=tuple(notes),
    )


def line(result: Readiness) -> str:
    """`Ready in 41 s: m answers, first token 1.9 s, 128x16 steady at 21 ms`, or the stage that does not hold and why."""
    failed = result.failed
    if failed is not None:
        place = f"{failed.name} {failed.label}".strip()
        died = f"it went away in the stage {result.went_away}; " if result.went_away else ""
        return f"Not ready after {show_seconds(result.seconds)}: {died}{place}: {failed.why}".rstrip(". ")
    told = [f"{result.model} answers" if result.model else "it answers"]
    first = next((stage.first for stage in result.stages if stage.name == "first-token"), None)
    if first is not None:
        told.append(f"first token {_ms(first)}")
    told += [f"{s.label} steady at {_ms(s.steady)}" for s in result.stages if s.steady is not None]
    if result.cached:
        told.append("as an earlier check saw; port and health page asked now")
    return f"Ready in {show_seconds(result.seconds)}: {', '.join(told)}"


def stage_line(stage: Stage) -> str:
    """`first-token  holds  1.9 s  /v1/chat/completions`: progress for people."""
    return f"{f'{stage.name} {stage.label}'.strip():<18} {stage.state:<8} {show_seconds(stage.seconds):>9}  {stage.why}".rstrip()


def _table(result: Readiness) -> Table:
    columns = (Column("stage"), Column("state"), Column("took", "seconds"), Column("requests"),
               Column("first token", "seconds"), Column("steady", "seconds"), Column("what it said"))  # fmt: skip
    rows = tuple(
        (
            f"{stage.name} {stage.label}".strip(), stage.state, None if stage.state == "unseen" else stage.seconds,
            stage.requests or None, stage.first, stage.steady, stage.why,
        )
        for stage in result.stages
    )  # fmt: skip
    return Table("readiness", f"Stages of {result.url}", columns, rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else show_seconds(seconds)
