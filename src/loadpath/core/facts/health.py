"""Facts of health tools and metrics: DCGM diagnostics and health, Fabric Manager, exporters, alerts."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact


class DiagResult(Fact, frozen=True, kw_only=True):
    """One test of `dcgmi diag`. `gpus`: those that its words name; words broken by the table are whole again."""

    test: str
    outcome: Literal["pass", "fail", "warn", "skip"]
    gpus: tuple[int, ...] = ()
    words: str = ""


class HealthReport(Fact, frozen=True, kw_only=True):
    """One line of `dcgmi health -c`, gpud or a node health check: a component, its state and the reason."""

    component: str
    state: Literal["healthy", "degraded", "unhealthy"]
    gpu: int | None = None
    words: str = ""
    tool: str = "dcgmi"


class GpusFound(Fact, frozen=True, kw_only=True):
    """How many GPUs a tool says there are, and how many it lists in this text."""

    count: int
    listed: int
    tool: str = "dcgmi"


class Metric(Fact, frozen=True, kw_only=True):
    """One sample of a Prometheus page: name, labels, value. Readers keep those that rules know."""

    name: str
    value: float
    labels: dict[str, str] = {}


class Alert(Fact, frozen=True, kw_only=True):
    """A firing or resolved Prometheus alert."""

    name: str
    state: str
    labels: dict[str, str] = {}
    words: str = ""
