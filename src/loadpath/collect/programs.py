"""Where programs lie, and which processes run."""

from __future__ import annotations

from loadpath.collect.probe import Machine

_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/nvidia/toolkit",
           "/opt/bin", "/snap/bin", "/run/current-system/sw/bin")  # fmt: skip


def find_program(machine: Machine, name: str) -> str | None:
    """The path of a program: in PATH, or where such programs lie; None where it is nowhere."""
    folders = [*(p for p in machine.environ.get("PATH", "").split(":") if p.startswith("/")), *_PLACES]
    return next((f"{folder}/{name}" for folder in dict.fromkeys(folders) if machine.exists(f"{folder}/{name}")), None)


def process_ids(machine: Machine) -> list[int]:
    return sorted(int(name) for name in machine.listdir("/proc") if name.isdigit())


def process_names(machine: Machine) -> frozenset[str]:
    """The short names (15 letters at most) of all processes in sight."""
    return frozenset(machine.text(f"/proc/{pid}/comm") or "" for pid in process_ids(machine))
