"""The installed packages by their own metadata: requirements that are not met around torch, packages that are there twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.binaries import (
    FileOwnedTwice,
    LibrariesResolved,
    PackageInstalled,
    RequirementUnmet,
    SymbolsUnfound,
    TorchInstalled,
)
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge import cuda

# Packages whose versions decide whether compiled code and its callers fit together.
_STACK = re.compile(
    r"^(?:torch\w*|triton|vllm|sglang|sgl-kernel|sglang-kernel|flashinfer-\w+|flash-attn|xformers|transformers|tokenizers|numpy"
    r"|nvidia-.+|tensorrt.*|bitsandbytes|xgrammar|compressed-tensors|deepspeed|accelerate|cuda-.+|huggingface-hub|numba)$"
)
_COMPILED = ("torch", "triton", "sgl-kernel", "sglang-kernel", "flash-attn", "xformers", "numpy")
_EXACT = re.compile(r"[=~]=|===")


def requirements(case: Case) -> Iterator[Finding]:
    """One finding for the environment that is meant: the gravest conflict leads, the others are named."""
    chosen = {p.environment for p in case.all(PackageInstalled) if p.chosen}
    unmet = [r for r in case.all(RequirementUnmet) if r.environment in chosen and _matters(r)]
    if not unmet:
        return
    unmet.sort(key=_weight)
    first = unmet[0]
    has = f"{first.needs} {first.has} is installed" if first.has else f"{first.needs} is not installed"
    values = {
        "package": first.package,
        "version": first.version,
        "wants": first.wants,
        "has": has,
        "environment": first.environment,
    }
    if more := [f"{r.package}: {r.wants} ({r.has or 'absent'})" for r in unmet[1:6]]:
        values["more"] = "; ".join(more) + (f" and {len(unmet) - 6} more" if len(unmet) > 6 else "")
    severity: Severity | None = "info" if not first.has and first.needs not in _COMPILED else None
    if first.needs == "torch" and _symbols_fit(case, first):
        severity = "info" if not any(r.has and r.needs in _COMPILED for r in unmet[1:]) else None
        values["fits"] = "Every function that its compiled modules ask torch for is there, so this pair may well work."
    yield finding("requirement-unmet", unmet, case=case, values=values, severity=severity)


def _symbols_fit(case: Case, unmet: RequirementUnmet) -> bool:
    """Whether the environment's compiled modules were looked up in torch, and none of this package lacks a function."""
    looked = any(r.environment == unmet.environment and r.symbols for r in case.all(LibrariesResolved))
    return looked and not any(s.package == unmet.package for s in case.all(SymbolsUnfound))


def _matters(unmet: RequirementUnmet) -> bool:
    """Both sides are of the stack: what a web framework wants of another is `pip check`'s business."""
    return bool(_STACK.match(unmet.package) and _STACK.match(unmet.needs))


def _weight(unmet: RequirementUnmet) -> tuple[bool, bool, bool, str]:
    """Another version of what was compiled together, pinned exactly, first; absent packages last."""
    return not unmet.has, unmet.needs not in _COMPILED, not _EXACT.search(unmet.wants), unmet.package


def twice(case: Case) -> Iterator[Finding]:
    """Two metadata folders of one package in one folder of packages."""
    seen: dict[tuple[str, str], list[PackageInstalled]] = {}
    for package in case.all(PackageInstalled):
        if package.chosen and _STACK.match(package.name):
            seen.setdefault((package.folder, package.name), []).append(package)
    for (folder, name), found in seen.items():
        versions = sorted({p.version for p in found}, key=cuda.numbers)
        if len(versions) > 1:
            values = {
                "package": name,
                "versions": " and ".join(versions),
                "newest": versions[-1],
                "environment": folder,
            }
            yield finding("package-installed-twice", found, case=case, values=values)
            return


def contested(case: Case) -> Iterator[Finding]:
    """Packages that overwrite each other's libraries: one CUDA major's beside another's, a CPU build beside a GPU build."""
    meant = {p.environment for p in case.all(PackageInstalled) if p.chosen}
    torch = next((t for t in case.all(TorchInstalled) if t.chosen), None)
    facts = [f for f in case.all(FileOwnedTwice) if f.environment in meant]
    facts.sort(key=lambda f: not any(_STACK.match(name) or "onnxruntime" in name for name in f.packages))
    if not facts:
        return
    first = facts[0]
    of_stack = any(_STACK.match(name) or "onnxruntime" in name for name in first.packages)
    values = {"packages": " and ".join(first.packages), "names": " ".join(first.packages), "file": _files(first),
              "keep": _to_keep(first.packages, torch.cuda if torch else "")}  # fmt: skip
    if "onnxruntime" in first.packages:
        values["consequence"] = "With the CPU build on top, ONNX Runtime has no CUDA provider and runs on the CPU."
    elif torch is not None and any(name.startswith("nvidia-") for name in first.packages):
        values["consequence"] = (
            f"torch here is built with CUDA {torch.cuda}; a copy for another major may lack what it needs."
        )
    yield finding("package-files-contested", facts, case=case, values=values, severity=None if of_stack else "info")


def _files(fact: FileOwnedTwice) -> str:
    more = f" and {fact.files - 1} more file{'s' if fact.files > 2 else ''}" if fact.files > 1 else ""
    return fact.file.rpartition("/")[2] + more


def _to_keep(names: tuple[str, ...], torch_cuda: str) -> str:
    """The package of torch's CUDA major, else the GPU build, else the last name."""
    fitting = [name for name in names if torch_cuda and name.endswith(f"-cu{torch_cuda.partition('.')[0]}")]
    return next(iter(fitting or [name for name in names if name.endswith("-gpu")] or names[-1:]))


RULES = (
    Rule(requirements, (RequirementUnmet, PackageInstalled), ("requirement-unmet",)),
    Rule(twice, (PackageInstalled,), ("package-installed-twice",)),
    Rule(contested, (FileOwnedTwice,), ("package-files-contested",), (PackageInstalled, TorchInstalled)),
)
