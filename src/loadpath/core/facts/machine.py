"""Facts about a live machine that only probes state: how each probe went, where loadpath ran, what the kernel holds."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Outcome = Literal["ok", "failed", "missing", "denied", "timed-out", "not-run"]


class ProbeRan(Fact, frozen=True, kw_only=True):
    """One probe of a machine: how it was asked and how that went (see `core.sample.Sample`)."""

    name: str
    kind: str
    command: str = ""
    status: int | None = None
    seconds: float = 0.0
    started: str = ""
    outcome: Outcome = "ok"
    note: str = ""


class Whereabouts(Fact, frozen=True, kw_only=True):
    """Where loadpath ran. `container`: the signs of one, in words; `user`: `root` or `uid N`."""

    kernel: str | None = None
    os: str | None = None
    user: str | None = None
    groups: tuple[int, ...] = ()
    container: tuple[str, ...] = ()
    pod: bool = False
    user_namespace: bool = False
