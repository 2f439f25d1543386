"""Why a server is not ready: the stage that does not hold, and what the stages before it prove."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.readiness import ReadyRun, ReadyStage
from loadpath.core.report import Finding
from loadpath.core.units import show_seconds
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.engine_health import engine_health

HOLDS = "ready-holds"
_ROWS = {
    "closed": "ready-port-closed",
    "loading": "ready-still-loading",
    "unhealthy": "ready-unhealthy",
    "no-model": "ready-no-model",
    "no-key": "ready-no-key",
    "refused": "ready-refused",
    "no-token": "ready-no-token",
    "stream-error": "ready-stream-error",
    "cut": "ready-cut",
    "unsteady": "ready-not-steady",
    "gone": "ready-gone",
}


def judge(case: Case) -> Iterator[Finding]:
    run = case.last(ReadyRun)
    if run is None:
        return
    if run.ready:
        yield finding(
            HOLDS, [run], case=case, values={"url": run.url, "model": run.model, "waited": show_seconds(run.seconds)}
        )
        return
    stages = [s for s in case.all(ReadyStage) if s.span.source == run.span.source]
    failed = next((stage for stage in stages if stage.state == "fails"), None)
    if failed is None:
        return
    died = run.went_away and failed.kind in ("closed", "gone")
    row = "ready-gone" if died else _ROWS.get(failed.kind, "ready-refused")
    yield finding(row, [failed], case=case, values=_values(run, stages, failed))


def _values(run: ReadyRun, stages: list[ReadyStage], failed: ReadyStage) -> dict[str, Any]:
    health = engine_health().get(run.engine)
    health_held = any(stage.name == "health" and stage.state == "holds" and stage.why for stage in stages)
    return {
        "url": run.url,
        "stage": run.went_away or failed.name,
        "why": failed.why,
        "limit": show_seconds(run.limit),
        "waited": show_seconds(run.seconds),
        "model": run.model,
        "engine": run.engine,
        "shape": failed.label,
        "health": run.health_says if health_held else "",
        "log": health.log if health else "",
        "requests": failed.requests or "",
        "first": show_seconds(failed.first) if failed.first else "",
    }


RULES = (Rule(judge, needs=(ReadyRun, ReadyStage), makes=(HOLDS, *_ROWS.values())),)
