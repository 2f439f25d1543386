"""What proves the layers of software above the driver: the CUDA runtime, compiled kernels, the library set, the framework."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.binaries import (
    CudaLibraryFound,
    FrameworkStarted,
    GpuCodeFound,
    LibrariesResolved,
    LibraryUnfound,
    SymbolsUnfound,
    TorchInstalled,
)
from loadpath.core.layers import Layer
from loadpath.core.units import show_count
from loadpath.diagnosis.gpu.words import say
from loadpath.diagnosis.machine.layers import Proof, Seen
from loadpath.diagnosis.stack.cards import cards
from loadpath.diagnosis.stack.gpu_code import CARRIERS, by_package, package_reach, shown
from loadpath.diagnosis.stack.installed_runtime import offered, program
from loadpath.diagnosis.stack.stack import stack_of
from loadpath.knowledge import cuda


def cuda_runtime(case: Case) -> Proof | None:
    facts, who, version = program(case)
    offers = offered(case)
    rule = cuda.runs(version, offers)
    if rule == "full":
        return Proof(f"{who} (CUDA {version}) on a driver that offers CUDA {offers}", tuple(facts[:1]))
    if rule == "minor":
        return Proof(
            f"{who} (CUDA {version}) on a driver that offers {offers}: minor-version compatibility", tuple(facts[:1])
        )
    return None


def cuda_runtime_missing(case: Case) -> str:
    facts, who, version = program(case)
    if facts:
        return f"{who} is built with CUDA {version}; what the driver offers is not known: nvidia-smi"
    if case.has(CudaLibraryFound):
        return "CUDA libraries are here, none of an environment with a known version: loadpath check --python PREFIX"
    return "no CUDA runtime in sight: loadpath check --python PREFIX for the engine's environment"


def compiled_kernels(case: Case) -> Proof | None:
    here, stack = cards(case), stack_of(case)
    packages = by_package(case, stack)
    carriers = {name: found for name, found in packages.items() if name in CARRIERS or not found[0].environment}
    if not here or not carriers:
        return None
    offers = offered(case)
    for card in here:
        for found in carriers.values():
            if package_reach(found, card.capability, offers) not in ("native", "compiled"):
                return None
    names = [shown(name, found[0]) for name, found in carriers.items()]
    facts = tuple(max(found, key=lambda code: code.parts) for found in carriers.values())
    return Proof(
        f"{say(names[:4])} {'have' if len(names) > 1 else 'has'} code for {say([c.sm for c in here])}", facts[:2]
    )


def compiled_kernels_missing(case: Case) -> str:
    if not case.has(GpuCodeFound):
        return "no library with GPU code in sight: loadpath check --python PREFIX for the engine's environment"
    if not cards(case):
        return "libraries were read, and no GPU is known here to compare them with: nvidia-smi --query-gpu=compute_cap --format=csv"
    return "the libraries read are of no framework or engine: loadpath check --python PREFIX"


def library_set(case: Case) -> Proof | None:
    meant = next((t.environment for t in case.all(TorchInstalled) if t.chosen), None)
    followed = next((r for r in case.all(LibrariesResolved) if r.environment == meant and r.libraries), None)
    if followed is None:
        return None
    told = f"{show_count(followed.libraries)} compiled modules of {followed.environment} find their libraries"
    found: list[LibraryUnfound | SymbolsUnfound] = [*case.all(LibraryUnfound), *case.all(SymbolsUnfound)]
    open_needs = {f.package for f in found if f.environment == meant and f.package}
    if open_needs:
        told += f", save {say(sorted(open_needs)[:3])}"
    elif followed.symbols:
        told += f", and torch has the {show_count(followed.symbols)} functions asked of it"
    return Proof(told, (followed,))


def library_set_missing(case: Case) -> str:
    if case.has(LibrariesResolved):
        return "the Python environments seen have no torch: loadpath check --python PREFIX for the engine's"
    return "no Python environment with packages for GPUs in sight: loadpath check --python PREFIX"


def framework(case: Case) -> Proof | None:
    started = case.last(FrameworkStarted)
    if started is None or not started.available:
        return None
    return Proof(f"torch {started.version} starts and sees {len(started.devices) or 'a'} GPU(s)", (started,))


def framework_missing(case: Case) -> str:
    torch = next((t for t in case.all(TorchInstalled) if t.chosen), None)
    if case.has(FrameworkStarted):
        return "torch was started and sees no GPU"
    if torch is None:
        return "no PyTorch in the environments seen"
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "no CUDA"
    return f"torch {torch.version} ({built}) in {torch.environment} was not started: loadpath check --run-framework"


PROOFS: dict[Layer, Seen] = {
    "cuda-runtime": Seen(cuda_runtime, cuda_runtime_missing),
    "compiled-kernels": Seen(compiled_kernels, compiled_kernels_missing),
    "library-set": Seen(library_set, library_set_missing),
    "framework": Seen(framework, framework_missing),
}
