"""Layer 2 of a live machine: a GPU on the bus that no module drives, and which of the reasons it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.gpu import DriverVersions, PciDevice, SmiFailed
from loadpath.core.facts.machine import KernelModules, PciBus, Whereabouts
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.gpus import generation_of

OTHER_DRIVERS = ("nouveau", "nova_core", "vfio-pci", "vfio_pci")


def loaded_version(case: Case) -> str | None:
    """The loaded NVIDIA module's version ("?" where it tells none); None where none is loaded or nothing says."""
    proc = next((v.driver for v in case.all(DriverVersions) if v.view == "proc" and v.driver), None)
    modules = case.last(KernelModules)
    return proc or (modules.loaded or {}).get("nvidia") if modules else proc


def judge_not_loaded(case: Case) -> Iterator[Finding]:
    """The card is there and free, and the module is not loaded: not built for this kernel, or built and not loaded."""
    modules = case.last(KernelModules)
    boards = [d for d in case.all(PciDevice) if d.is_gpu and d.answers]
    if modules is None or not boards or modules.loaded is None or loaded_version(case):
        return
    if any(d.kernel_driver is not None for d in boards):
        return  # another driver has it, or NVIDIA's does: both are told elsewhere
    running = modules.running or "?"
    others = [kernel for kernel, file in modules.files.items() if file and kernel != running]
    if modules.files.get(running):
        yield _not_loaded(case, modules, boards)
    elif others:
        cause = (
            f"The running kernel is {running} and has no nvidia module below /lib/modules/{running}; there is one for "
            f"{', '.join(others[:3])}. The kernel was updated and the module was not built for it."
        )
        cause += (
            f" The headers of {running} are missing too, so DKMS could not build it." if modules.headers_missing else ""
        )
        made = finding(
            "module-missing-for-kernel", [modules, *boards[:2]], case=case, cause=cause, values={"kernel": running}
        )
        yield made
    elif modules.files and not case.has(SmiFailed):
        cause = (
            f"No installed kernel ({', '.join(list(modules.files)[:3])}) has an nvidia module, though the driver's tools are "
            "here: the module package is missing, or DKMS never built it."
        )
        yield finding(
            "module-missing-for-kernel", [modules, *boards[:2]], case=case, cause=cause, values={"kernel": running}
        )
    elif not modules.files:
        yield _unseen(case, modules, boards)


def _not_loaded(case: Case, modules: KernelModules, boards: Sequence[PciDevice]) -> Finding:
    cause = [
        f"The module for the running kernel {modules.running} is installed ({modules.files[modules.running or '']}) and not loaded."
    ]
    if modules.secure_boot == "on":
        enforced = (
            " and signatures are enforced"
            if modules.signatures_enforced or modules.lockdown not in (None, "none")
            else ""
        )
        cause.append(
            f"Secure Boot is on{enforced}: a module that is not signed with an enrolled key is refused, and the kernel log says so."
        )
    if listed := next((s for s in modules.settings if "blacklist nvidia" in s), None):
        cause.append(f"It is black-listed: {listed}.")
    if len(cause) == 1:
        cause.append("Nothing here says why; loading it by hand and the kernel log tell.")
    return finding(
        "driver-not-loaded",
        [modules, *boards[:2]],
        case=case,
        cause=" ".join(cause),
        values={"kernel": modules.running},
    )


def _unseen(case: Case, modules: KernelModules, boards: Sequence[PciDevice]) -> Finding:
    where = case.last(Whereabouts)
    inside = f" (seen from inside a container: {where.container[0]})" if where and where.container else ""
    cause = (
        f"{len(boards)} NVIDIA GPU(s) are on the bus, and the running kernel {modules.running} has no nvidia module loaded{inside}. "
        "For which kernels one is installed cannot be seen from here; on the host it can."
    )
    return finding("driver-not-loaded", [modules, *boards[:2]], case=case, cause=cause)


def judge_flavour(case: Case) -> Iterator[Finding]:
    """The module is loaded and of the flavour that this card's generation cannot use."""
    proc = next((v for v in case.all(DriverVersions) if v.view == "proc" and v.flavour), None)
    unbound = [d for d in case.all(PciDevice) if d.is_gpu and d.answers and d.kernel_driver is None]
    if proc is None:
        return
    for device in unbound:
        generation = generation_of(device.device_id, device.name)
        if generation is None or generation.modules in ("either", proc.flavour):
            continue
        row = "open-module-required" if generation.modules == "open" else "open-module-cannot-drive-gpu"
        cause = (
            f"The {proc.flavour} module {proc.driver} is loaded and does not take the card at {device.slot} ({generation.architecture}, "
            f"10de:{device.device_id}): this generation works with the {generation.modules} module only."
        )
        yield finding(row, [proc, device], case=case, cause=cause, certainty="likely")
        return


RULES = (
    Rule(
        judge_not_loaded,
        (KernelModules, PciDevice),
        ("module-missing-for-kernel", "driver-not-loaded"),
        (DriverVersions,),
    ),
    Rule(judge_flavour, (PciBus, DriverVersions, PciDevice), ("open-module-required", "open-module-cannot-drive-gpu")),
)
