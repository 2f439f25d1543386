"""Facts of a readiness check: the run, and each of its stages."""

from __future__ import annotations

from loadpath.core.facts.base import Fact
from loadpath.core.readiness import FailureKind, StageName, StageState


class ReadyRun(Fact, frozen=True, kw_only=True):
    """One passage through the stages; fields as in `core.readiness.Readiness`. Seconds."""

    url: str
    ready: bool
    seconds: float
    limit: float
    engine: str = ""
    version: str = ""
    model: str = ""
    health_says: str = ""
    restarts: int = 0
    went_away: str = ""


class ReadyStage(Fact, frozen=True, kw_only=True):
    """One stage of it; fields as in `core.readiness.Stage`. Seconds."""

    name: StageName
    state: StageState
    seconds: float = 0.0
    label: str = ""
    kind: FailureKind = ""
    why: str = ""
    requests: int = 0
    first: float | None = None
    steady: float | None = None
