"""The report: what every verb ends in. Field names are the JSON contract (`loadpath.report/1`, additive)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loadpath.core.layers import Layer, LayerState
from loadpath.core.plan import Plan
from loadpath.core.table import Table
from loadpath.core.vocabulary import (
    BlastRadius,
    Boundary,
    Certainty,
    FindingStep,
    OperatorAction,
    Severity,
    State,
    Step,
    StepState,
)

SCHEMA = "loadpath.report/1"
Figures = dict[str, Any]


class Evidence(msgspec.Struct, frozen=True):
    """A line that shows what a finding says: the text as pasted, secrets masked."""

    source: str
    line: int
    text: str


class Remedy(msgspec.Struct, frozen=True):
    """One change. `command` is the exact flag or command; `effect` its predicted effect, with figures.

    `figures` holds the same effect for programs (units in the names, e.g. `kv_bytes`, `tokens`); `suffices`
    says whether this change alone ends the fault (None: cannot be told from the capture).
    """

    action: str
    command: str = ""
    effect: str = ""
    figures: Figures = {}
    suffices: bool | None = None


class Check(msgspec.Struct, frozen=True):
    """A read-only command (or a capture to send) that settles an open question, and which question."""

    why: str
    command: str


class Finding(msgspec.Struct, frozen=True):
    """One judged thing. `id` is a stable slug listed by `loadpath rules`, explained by `loadpath explain`."""

    id: str
    severity: Severity
    certainty: Certainty
    step: FindingStep
    boundary: Boundary
    title: str
    cause: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    next_checks: tuple[Check, ...] = ()
    operator_action: OperatorAction = "none"
    blast_radius: BlastRadius | None = None
    consequences: tuple[str, ...] = ()
    """Ids of findings folded under this one: they happened because of it."""
    figures: Figures = {}


class Verdict(msgspec.Struct, frozen=True):
    state: State
    sentence: str


class StepReport(msgspec.Struct, frozen=True):
    """One rung of the ladder. `seconds` is its duration where the log tells it; `ranks` per-rank durations."""

    step: Step
    state: StepState
    seconds: float | None = None
    figures: Figures = {}
    ranks: dict[str, float] = {}


class LayerReport(msgspec.Struct, frozen=True):
    """One layer of a checked machine. `why`: what shows it, or what would; `evidence`: the lines that do."""

    layer: Layer
    state: LayerState
    why: str = ""
    evidence: tuple[Evidence, ...] = ()


class MemoryPart(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    basis: str = "read"
    """`read` from the log, `computed` from figures in it, or `assumed`."""


class MemoryLedger(msgspec.Struct, frozen=True):
    """Where one GPU's memory went. `gpu` is the index (or rank) as the log names it."""

    gpu: int
    total_bytes: int | None
    parts: tuple[MemoryPart, ...]
    budget_bytes: int | None = None
    utilisation: float | None = None


class CaptureReport(msgspec.Struct, frozen=True):
    kind: str
    source: str
    first_line: int
    last_line: int
    run: int = 1


class Skipped(msgspec.Struct, frozen=True):
    """A rule that could not run for want of facts, or input that was not kept: told, never silent."""

    what: str
    why: str
    kind: Literal["rule", "input"] = "input"


class Report(msgspec.Struct, frozen=True):
    verdict: Verdict
    root_cause: str | None = None
    findings: tuple[Finding, ...] = ()
    steps: tuple[StepReport, ...] = ()
    memory: tuple[MemoryLedger, ...] = ()
    layers: tuple[LayerReport, ...] = ()
    """Of a checked machine (`check`, a bundle), from the ground up; empty where no probe ran."""
    holds: tuple[str, ...] = ()
    """Boundaries of the stack that the captures prove to work."""
    captures: tuple[CaptureReport, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[dict[str, Any], ...] = ()
    plan: Plan | None = None
    """What `plan` computed; the findings then judge the lines that the engine would print."""
    tables: tuple[Table, ...] = ()
    bench: Figures = {}
    """What `bench` measured: `loadpath.bench/1` without its single requests; empty for other verbs."""
    schema: str = SCHEMA

    @property
    def root(self) -> Finding | None:
        return next((f for f in self.findings if f.id == self.root_cause), None)


def exit_status(report: Report, fail_on: Severity = "error") -> int:
    """0 nothing at `fail_on`, 1 a finding at it (or worse), 3 not enough evidence to judge."""
    grave = {"error": ("error",), "warning": ("error", "warning"), "info": ("error", "warning", "info")}[fail_on]
    if any(f.severity in grave for f in report.findings):
        return 1
    return 3 if report.verdict.state == "unknown" else 0
