"""How a server was told to stop. After a fatal error the same lines are only its consequences and tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Stopped
from loadpath.engines.vllm.pattern import Pattern, Seen


def _stop(how: Any, signal: str | None = None, who: str | None = None) -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        named = seen.match.groupdict().get("signal") or signal
        if seen.run.dead or not seen.run.once("stopped", how, named):
            return
        seen.run.stopping = True
        yield Stopped(**seen.common, how=how, signal=named, who=who)
        yield seen.mark("shutdown", "began", what=how)

    return make


def _shutting_down(seen: Seen) -> Iterator[Fact]:
    """uvicorn's own word: an orderly end only of a server that was up."""
    if seen.run.ready:
        yield from _stop("orderly")(seen)


def _tracker(seen: Seen) -> Iterator[Fact]:
    """Python's resource tracker outlives its parent: where nothing else tells of an end, this one does."""
    if not seen.run.dead and not seen.run.ready and not seen.run.stopping:
        yield Stopped(**seen.common, how="exit", who="resource tracker")


def _gone(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("shutdown", "ended")


PATTERNS = (
    Pattern(
        "received signal=", r"\[shutdown\] EngineCore: trigger received signal=(?P<signal>SIG\w+)", _stop("signal")
    ),
    Pattern("[shutdown] API server: shutdown triggered", r"shutdown triggered", _stop("orderly")),
    Pattern("Shutting down FastAPI HTTP server", r"Shutting down FastAPI HTTP server", _stop("orderly")),
    Pattern("Shutting down", r"^(?:\([^)]*\) )?(?:INFO:\s+)?Shutting down\s*$", _shutting_down),
    # vLLM's handler of SIGTERM raises KeyboardInterrupt("terminated"); Ctrl-C raises it without words.
    Pattern("KeyboardInterrupt", r"KeyboardInterrupt(?:: |\([\"'])terminated", _stop("signal", "SIGTERM")),
    Pattern(
        "KeyboardInterrupt", r"KeyboardInterrupt\s*$|raise KeyboardInterrupt(?!\([\"'])", _stop("interrupt", "SIGINT")
    ),
    Pattern("Cancellation requested; stopping", r"Cancellation requested; stopping", _stop("signal")),
    Pattern("SIGTERM received at time", r"\*\*\* SIGTERM received at time", _stop("signal", "SIGTERM")),
    Pattern("SystemExit: 15", r"SystemExit: 15\b", _stop("signal", "SIGTERM")),
    Pattern("DUE TO TIME LIMIT", r"CANCELLED AT .*DUE TO TIME LIMIT", _stop("time-limit", who="Slurm")),
    Pattern("CANCELLED AT", r"JOB \d+ ON \S+ CANCELLED AT \S+ \*\*\*", _stop("signal", who="Slurm")),
    Pattern("resource_tracker: There appear to be", r"resource_tracker: There appear to be \d+ leaked", _tracker),
    Pattern("Application shutdown complete", r"Application shutdown complete", _gone),
)
