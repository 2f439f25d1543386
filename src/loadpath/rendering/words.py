"""The words that every rendering shares: labels of states, steps and boundaries, and figures with their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadpath.core.report import Evidence, Finding, Report
from loadpath.core.units import show_bytes, show_count, show_seconds

STATES = {"failed": "FAILED", "degraded": "DEGRADED", "healthy": "HEALTHY", "starting": "STARTING",
          "unknown": "NOT ENOUGH TO JUDGE"}  # fmt: skip
PLANNED = ("sweep", "which-gpu", "training")
"""Tables of plans that stand for the plan itself."""
STEP_MARKS = {"done": "✔", "failed": "✘", "stalled": "…", "running": "▶", "skipped": "–", "unseen": "·"}
ACTIONS = {
    "none": "nothing",
    "change-settings": "change a setting",
    "restart-process": "restart the process",
    "replace-group": "replace the serving group",
    "drain": "drain the node",
    "reset-gpu": "reset the GPU",
    "reboot": "reboot the node",
    "service": "have the hardware serviced",
}


def state(report: Report) -> str:
    """The verdict's label: a plan is one, whatever it says."""
    return (
        "PLANNED"
        if report.plan or any(table.id in PLANNED for table in report.tables)
        else STATES[report.verdict.state]
    )


def figure(name: str, value: Any) -> str:
    """One figure as `name value unit`, the unit taken from the name's ending."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{label(name)} {value}"
    for ending, show in (
        ("_bytes", show_bytes),
        ("bytes", show_bytes),
        ("_seconds", show_seconds),
        ("seconds", show_seconds),
    ):
        if name.endswith(ending):
            return f"{label(name.removesuffix(ending))} {show(value)}".strip()
    if isinstance(value, int):
        return f"{label(name)} {show_count(value)}"
    return f"{label(name)} {value:,.4g}"


def figures(values: Mapping[str, Any]) -> str:
    return ", ".join(figure(name, value) for name, value in values.items() if value is not None)


def label(name: str) -> str:
    return name.strip("_").replace("_", " ")


def judgement(finding: Finding) -> str:
    """ "established · memory-fit · at kv-pool": how sure, which contract, where."""
    step = "" if finding.step == "unseen" else f" · at {finding.step}"
    return f"{finding.certainty} · {finding.boundary}{step}"


def action(finding: Finding) -> str:
    """What an operator has to do now, with what it touches; "" where nothing."""
    if finding.operator_action == "none":
        return ""
    radius = f" (touches: {finding.blast_radius})" if finding.blast_radius else ""
    return ACTIONS[finding.operator_action] + radius


def took(seconds: float | None) -> str:
    """A step's duration; most logs print whole seconds, so nothing shorter than half of one is told exactly."""
    if seconds is None:
        return ""
    return "< 1 s" if seconds < 0.5 else show_seconds(seconds)


def notes(report: Report) -> list[str]:
    """What else to tell: earlier starts, input that was not kept, and, where nothing could be judged, what was missing."""
    told = [*report.notes, *(f"{s.what}: {s.why}" for s in report.skipped if s.kind == "input")]
    if report.verdict.state == "unknown" and not report.layers:  # a checked machine's layers say it
        told += [f"not judged, {s.what} {s.why}" for s in report.skipped if s.kind == "rule"]
    return told


def place(evidence: Evidence) -> str:
    """`start.log:41`: the file's own name is enough beside a line; the folders are in the list of what was read."""
    return f"{evidence.source.rpartition('/')[2] or evidence.source}:{evidence.line}"


def seen(report: Report) -> str:
    """What was read: "vllm-log, nvidia-smi from start.log"."""
    kinds = list(dict.fromkeys(c.kind for c in report.captures))
    sources = list(dict.fromkeys(c.source for c in report.captures))
    if not kinds:
        return "nothing that loadpath knows"
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    return f"{', '.join(kinds)} from {', '.join(sources[:3])}{more}"


def grouped(report: Report) -> list[tuple[str, list[Finding]]]:
    """The findings beside the root cause: (heading, findings) by severity, empty ones left out."""
    rest = [f for f in report.findings if f.id != report.root_cause]
    headings = (("error", "Also broken"), ("warning", "Also worth a look"), ("info", "Noted"))
    return [(heading, own) for severity, heading in headings if (own := [f for f in rest if f.severity == severity])]
