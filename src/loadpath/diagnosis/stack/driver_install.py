"""A GPU on the PCIe bus without a driver that uses it: not installed, another driver in its place, device files missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.gpu import DeviceNode, DriverPackage, GpuListed, GpuState, PciDevice, SmiFailed, SmiSnapshot
from loadpath.core.facts.machine import DeviceAccess, Whereabouts
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.vocabulary import Certainty
from loadpath.diagnosis.gpu.words import say
from loadpath.diagnosis.machine.nodes import allotted, cuda_works
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.gpus import Generation, Gpu, by_name, by_pci_id, generation_of

_LONG_TERM = 580  # NVIDIA's long-term branch until June 2028; drives Maxwell to Blackwell


def _boards(case: Case) -> list[PciDevice]:
    return [device for device in case.all(PciDevice) if device.is_gpu]


def _known(device: PciDevice) -> Gpu | None:
    """The board of an lspci line, by its id, else by the name in brackets (`GB202GL [RTX PRO 6000 …]`)."""
    if device.device_id and (found := by_pci_id(device.device_id)):
        return found
    inside = (device.name or "").partition("[")[2].rstrip("]")
    return by_name(inside) if inside else None


def judge_not_installed(case: Case) -> Iterator[Finding]:
    """lspci shows the GPU, the shell knows no nvidia-smi: which driver package to take, and why that one."""
    boards = [d for d in _boards(case) if d.kernel_driver not in ("nvidia", "vfio-pci") and d.answers]
    failed = [f for f in case.all(SmiFailed) if f.how == "command-not-found"]
    offered = case.all(DriverPackage)
    if (
        not boards
        or case.has(GpuState)
        or case.has(GpuListed)
        or any(d.kernel_driver == "nvidia" for d in _boards(case))
    ):
        return
    if not failed and not (offered and not case.has(SmiFailed)):
        return
    device = boards[0]
    generation = generation_of(device.device_id, device.name)
    gpu = _known(device)
    nvswitch = any("nvswitch" in (d.name or "").lower() for d in case.all(PciDevice))
    choice = _Choice(gpu, generation, offered, nvswitch)
    certainty: Certainty = "established" if failed and (device.kernel_driver or device.kernel_modules) else "likely"
    yield finding(
        "driver-not-installed", [*failed, *boards, *choice.evidence], case=case, certainty=certainty,
        title=f"No NVIDIA driver is installed for the {_called(device, gpu)}", cause=_cause(boards, failed, gpu, choice),
        remedies=choice.remedies(), next_checks=_checks(offered),
    )  # fmt: skip


def _called(device: PciDevice, gpu: Gpu | None) -> str:
    if gpu is not None:
        return gpu.names[0].removeprefix("NVIDIA ")
    return device.name or f"NVIDIA GPU {device.device_id or 'at ' + (device.slot or '?')}"


def _cause(boards: Sequence[PciDevice], failed: Sequence[SmiFailed], gpu: Gpu | None, choice: _Choice) -> str:
    device = boards[0]
    number = f" [10de:{device.device_id}]" if device.device_id else ""
    cause = f"lspci lists {len(boards)} NVIDIA GPU{'s' if len(boards) > 1 else ''} ({device.slot or '?'}{number}"
    cause += f", {_called(device, gpu)})" if gpu or device.name else ")"
    cause += ", so the card and its slot work; " + (
        "the shell finds no nvidia-smi" if failed else "no NVIDIA driver is bound to it"
    )
    cause += (
        f", and {device.kernel_driver} holds the card. "
        if device.kernel_driver
        else ": the driver package is missing. "
    )
    return cause + choice.why()


class _Choice:
    """The driver package for a board out of those that are offered, and what rules the others out."""

    def __init__(
        self, gpu: Gpu | None, generation: Generation | None, offered: Sequence[DriverPackage], nvswitch: bool
    ) -> None:
        self.nvswitch = nvswitch
        self.architecture = generation.architecture if generation else gpu.architecture if gpu else ""
        self.least = (gpu.min_branch if gpu else None) or (generation.min_branch if generation else 0)
        self.most = (gpu.max_branch if gpu else None) or (generation.max_branch if generation else None)
        self.modules = generation.modules if generation else "either"
        self.offered = [p for p in offered if p.branch is not None]
        fitting = [p for p in self.offered if self._fits(p)]
        self.fitting = sorted(fitting, key=lambda p: (not p.server, -(p.branch or 0), not p.open))
        self.evidence = [*self.fitting[:2], *[p for p in self.offered if p not in fitting][:2]]

    def _fits(self, p: DriverPackage) -> bool:
        branch = p.branch or 0
        if branch < self.least or (self.most is not None and branch > self.most):
            return False
        return self.modules == "either" or p.open == (self.modules == "open")

    def why(self) -> str:
        said = ""
        if self.architecture and self.least:
            said = f"{self.architecture} needs driver branch {self.least} or newer"
            said += " and the open kernel modules (-open)" if self.modules == "open" else ""
            said += f"; {self.most} is the last branch for it" if self.most else ""
            said += ". "
        if self.fitting:
            best = self.fitting[0]
            said += f"Of the packages offered, {best.package} fits: {say(self._reasons(best))}. "
            said += self._ruled_out()
        elif self.offered:
            said += "None of the packages offered fits: add a newer source (NVIDIA's repository, or the graphics-drivers PPA). "
        return said.strip()

    def _reasons(self, p: DriverPackage) -> list[str]:
        reasons = [f"branch {p.branch}"]
        if p.server:
            reasons.append("server build (no desktop packages)")
        if p.open:
            reasons.append("open kernel modules")
        return reasons

    def _ruled_out(self) -> str:
        old = [p for p in self.offered if (p.branch or 0) < self.least]
        closed = [p for p in self.offered if p not in old and not self._fits(p)]
        parts = []
        if old:
            parts.append(f"{say([p.package for p in old[:2]])} {'is' if len(old) == 1 else 'are'} too old")
        if closed and self.modules == "open":
            parts.append(f"{say([p.package for p in closed[:2]])} would load proprietary modules, which do not run it")
        elif closed:
            parts.append(f"{say([p.package for p in closed[:2]])} {'does' if len(closed) == 1 else 'do'} not drive it")
        return f"{'; '.join(parts)}." if parts else ""

    def _by_itself(self) -> Remedy:
        """Where no list (or nothing in it) helps: the long-term branch, if the board can use it."""
        suffix = "-server-open" if self.modules == "open" else "-server"
        suits = self.least <= _LONG_TERM <= (self.most or _LONG_TERM)
        wanted = f"Install a driver of branch {self.least} or newer" if self.least else "Install the driver"
        wanted += " with open kernel modules" if self.modules == "open" else ""
        return Remedy(
            f"{wanted}{f' ({_LONG_TERM} is the long-term branch)' if suits else ''}, then reboot",
            f"sudo apt install nvidia-driver-{_LONG_TERM if suits else '<branch>'}{suffix} && sudo reboot",
            "`ubuntu-drivers devices` lists the exact names; -server is for machines without a desktop",
        )

    def remedies(self) -> list[Remedy]:
        if not self.fitting:
            return [self._by_itself()]
        best = self.fitting[0]
        made = [
            Remedy(
                f"Install {best.package} and reboot", f"sudo apt install {best.package} && sudo reboot",
                f"{say(self._reasons(best))}: nvidia-smi then lists the card with a few MiB in use and no process",
            )
        ]  # fmt: skip
        if self.nvswitch:
            fabric = f"sudo apt install nvidia-fabricmanager-{best.branch}"
            note = "without it CUDA fails with 802 on an NVSwitch machine, though nvidia-smi lists the GPUs"
            made.append(Remedy("Install the fabric manager of exactly the same version with it", fabric, note))
        other = next((p for p in self.fitting[1:] if p.server != best.server), None)
        if other is not None:
            note = (
                "the recommended desktop build; the same modules"
                if other.recommended
                else "the same modules with desktop packages"
            )
            made.append(
                Remedy(
                    f"On a machine with a desktop: {other.package}",
                    f"sudo apt install {other.package} && sudo reboot",
                    note,
                )
            )
        return made


def _checks(offered: Sequence[DriverPackage]) -> list[Check]:
    checks = (
        [] if offered else [Check("Which packages does this release offer for the card?", "ubuntu-drivers devices")]
    )
    return [
        *checks,
        Check("Is Secure Boot on? Then an unsigned (DKMS) module needs its key enrolled", "mokutil --sb-state"),
        Check(
            "After the reboot: is the module loaded, and of which version?",
            "cat /proc/driver/nvidia/version && nvidia-smi",
        ),
    ]


def judge_bus(case: Case) -> Iterator[Finding]:
    """Cards that lspci shows dead or kept for a virtual machine, or that nvidia-smi does not list."""
    boards = _boards(case)
    dead = [d for d in boards if not d.answers]
    if dead:
        values = {
            "slots": say([d.slot or "?" for d in dead]),
            "slot": dead[0].slot,
            "name": dead[0].name or "NVIDIA GPU",
        }
        yield finding("gpu-config-space-dead", dead, case=case, values=values)
    reserved = [d for d in boards if d.kernel_driver == "vfio-pci"]
    if reserved and not case.has(GpuState):
        values = {"slots": say([d.slot or "?" for d in reserved]), "name": reserved[0].name or "The GPU"}
        yield finding("gpu-bound-to-vfio", reserved, case=case, values=values)
    snapshots = [s for s in case.all(SmiSnapshot) if s.shown]
    usable = [d for d in boards if d.answers and d.kernel_driver in (None, "nvidia")]
    if snapshots and not dead and not _given_a_part(case):
        shown = max(s.shown for s in snapshots)
        if 0 < shown < len(usable):
            counts = {"listed": len(usable), "shown": shown, "missing": len(usable) - shown}
            yield finding("gpu-missing-from-driver", [*usable[:4], snapshots[0]], case=case, values=counts)


def _given_a_part(case: Case) -> bool:
    """Whether this process was given some of the GPUs only: a container sees the whole bus and its own GPUs."""
    where = case.last(Whereabouts)
    forbidden = any(a.outcome == "EPERM" for a in case.all(DeviceAccess))
    return bool(where is not None and where.container) or (forbidden and bool(allotted(case)))


def judge_nodes(case: Case) -> Iterator[Finding]:
    """Device files: without /dev/nvidiactl nothing works, without /dev/nvidia-uvm no CUDA context can be made."""
    if cuda_works(case):
        return
    nodes = case.all(DeviceNode)
    paths = {n.path for n in nodes if not n.missing}
    gone = [n for n in nodes if n.missing]
    if not paths and any(n.path in ("/dev/nvidia*", "/dev/nvidia0", "/dev/nvidiactl") for n in gone):
        yield finding("gpu-no-device-files", gone, case=case)
        return
    gpus = [n for n in nodes if not n.missing and n.path.removeprefix("/dev/nvidia").isdigit()]
    listed_all = "/dev/nvidiactl" in paths or bool(gpus)
    if (
        listed_all
        and "/dev/nvidia-uvm" not in paths
        and (any(n.path == "/dev/nvidia-uvm" for n in gone) or len(paths) > 1)
    ):
        yield finding("gpu-uvm-file-missing", [*gone, *gpus] or nodes, case=case, values={"count": len(gpus)})


RULES = (
    Rule(judge_not_installed, (PciDevice,), ("driver-not-installed",), uses=(SmiFailed, DriverPackage)),
    Rule(
        judge_bus,
        (PciDevice,),
        ("gpu-config-space-dead", "gpu-bound-to-vfio", "gpu-missing-from-driver"),
        uses=(SmiSnapshot,),
    ),
    Rule(judge_nodes, (DeviceNode,), ("gpu-no-device-files", "gpu-uvm-file-missing")),
)
