"""Which processes hold the GPU's device files: the view of `fuser -v /dev/nvidia*`, from /proc, containers named."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.collect.probe import Machine, Sample
from loadpath.core.masking import mask

_CONTAINER_ID = re.compile(r"(?:docker|cri-containerd|crio|libpod|containerd)[-/:]([0-9a-f]{12,64})|/([0-9a-f]{64})")
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f-_]{20,})")
MOST = 400
COMMAND_CHARS = 300


def gather_holders(machine: Machine) -> Iterator[Sample]:
    lines: list[str] = []
    hidden = own = 0
    for pid in (name for name in machine.listdir("/proc") if name.isdigit()):
        own += 1
        devices = _devices(machine, pid)
        if devices is None:
            hidden += 1
        elif devices and len(lines) < MOST:
            lines.append(_line(machine, pid, devices))
    lines.append(f"processes: {own} in sight, {hidden} of them hide their open files from this user")
    yield machine.told(lines, name="device-holders", kind="device-access", command="fuser -v /dev/nvidia*")


def _devices(machine: Machine, pid: str) -> list[str] | None:
    """The device files that a process has open; None where that may not be seen."""
    here = f"/proc/{pid}/fd"
    numbers = machine.listdir(here)
    if not numbers and machine.why_unread(here) == "denied":
        return None
    targets = {machine.readlink(f"{here}/{number}") or "" for number in numbers}
    return sorted(t.removeprefix("/dev/") for t in targets if t.startswith("/dev/nvidia"))


def _line(machine: Machine, pid: str, devices: list[str]) -> str:
    status = machine.text(f"/proc/{pid}/status") or ""
    name = _field(status, "Name") or "?"
    user = (_field(status, "Uid") or "?").split()[0]
    command = (machine.read(f"/proc/{pid}/cmdline", 4096) or b"").replace(b"\0", b" ").decode("utf-8", "replace")
    group = machine.text(f"/proc/{pid}/cgroup") or ""
    parts = [
        f"pid={pid}",
        f"uid={user}",
        f"state={(_field(status, 'State') or '?')[:1]}",
        f"devices={','.join(devices)}",
    ]
    if found := _CONTAINER_ID.search(group):
        parts.append(f"container={(found[1] or found[2])[:12]}")
    if pod := _POD.search(group):
        parts.append(f"pod={pod[1]}")
    return f"holder: {' '.join(parts)} name={name} command={mask(command.strip()[:COMMAND_CHARS])}"


def _field(status: str, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in status.splitlines() if line.startswith(f"{name}:")), "")
