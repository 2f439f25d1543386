"""Layer 3 of a live machine: device files that are missing, forbidden or stale, and who holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.gpu import BoardInformation, DeviceNode, DriverVersions
from loadpath.core.facts.machine import (
    CudaCalled,
    DeviceAccess,
    DeviceHolder,
    DeviceMajor,
    KernelModules,
    ProcessesInSight,
    Whereabouts,
)
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.gpu.words import SMALL, gpus_now, say
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.rule import Rule, finding

REFUSED = ("EPERM", "EACCES")
_MAJOR_OF = {
    "nvidia-uvm": ("nvidia-uvm",),
    "nvidia-uvm-tools": ("nvidia-uvm",),
    "nvidiactl": ("nvidia-frontend", "nvidia", "nvidiactl"),
}
MOST_HOLDERS = 6


def inside_container(case: Case) -> str | None:
    """The first sign of a container around loadpath; None on a host."""
    where = case.last(Whereabouts)
    return where.container[0] if where is not None and where.container else None


def cuda_works(case: Case) -> bool:
    """Whether cuInit saw every GPU that the module drives. The driver's libraries make missing device files at their
    first call, so a listing from before it (a freshly booted server) is then out of date."""
    called = case.last(CudaCalled)
    return called is not None and called.code == 0 and (called.devices or 0) >= max(1, len(case.all(BoardInformation)))


def judge_missing(case: Case) -> Iterator[Finding]:
    """The module drives a GPU whose device file is not there."""
    nodes = case.all(DeviceNode)
    module = loaded_version(case)
    if not nodes or module is None or cuda_works(case):
        return
    there = {n.path for n in nodes if not n.missing}
    shown = [v for v in case.all(DriverVersions) if v.view == "proc"][:1]
    sign = inside_container(case)
    if not there and sign:
        cause = (
            f"The host's kernel module {module} is loaded, and this container ({sign}) has no /dev/nvidia* files: it was started "
            "without the GPUs. Nothing that is installed inside it changes that."
        )
        where = case.last(Whereabouts)
        asked = [Remedy("Ask for the GPU in the container's limits.", "resources: {limits: {nvidia.com/gpu: 1}}")]
        remedies = asked if where is not None and where.pod else None
        yield finding(
            "gpu-not-requested", [*nodes, *shown], case=case, cause=cause, certainty="likely", remedies=remedies
        )
    elif not there:
        yield finding("device-node-missing", [*nodes, *shown], case=case, values={"node": "/dev/nvidiactl"}, cause=_unmade(
            f"The kernel module {module} is loaded and there is no /dev/nvidia* file"))  # fmt: skip
    elif not sign:
        gone = [i for i in case.all(BoardInformation) if i.minor is not None and f"/dev/nvidia{i.minor}" not in there]
        if gone:
            names = say([f"/dev/nvidia{i.minor}" for i in gone])
            cause = _unmade(
                f"The module drives {say([f'{i.name} at {i.bus_id}' for i in gone])}, and {names} is not there"
            )
            values = {"node": names}
            yield finding(
                "device-node-missing",
                [*gone, *[n for n in nodes if not n.missing][:2]],
                case=case,
                values=values,
                cause=cause,
            )


def _unmade(begin: str) -> str:
    return (
        f"{begin}. The files are made by nvidia-modprobe (setuid root), which the driver's libraries call, by udev or by "
        "nvidia-persistenced: none of them did since boot, or somebody removed the file."
    )


def judge_access(case: Case) -> Iterator[Finding]:
    """Opening a device file was tried: refused by the cgroup, by the file's mode, or failed in the driver."""
    tried = case.all(DeviceAccess)
    forbidden = [a for a in tried if a.outcome == "EPERM"]
    denied = [a for a in tried if a.outcome == "EACCES"]
    failed = [a for a in tried if a.outcome not in ("ok", "hung", *REFUSED)]
    if forbidden and allotted(case):
        values = {
            "ok": len(allotted(case)),
            "all": len(allotted(case)) + len(forbidden),
            "files": say([a.path for a in forbidden][:4]),
        }
        yield finding("gpu-subset-allotted", [*forbidden, *allotted(case)[:1]], case=case, values=values)
    elif forbidden:
        yield _forbidden(case, forbidden)
    if denied:
        yield _denied(case, denied)
    if failed:
        yield finding("gpu-open-fails", failed, case=case, values={"node": failed[0].path, "error": failed[0].outcome})


def allotted(case: Case) -> list[DeviceAccess]:
    """The GPU files that may be opened, where the control files may too: a scheduler gives a job some of the GPUs."""
    tried = case.all(DeviceAccess)
    gpus = [a for a in tried if a.path.removeprefix("/dev/nvidia").isdigit()]
    rest = [a for a in tried if a not in gpus]
    return [a for a in gpus if a.outcome == "ok"] if all(a.outcome == "ok" for a in rest) else []


