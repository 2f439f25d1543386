"""What health tools say of a node: dcgmi diag and health, gpud, the DCGM exporter, alerts.

A diagnosis that failed for want of a setting (persistence mode) is a setting, not a sick card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.health import Alert, DiagResult, GpusFound, HealthReport, Metric
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.xid import xids

_CONFIGURATION = (
    "persistence mode",
    "graphics processes",
    "environment variables",
    "denylist",
    "permissions and os blocks",
)


def judge_diag(case: Case) -> Iterator[Finding]:
    bad = [r for r in case.all(DiagResult) if r.outcome in ("fail", "warn")]
    settings = [r for r in bad if r.test.lower() in _CONFIGURATION]
    if settings:
        yield finding("gpu-diagnosis-setting", settings, case=case, values=_values(settings))
    sick: dict[str, list[DiagResult]] = {}
    for result in bad:
        if result not in settings:
            sick.setdefault(_row_of(result), []).append(result)
    for row_id, results in sick.items():
        only_warned = row_id == "gpu-diagnosis-failed" and all(r.outcome == "warn" for r in results)
        severity: Severity | None = "warning" if only_warned else None
        yield finding(row_id, results, case=case, values=_values(results), severity=severity)
    passed = [r for r in case.all(DiagResult) if r.outcome == "pass"]
    if passed and not bad:
        yield finding("gpu-diagnosis-passed", passed[:1], case=case, values={"count": len(passed)})


def _row_of(result: DiagResult) -> str:
    words = result.words.lower()
    if "thermal violation" in words:
        return "gpu-thermal-violation"
    if "uncorrectable" in words or "remapping" in words or "retire" in words or "pending" in words:
        return "gpu-diagnosis-memory"
    return "gpu-diagnosis-failed"


def _values(results: list[DiagResult]) -> dict[str, Any]:
    gpus = sorted({gpu for r in results for gpu in r.gpus})
    words = next((r.words for r in results if r.words), "no reason given")
    short = re.split(r"(?<=[.,]) |\s+Verify\b", words)[0] if "Thermal" in words else words
    return {
        "gpu": ", ".join(map(str, gpus)) if gpus else "(not named)",
        "test": next((r.test for r in results if r.test), "a test"),
        "words": short.rstrip("., ")[:240],
    }


def judge_health(case: Case) -> Iterator[Finding]:
    bad = [r for r in case.all(HealthReport) if r.state != "healthy" and r.component != "Overall Health"]
    if not bad:
        return
    worst = max(bad, key=lambda r: (r.state == "unhealthy", bool(r.words)))
    where = f"GPU {worst.gpu}, {worst.component}" if worst.gpu is not None and "GPU" not in worst.component else ""
    yield finding(
        "gpu-unhealthy-reported", bad, case=case, severity=None if worst.state == "unhealthy" else "warning",
        values={"component": where or worst.component, "state": worst.state, "words": worst.words, "tool": worst.tool},
    )  # fmt: skip


def judge_exporter(case: Case) -> Iterator[Finding]:
    """The exporter's last Xid: it stays until the exporter or the driver restarts, so it may be an old one."""
    for metric in case.all(Metric):
        if metric.name.startswith("DCGM_FI_DEV_XID_ERROR") and metric.value:
            code = int(metric.value)
            table = xids().get(code)
            gpu = metric.labels.get("gpu") or metric.labels.get("pci_bus_id") or "?"
            noise = table is not None and table.severity in ("info", "warning")
            yield finding(
                "exporter-last-xid", [metric], case=case, severity="info" if noise else None,
                values={"xid": code, "gpu": gpu, "what": table.what if table else None},
            )  # fmt: skip


def judge_alerts(case: Case) -> Iterator[Finding]:
    firing = [a for a in case.all(Alert) if a.state in ("firing", "active")]
    if firing:
        names = ", ".join(dict.fromkeys(f"{a.name} ({a.words})" if a.words else a.name for a in firing))
        where = ", ".join(dict.fromkeys(a.labels.get("instance") or a.labels.get("pod") or "" for a in firing)).strip(
            ", "
        )
        yield finding(
            "alert-firing",
            firing,
            case=case,
            values={"names": names[:300], "count": len(firing), "where": where or None},
        )


def judge_count(case: Case) -> Iterator[Finding]:
    for found in case.all(GpusFound):
        if found.listed and found.listed < found.count:
            yield finding("dcgm-listing-cut", [found], case=case, values={"count": found.count, "listed": found.listed})


RULES = (
    Rule(judge_diag, (DiagResult,), (
        "gpu-thermal-violation", "gpu-diagnosis-failed", "gpu-diagnosis-memory", "gpu-diagnosis-setting",
        "gpu-diagnosis-passed",
    )),
    Rule(judge_health, (HealthReport,), ("gpu-unhealthy-reported",)),
    Rule(judge_exporter, (Metric,), ("exporter-last-xid",)),
    Rule(judge_alerts, (Alert,), ("alert-firing",)),
    Rule(judge_count, (GpusFound,), ("dcgm-listing-cut",)),
)  # fmt: skip
