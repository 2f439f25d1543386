"""The CUDA of what is installed against the CUDA that the driver offers, before anything has been started."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.binaries import CudaLibraryFound, TorchInstalled
from loadpath.core.facts.gpu import DriverVersions, PciDevice
from loadpath.core.facts.machine import CudaCalled
from loadpath.core.facts.stack import ComponentVersion
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Certainty, Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.cards import cards
from loadpath.diagnosis.stack.runtime_driver import driver_advice, wheel_advice
from loadpath.diagnosis.stack.stack import stack_of
from loadpath.knowledge import cuda


def offered(case: Case) -> str:
    """The newest CUDA that the driver offers: as its libcuda said, as nvidia-smi printed, else by the driver's branch."""
    said = next((c.cuda for c in case.all(CudaCalled) if c.cuda), None)
    said = said or next((d.cuda for d in case.all(DriverVersions) if d.cuda), None)
    if said:
        return said
    driver = next((d.driver for d in case.all(DriverVersions) if d.driver), None)
    branch = cuda.branch_of(driver) if driver else None
    return stack_of(case).driver_cuda or (branch.cuda if branch else "")


def runtime(case: Case) -> Iterator[Finding]:
    """torch's CUDA, else the newest runtime library of the environment, against the driver's."""
    facts, who, built_with = program(case)
    offers, stack = offered(case), stack_of(case)
    verdict = cuda.runs(built_with, offers)
    if not facts or verdict in ("full", "unknown"):
        return
    shown: list[Fact] = [
        *facts[:2],
        *[v for v in case.all(ComponentVersion) if v.name in ("driver", "driver-cuda")][:2],
    ]
    driver = stack.driver or next((d.driver for d in case.all(DriverVersions) if d.driver), "") or ""
    values = stack.values() | {"program_cuda": built_with, "driver": driver, "driver_cuda": offers, "who": who}
    floor = cuda.floor_of(cuda.numbers(built_with)[0]) or ""
    if verdict == "minor":
        values |= {"floor": floor, "branch": cuda.branch_for(built_with) or ""}
        yield finding("runtime-newer-than-driver", shown, case=case, step="unseen", values=values)
        return
    values |= {"needed_driver": floor} | driver_advice(built_with, stack) | wheel_advice(offers)
    helped = [c for c in case.all(CudaLibraryFound) if c.place == "compat"]
    if helped:
        values["no_compat"] = (
            f"A forward-compatibility libcuda {helped[0].version} lies in {helped[0].path.rpartition('/')[0]}: on a data-centre GPU "
            "it offers a newer CUDA to programs that load it first."
        )
    certainty: Certainty = "likely" if helped else "established"
    severity: Severity = "error" if _gpus(case) else "warning"
    yield finding(
        "driver-too-old",
        [*shown, *helped[:1]],
        case=case,
        step="unseen",
        values=values,
        certainty=certainty,
        severity=severity,
    )


def program(case: Case) -> tuple[list[Fact], str, str]:
    """What is built with which CUDA: the facts, in words who, and the version."""
    torch = next((t for t in case.all(TorchInstalled) if t.chosen and t.cuda), None)
    if torch is not None:
        return [torch], f"torch {torch.version}", torch.cuda
    found = [c for c in case.all(CudaLibraryFound) if c.name == "libcudart" and c.chosen and c.version]
    if not found:
        return [], "", ""
    newest = max(found, key=lambda c: cuda.numbers(c.version))
    return [newest], f"{newest.soname} of {newest.environment}", ".".join(newest.version.split(".")[:2])


def _gpus(case: Case) -> bool:
    return bool(cards(case)) or any(device.is_gpu for device in case.all(PciDevice))


def torch_without_cuda(case: Case) -> Iterator[Finding]:
    """A CPU build of torch in the environment that is meant, on a machine with NVIDIA GPUs."""
    torch = next((t for t in case.all(TorchInstalled) if t.chosen), None)
    if torch is None or torch.cuda or torch.hip or not _gpus(case):
        return
    yield finding(
        "torch-without-cuda", [torch], case=case, step="unseen",
        title=f"This PyTorch is a CPU build: torch {torch.version} in {torch.environment}",
    )  # fmt: skip


RULES = (
    Rule(
        runtime, (), ("driver-too-old", "runtime-newer-than-driver"), (TorchInstalled, CudaLibraryFound, DriverVersions)
    ),
    Rule(torch_without_cuda, (TorchInstalled,), ("torch-without-cuda",)),
)
