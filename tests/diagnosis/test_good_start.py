"""A start that came up: room by its own figures, and what a restart costs."""

from __future__ import annotations

from pathlib import Path

import loadpath

EXAMPLE = Path(loadpath.__file__).parent / "examples" / "kv-fp8-healthy.log"


def test_room_and_restart_of_the_walk_through() -> None:
    report = loadpath.read(EXAMPLE)
    assert report.verdict.state == "healthy" and report.root_cause is None
    found = {f.id: f for f in report.findings}
    room, restart = found["kv-cache-room"], found["restart-cost"]
    assert "54.79 GiB" in room.cause and "5.37" in room.title
    assert abs(room.figures["bytes_per_token"] - 54.79 * 2**30 / 176_128) < 100
    assert "graph-capture 47 s" in restart.cause
    assert any("now 35" in r.action for r in restart.remedies) and any(
        "--enforce-eager" in r.command for r in restart.remedies
    )


def test_a_refused_start_has_neither() -> None:
    report = loadpath.read(EXAMPLE.with_name("kv-bf16-refused.log"))
    assert not {"kv-cache-room", "restart-cost"} & {f.id for f in report.findings}
