"""Processes as /proc shows them: command lines, families, ages, ports, where their output goes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec

from loadpath.collect.probe import Machine
from loadpath.collect.programs import process_ids

_CONTAINER = re.compile(r"(?:docker|cri-containerd|crio|libpod|containerd)[-/:]([0-9a-f]{12,64})|/([0-9a-f]{64})")
_UNIT = re.compile(r"/([\w@.\\-]+\.service)(?:/|$)")
_LISTENING = "0A"


class Process(msgspec.Struct, frozen=True):
    """`started`: seconds after boot. `state`: the kernel's letter. `container`: the first 12 digits of its id."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    state: str
    started: float
    rss_bytes: int | None = None
    container: str | None = None
    unit: str | None = None


def processes(machine: Machine) -> dict[int, Process]:
    """Every process in sight that has a command line."""
    found = (process(machine, pid) for pid in process_ids(machine))
    return {p.pid: p for p in found if p is not None}


def process(machine: Machine, pid: int) -> Process | None:
    here = f"/proc/{pid}"
    line = machine.read(f"{here}/cmdline", 1 << 17)
    stat = (machine.text(f"{here}/stat") or "").rpartition(")")[2].split()
    if not line or len(stat) < 22:
        return None
    argv = tuple(word.decode("utf-8", "replace") for word in line.rstrip(b"\0").split(b"\0"))
    if len(argv) == 1 and argv[0].startswith(("VLLM::", "sglang::")):
        argv = tuple(argv[0].split())
    group = machine.text(f"{here}/cgroup") or ""
    container, unit = _CONTAINER.search(group), _UNIT.search(group)
    ticks, page = (os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")) if machine.live else (100, 4096)
    pages = int(stat[21]) if stat[21].isdigit() else 0
    return Process(
        pid, int(stat[1]), argv, stat[0], int(stat[19]) / ticks, pages * page or None,
        (container[1] or container[2])[:12] if container else None, unit[1] if unit and not container else None,
    )  # fmt: skip


def family(every: dict[int, Process], head: int) -> tuple[int, ...]:
    """A process and all that it started, directly or not, by number."""
    found, new = {head}, {head}
    while new:
        new = {p.pid for p in every.values() if p.parent in new} - found
        found |= new
    return tuple(sorted(found))


def uptime(machine: Machine) -> float | None:
    """Seconds since boot."""
    first = (machine.text("/proc/uptime") or "").split()[:1]
    return float(first[0]) if first and re.fullmatch(r"\d+(?:\.\d+)?", first[0]) else None


def listening(machine: Machine, pids: Iterable[int]) -> tuple[int, ...]:
    """The TCP ports that these processes listen on; none where their open files may not be seen."""
    ports: set[int] = set()
    tables: dict[str, dict[str, int]] = {}
    for pid in pids:
        space = machine.readlink(f"/proc/{pid}/ns/net") or ""
        if space not in tables:
            tables[space] = _table(machine, pid)
        for number in machine.listdir(f"/proc/{pid}/fd"):
            target = machine.readlink(f"/proc/{pid}/fd/{number}") or ""
            if target.startswith("socket:[") and target[8:-1] in tables[space]:
                ports.add(tables[space][target[8:-1]])
    return tuple(sorted(ports))


def _table(machine: Machine, pid: int) -> dict[str, int]:
    """Inode → port of every socket that listens, in the network that this process is in."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        for line in (machine.text(f"/proc/{pid}/net/{name}") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def same_network(machine: Machine, pid: int) -> bool:
    """Whether a process's localhost is ours."""
    return machine.readlink(f"/proc/{pid}/ns/net") == machine.readlink("/proc/self/ns/net")