def _forbidden(case: Case, own: Sequence[DeviceAccess]) -> Finding:
    names = say([a.path for a in own])
    modes = [n for n in case.all(DeviceNode) if n.path in {a.path for a in own}]
    if sign := inside_container(case):
        cause = (
            f"Opening {names} gives EPERM (Operation not permitted), whatever the file's mode: the device cgroup of this container "
            f"({sign}) forbids it. Either the devices were mounted without --gpus, --device or CDI, or a `systemctl daemon-reload` on "
            "the host rewrote the container's device rules while it ran."
        )
        return finding("container-lost-gpu-access", [*own, *modes[:2]], case=case, cause=cause, certainty="likely")
    cause = (
        f"Opening {names} gives EPERM (Operation not permitted), not EACCES: no file mode does that. A device rule of this "
        "process's cgroup does (DeviceAllow= of a systemd service, a Slurm job's ConstrainDevices, a container)."
    )
    return finding(
        "device-node-denied", [*own, *modes[:2]], case=case, cause=cause, values={"node": own[0].path, "why": "EPERM"}
    )


def _denied(case: Case, own: Sequence[DeviceAccess]) -> Finding:
    where = case.last(Whereabouts)
    modes = [n for n in case.all(DeviceNode) if n.path in {a.path for a in own}]
    mode = f" (mode {modes[0].mode})" if modes else ""
    user = f" as {where.user}" if where and where.user else ""
    cause = (
        f"Opening {say([a.path for a in own])}{mode}{user} gives EACCES (Permission denied): the file's mode or group keeps this user "
        "out, or SELinux or AppArmor does. As root it may still work, so a service under another user may see the GPU."
    )
    return finding("gpu-access-not-permitted", [*own, *modes[:2]], case=case, cause=cause, certainty="established")


def judge_numbers(case: Case) -> Iterator[Finding]:
    """A device file whose major number is not the loaded module's: it was made before the module was loaded anew."""
    majors = {m.name: m for m in case.all(DeviceMajor)}
    for node in case.all(DeviceNode):
        name = node.path.rpartition("/")[2]
        known = [majors[n] for n in _MAJOR_OF.get(name, ()) if n in majors]
        if known and node.major is not None and all(m.number != node.major for m in known):
            values = {
                "node": node.path,
                "have": f"{node.major}:{node.minor}",
                "want": known[0].number,
                "name": known[0].name,
            }
            yield finding("device-node-stale", [node, known[0]], case=case, values=values)
            return


def judge_holders(case: Case) -> Iterator[Finding]:
    """Who has the device files open, containers named."""
    holders = [
        h for h in case.all(DeviceHolder) if any(d.removeprefix("nvidia").isdigit() or "uvm" in d for d in h.devices)
    ]
    if not holders:
        return
    sight = case.last(ProcessesInSight)
    told = [f"{h.name} (process {h.pid}{f', container {h.container}' if h.container else ''}) {' '.join(h.devices[:4])}"
            for h in holders[:MOST_HOLDERS]]  # fmt: skip
    more = f", and {len(holders) - MOST_HOLDERS} more" if len(holders) > MOST_HOLDERS else ""
    values = {
        "count": len(holders), "names": say(list(dict.fromkeys(h.name for h in holders))[:4]), "list": "; ".join(told) + more,
        "unseen": _without_process(case),
        "hidden": sight.hidden if sight and sight.hidden else None, "shown": sight.shown if sight else None,
    }  # fmt: skip
    yield finding("gpu-device-holders", holders, case=case, values=values)


def _without_process(case: Case) -> str | None:
    """The memory of GPUs whose process list is empty, as in another PID namespace; None where there is none."""
    used = sum(g.state.used_bytes or 0 for g in gpus_now(case) if not g.processes and (g.state.used_bytes or 0) > SMALL)
    return show_bytes(used) if used else None


RULES = (
    Rule(judge_missing, (DeviceNode, Whereabouts), ("gpu-not-requested", "device-node-missing"), (BoardInformation, KernelModules)),
    Rule(judge_access, (DeviceAccess,), (
        "container-lost-gpu-access", "device-node-denied", "gpu-access-not-permitted", "gpu-open-fails",
        "gpu-subset-allotted"), (DeviceNode, Whereabouts)),
    Rule(judge_numbers, (DeviceNode, DeviceMajor), ("device-node-stale",)),
    Rule(judge_holders, (DeviceHolder,), ("gpu-device-holders",), (ProcessesInSight,)),
)  # fmt: skip
