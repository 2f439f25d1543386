"""Whether a server answers real generations steadily: the result of `loadpath ready`, as written and read again."""

from __future__ import annotations

from typing import Literal

import msgspec

READY_SCHEMA = "loadpath.ready/1"

StageName = Literal["port", "health", "models", "first-token", "warm"]
STAGES: tuple[StageName, ...] = ("port", "health", "models", "first-token", "warm")
StageState = Literal["holds", "fails", "skipped", "unseen"]
FailureKind = Literal[
    "closed",
    "loading",
    "unhealthy",
    "no-model",
    "no-key",
    "refused",
    "no-token",
    "stream-error",
    "cut",
    "unsteady",
    "gone",
    "",
]
"""`closed`: no connection; `loading`: the server says so; `gone`: it had answered in an earlier stage."""


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stage. `seconds`: from the stage before it to its end, all tries together; `label`: the shape of `warm`."""

    name: StageName
    state: StageState
    seconds: float = 0.0
    label: str = ""
    kind: FailureKind = ""
    why: str = ""
    requests: int = 0
    first: float | None = None
    """Seconds to the first token of the stage's first request."""
    steady: float | None = None
    """The same once it was steady."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`at`: when, in seconds since 1970; `seconds`: how long it took; `limit`: how long it was allowed to take."""

    schema: str = READY_SCHEMA
    url: str
    ready: bool
    at: float
    seconds: float
    limit: float
    stages: tuple[Stage, ...]
    engine: str = ""
    version: str = ""
    model: str = ""
    health_says: str = ""
    """What this engine's /health means, and what it does not."""
    restarts: int = 0
    """How often it went away after it had answered."""
    went_away: str = ""
    """The stage in which it last did."""
    cached: bool = False
    """Told by a state file of an earlier check; only the port and /health were asked now."""

    @property
    def failed(self) -> Stage | None:
        """The stage that does not hold."""
        return next((stage for stage in self.stages if stage.state == "fails"), None)


def to_bytes(result: Readiness) -> bytes:
    """As a file: JSON, the head on its first line, then a stage a line."""
    fields = {name: value for name, value in msgspec.structs.asdict(result).items() if name != "stages"}
    stages = b",\n".join(msgspec.json.encode(stage) for stage in result.stages)
    return msgspec.json.encode(fields)[:-1] + b',"stages":[\n' + stages + b"\n]}\n"
