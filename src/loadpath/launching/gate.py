"""The health check that asks for a real generation: `loadpath ready --probe`, run inside the container."""

from __future__ import annotations

from loadpath.launching.spec import Launch

STATE = "/tmp/loadpath-ready.json"
SECONDS = 30
"""Time-out of a probe; the command itself gives up a little before."""
WHY = "a generated token, not only an open port; the image has to hold loadpath"


def gate_words(made: Launch) -> list[str]:
    """The command. A look that follows a good one asks only port and health page, for a minute; then a token again."""
    url = f"http://127.0.0.1:{made.port}"
    return ["loadpath", "ready", url, "--probe", "--timeout", f"{SECONDS - 5}s", "--state", STATE]
