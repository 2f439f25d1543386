"""The layers of a checked machine as rows that every rendering shares: mark, name, state, why."""

from __future__ import annotations

from loadpath.core.layers import LAYERS
from loadpath.core.report import LayerReport, Report

MARKS = {"holds": "✔", "broken": "✘", "not-seen": "·"}
WORDS = {"holds": "holds", "broken": "broken", "not-seen": "not seen"}
STYLES = {"holds": "green", "broken": "bold red", "not-seen": "dim"}


def rows(report: Report) -> list[tuple[LayerReport, str, str]]:
    """(layer, its name with its number in the stack, its state in words); the host beside the stack has no number."""
    return [
        (
            layer,
            f"{LAYERS.index(layer.layer) + 1:2} {layer.layer}" if layer.layer != "host" else "   host",
            WORDS[layer.state],
        )
        for layer in report.layers
    ]


def steps_matter(report: Report) -> bool:
    """Whether the steps of a start are worth showing: on a checked machine only where a server's log was read."""
    return not report.layers or any(step.state not in ("unseen", "failed") for step in report.steps)
