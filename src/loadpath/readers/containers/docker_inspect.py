"""`docker inspect` (and `podman inspect`), whole, cut or one field: how a container ended and what it was given.

"State": {"Status": "exited", "OOMKilled": true, "ExitCode": 137, "Error": ""},
"HostConfig": {"ShmSize": 67108864, "IpcMode": "private", "Memory": 8589934592, "Runtime": "runc", "DeviceRequests": null}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import ContainerState
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture, Line
from loadpath.core.units import show_bytes

# Settings by the field of HostConfig; 0, "" and null mean that nothing was asked.
_SETTINGS = {
    "ShmSize": "shm-size",
    "IpcMode": "ipc",
    "Memory": "memory",
    "Runtime": "runtime",
    "PidsLimit": "pids-limit",
}


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(
        r'"(?P<key>Status|OOMKilled|ExitCode|Error|RestartCount|ShmSize|IpcMode|Memory|Runtime|PidsLimit|DeviceRequests)"'
        r'\s*:\s*(?:"(?P<text>[^"]*)"|(?P<bare>true|false|null|-?\d+|\[))'
    )


def read(capture: Capture) -> Iterator[Fact]:
    state: dict[str, Any] = {}
    first: Line | None = None
    for line in capture.lines:
        for found in _pattern().finditer(line.text):
            key, value = found["key"], found["text"] if found["text"] is not None else found["bare"]
            if key in _SETTINGS:
                yield from _setting(capture, line, key, value)
            elif key == "DeviceRequests":
                if value == "[":
                    yield Setting(**at(capture, line), name="docker:gpus", value="requested", basis="dump")
                elif value == "null":
                    yield Setting(**at(capture, line), name="docker:device-requests", value="none", basis="dump")
            else:
                if key in state and key == "Status" and first is not None:
                    yield _state(capture, first, state)
                    state = {}
                first = line if key in ("Status", "OOMKilled") or first is None else first
                state[key] = value
    if first is not None and ("OOMKilled" in state or "ExitCode" in state):
        yield _state(capture, first, state)


def _setting(capture: Capture, line: Line, key: str, value: str) -> Iterator[Setting]:
    if value in ("0", "", "null"):
        return
    shown = show_bytes(int(value)) if key in ("ShmSize", "Memory") and value.isdigit() else value
    yield Setting(**at(capture, line), name=f"docker:{_SETTINGS[key]}", value=shown, basis="dump")


def _state(capture: Capture, line: Line, seen: dict[str, Any]) -> ContainerState:
    running: Literal["running", "terminated"] = "running" if seen.get("Status") == "running" else "terminated"
    code = seen.get("ExitCode", "")
    return ContainerState(
        **at(capture, line), state=running, reason=seen.get("Status"), error=seen.get("Error") or None,
        exit_code=int(code) if code.lstrip("-").isdigit() and running == "terminated" else None,
        oom_killed={"true": True, "false": False}.get(seen.get("OOMKilled", "")),
        restarts=int(seen["RestartCount"]) if seen.get("RestartCount", "").isdigit() else None,
    )  # fmt: skip
