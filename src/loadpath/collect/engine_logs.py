"""Where a running engine's output goes, and the output itself: a file, the journal, a container's log. Of a long log its
beginning, its first error and its end are kept."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from loadpath.collect.engine_names import EngineSigns
from loadpath.collect.probe import Machine, Sample, now
from loadpath.collect.processes import Process
from loadpath.collect.programs import find_program
from loadpath.collect.records import record
from loadpath.collect.windows import keep
from loadpath.core.facts.runtime import EngineLog

ROOM = 900_000
"""Bytes of one log that `check` reads; a bundle has more (the machine's option `log-bytes`)."""
START = 15 * 60.0
"""Seconds after its start in which an engine's log is kept whole: the start is in there."""
NEWEST_LINES = 5000


def gather_logs(machine: Machine, signs: EngineSigns, head: Process, uptime: float | None) -> Iterator[Sample]:
    """The log of one engine, and a record of where it was found."""
    name = f"engine-{head.pid}-log"
    how, where, sample = _found(machine, head, name, uptime)
    text = f"the output of {signs.engine} (process {head.pid}) goes to {where or how}"
    line = record(
        EngineLog,
        text=text,
        engine=signs.engine,
        pid=head.pid,
        how=how,
        where=where,
        read=sample is not None and bool(sample.data),
    )
    yield machine.told(
        [line],
        name=f"engine-{head.pid}-output",
        kind="engines-seen",
        command=f"ls -l /proc/{head.pid}/fd/1 /proc/{head.pid}/fd/2",
    )
    if sample is not None:
        yield sample


def _found(machine: Machine, head: Process, name: str, uptime: float | None) -> tuple[str, str, Sample | None]:
    """How the output is kept, where, and what is there; errors go to the second stream, so that one is asked first."""
    links = [machine.readlink(f"/proc/{head.pid}/fd/{number}") for number in (2, 1)]
    link = next((one for one in links if one), None)
    file = next((one for one in links if one and one.startswith("/") and not one.startswith("/dev/")), None)
    number = 2 if file is not None and links[0] == file else 1
    found = machine.stat(f"/proc/{head.pid}/fd/{number}" if machine.live else file or "/") if file is not None else None
    if (
        file is not None and found is not None and stat.S_ISREG(found.st_mode)
    ):  # reading a pipe would take it from its reader
        return "file", file, _file(machine, f"/proc/{head.pid}/fd/{number}" if machine.live else file, file, name)
    if head.container:
        where = f"the log of container {head.container}"
        tried = None
        for tool in ("docker", "podman", "crictl"):
            if find_program(machine, tool):
                tried = _container(machine, tool, head, name, uptime)
                if tried.outcome == "ok":
                    return tool, where, tried
        return "container", where, tried
    if link is None:
        return "hidden", "a place that this user may not see", None
    if head.unit and link.startswith(("socket:", "/dev/null")) and find_program(machine, "journalctl"):
        return "journal", f"the journal of {head.unit}", _journal(machine, head, name, uptime)
    if link.startswith(("/dev/pts", "/dev/tty")):
        return "terminal", f"the terminal {link}, which keeps nothing", None
    if link == "/dev/null":
        return "nowhere", "/dev/null: nothing is kept", None
    return "pipe", "another process (a pipe), which may keep it or not", None


def _room(machine: Machine) -> int:
    told = machine.options.get("log-bytes", "")
    return int(told) if told.isdigit() else ROOM


def _file(machine: Machine, path: str, shown: str, name: str) -> Sample:
    started = now()
    try:
        with machine.path(path).open("rb") as file:
            kept = keep(iter(lambda: file.read(1 << 20), b""), _room(machine))
    except OSError:
        return Sample(name, "log", f"cat {shown}", None, 0.0, started, machine.why_unread(path))
    return _log(name, f"cat {shown}", kept.data, kept.left_out_bytes, started)


def _log(name: str, command: str, data: bytes, left_out: int, started: str, status: int | None = None) -> Sample:
    note = f"{left_out} bytes between its beginning, its first error and its end left out" if left_out else ""
    return Sample(name, "log", command, status, 0.0, started, data=data, note=note)


def _times(head: Process, uptime: float | None) -> tuple[str, str] | None:
    """When the process began and when its start is over, as `journalctl` and `docker logs` take times."""
    if uptime is None:
        return None
    began = datetime.now(UTC) - timedelta(seconds=uptime - head.started + 2)
    return began.strftime("%Y-%m-%dT%H:%M:%SZ"), (began + timedelta(seconds=START)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _container(machine: Machine, engine: str, head: Process, name: str, uptime: float | None) -> Sample:
    """The start of this run and the newest lines. A container's log holds earlier runs too: they are left out."""
    times = _times(head, uptime)
    asked = [[engine, "logs", "--tail", str(NEWEST_LINES), str(head.container)]]
    if times and engine != "crictl":
        began, over = times
        asked = [[engine, "logs", "--since", began, "--until", over, str(head.container)],
                 [engine, "logs", "--since", over, "--tail", str(NEWEST_LINES), str(head.container)]]  # fmt: skip
    return _asked(machine, asked, name)


def _journal(machine: Machine, head: Process, name: str, uptime: float | None) -> Sample:
    unit = ["journalctl", "--no-pager", "-o", "short-iso", "-u", str(head.unit)]
    times = _times(head, uptime)
    asked = [[*unit, "-n", str(NEWEST_LINES)]]
    if times:
        began, over = (time.replace("T", " ").replace("Z", " UTC") for time in times)
        asked = [[*unit, "--since", began, "--until", over], [*unit, "--since", over, "-n", str(NEWEST_LINES)]]
    return _asked(machine, asked, name)


def _asked(machine: Machine, commands: list[list[str]], name: str) -> Sample:
    said = [machine.run(argv, name=name, kind="log") for argv in commands]
    good = [sample.data for sample in said if sample.outcome == "ok" and b"-- No entries --" not in sample.data[:40]]
    if not good:
        return said[0]
    kept = keep(good, _room(machine))
    return _log(name, "; ".join(sample.command for sample in said), kept.data, kept.left_out_bytes, said[0].started, 0)
