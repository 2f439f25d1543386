"""Limits of control groups, of both versions, as their files state them."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.collect.probe import Machine

_UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as a figure near the largest there is."""


def cgroup_limits(machine: Machine, pid: int | str = "self") -> dict[str, object]:
    """The tightest limits on the way from a process's control group up to the root, and what is used of them.

    The fields are those of the fact CgroupLimits; empty where nothing can be read.
    """
    own = (machine.text(f"/proc/{pid}/cgroup") or "").splitlines()
    paths = {field[1]: field[2] for line in own if len(field := line.split(":", 2)) == 3}
    if machine.exists("/sys/fs/cgroup/cgroup.controllers"):
        return _version_2(machine, paths.get("", "/"))
    by_controller = {name: path for names, path in paths.items() for name in names.split(",") if name}
    return _version_1(machine, by_controller)


def _upwards(machine: Machine, base: str, path: str) -> Iterator[str]:
    """The folders of a group and those above it, the nearest first; in a container its own is the root that it sees."""
    path = path if machine.exists(base + path) else "/"
    while True:
        yield (base + path).rstrip("/")
        if path in ("/", ""):
            return
        path = path.rpartition("/")[0] or "/"


def _version_2(machine: Machine, path: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for here in _upwards(machine, "/sys/fs/cgroup", path):
        limit = _number(machine.text(f"{here}/memory.max"))
        if limit is not None and limit < int(str(found.get("memory_bytes", _UNLIMITED))):
            found |= {"path": here, "memory_bytes": limit, "used_bytes": _number(machine.text(f"{here}/memory.current")),
                      "cache_bytes": _field(machine.text(f"{here}/memory.stat"), "inactive_file")}  # fmt: skip
            found |= {"swap_bytes": _number(machine.text(f"{here}/memory.swap.max"))}
        found.setdefault("oom_kills", _field(machine.text(f"{here}/memory.events"), "oom_kill"))
        quota, _, period = (machine.text(f"{here}/cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit():
            cpus = int(quota) / max(1, int(period))
            if cpus < float(str(found.get("cpus", _UNLIMITED))):
                found |= {"cpus": cpus, "throttled_share": _throttled(machine.text(f"{here}/cpu.stat"))}
        pids = _number(machine.text(f"{here}/pids.max"))
        if pids is not None and pids < int(str(found.get("pids", _UNLIMITED))):
            found |= {"pids": pids, "pids_used": _number(machine.text(f"{here}/pids.current"))}
    found.setdefault("path", f"/sys/fs/cgroup{path}")
    return found


def _version_1(machine: Machine, paths: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for here in _upwards(machine, "/sys/fs/cgroup/memory", paths.get("memory", "/")):
        limit = _number(machine.text(f"{here}/memory.limit_in_bytes"))
        if limit is not None and limit < int(str(found.get("memory_bytes", _UNLIMITED))):
            found |= {"path": here, "memory_bytes": limit, "used_bytes": _number(machine.text(f"{here}/memory.usage_in_bytes")),
                      "cache_bytes": _field(machine.text(f"{here}/memory.stat"), "total_inactive_file")}  # fmt: skip
        found.setdefault("oom_kills", _field(machine.text(f"{here}/memory.oom_control"), "oom_kill"))
    for here in _upwards(machine, "/sys/fs/cgroup/cpu", paths.get("cpu", "/")):
        quota, period = (_number(machine.text(f"{here}/cpu.cfs_{what}_us")) for what in ("quota", "period"))
        if quota is not None and period and quota > 0 and quota / period < float(str(found.get("cpus", _UNLIMITED))):
            found |= {"cpus": quota / period, "throttled_share": _throttled(machine.text(f"{here}/cpu.stat"))}
    for here in _upwards(machine, "/sys/fs/cgroup/pids", paths.get("pids", "/")):
        pids = _number(machine.text(f"{here}/pids.max"))
        if pids is not None and pids < int(str(found.get("pids", _UNLIMITED))):
            found |= {"pids": pids, "pids_used": _number(machine.text(f"{here}/pids.current"))}
    if found:
        found.setdefault("path", f"/sys/fs/cgroup/memory{paths.get('memory', '/')}")
    return {name: value for name, value in found.items() if value is not None}


def _number(text: str | None) -> int | None:
    """A limit as a figure; None for `max`, for what version 1 writes in its place, and where there is none."""
    if text is None or not text.lstrip("-").isdigit():
        return None
    value = int(text)
    return value if value < _UNLIMITED else None


def _field(text: str | None, name: str) -> int | None:
    return next(
        (int(words[1]) for line in (text or "").splitlines() if (words := line.split())[:1] == [name] and words[1:]),
        None,
    )


def _throttled(stat: str | None) -> float | None:
    periods, waited = _field(stat, "nr_periods"), _field(stat, "nr_throttled")
    return round(waited / periods, 4) if periods and waited is not None else None
