"""Prometheus alerts as JSON (the API's `/api/v1/alerts`, or what Alertmanager sends), and gpud's health states.

{"status":"success","data":{"alerts":[{"labels":{"alertname":"Down","job":"vllm"},"state":"firing",…}]}}
[{"component":"accelerator-nvidia-error-xid","states":[{"health":"Unhealthy","reason":"XID 79 …"}]}]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.health import Alert, HealthReport
from loadpath.core.text import Capture, Line
from loadpath.readers.documents import Broken, json_extent, parse_json

LOOK_AHEAD = 40  # lines in which a pretty-printed document names its kind
_STATES: dict[str, Literal["healthy", "degraded", "unhealthy"]] = {
    "healthy": "healthy", "initializing": "healthy", "degraded": "degraded", "unhealthy": "unhealthy",
}  # fmt: skip


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text
    if text not in ("{", "[", "[{") and not text.startswith(('{"', '[{"', '{ "', "[ {")):
        return i
    head = " ".join(line.text for line in lines[i : i + LOOK_AHEAD])[:20_000]
    is_alerts = '"alerts"' in head and '"labels"' in head
    is_gpud = '"component"' in head and ('"health"' in head or '"healthy"' in head)
    return json_extent(lines, i) if is_alerts or is_gpud else i


def read(capture: Capture) -> Iterator[Fact]:
    try:
        document = parse_json(capture.text)
    except Broken:
        return
    common = at(capture, capture.lines[0], capture.lines[-1])
    if isinstance(document, dict):
        inner = document.get("data")
        alerts = (inner if isinstance(inner, dict) else document).get("alerts")
        for alert in alerts if isinstance(alerts, list) else ():
            if isinstance(alert, dict):
                yield _alert(common, alert)
        document = document.get("components") or [document]
    for component in document if isinstance(document, list) else ():
        if isinstance(component, dict) and "component" in component:
            yield from _component(common, component)


def _alert(common: dict[str, Any], alert: dict[str, Any]) -> Alert:
    labels = {str(k): str(v) for k, v in (alert.get("labels") or {}).items()}
    notes = alert.get("annotations") or {}
    words = str(notes.get("summary") or notes.get("description") or notes.get("message") or "")
    state = alert.get("state") or alert.get("status")
    if isinstance(state, dict):
        state = "firing" if state.get("state") == "active" else state.get("state")
    name = labels.get("alertname", "?")
    text = f"{name} {state} {words}".strip()
    return Alert(**{**common, "text": text}, name=name, state=str(state), labels=labels, words=words)


def _component(common: dict[str, Any], component: dict[str, Any]) -> Iterator[HealthReport]:
    name = str(component["component"])
    for state in component.get("states") or ():
        if not isinstance(state, dict):
            continue
        health = str(state.get("health") or ("Healthy" if state.get("healthy") else "Unhealthy")).lower()
        if health in _STATES:
            words = str(state.get("reason") or state.get("error") or "")
            text = f"{name}: {health} {words}".strip()
            fields = {**common, "text": text}
            yield HealthReport(**fields, component=name, state=_STATES[health], words=words, tool="gpud")
