"""Compiled kernels against the cards: which package has neither machine code nor usable PTX for a GPU that is here.

Machine code runs on its own major capability from its minor on; `a` targets on that chip alone, `f` within the family.
PTX is compiled by the driver for any newer card, if the driver knows that version of PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.binaries import GpuCodeFound
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.arch import build_for
from loadpath.diagnosis.cards import Card, cards
from loadpath.diagnosis.installed_runtime import offered
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack import Stack, stack_of
from loadpath.knowledge import cuda

Use = Literal["native", "compiled", "driver-too-old", "none"]
# Without these nothing runs; what other packages lack concerns only whoever calls them.
CARRIERS = (
    "torch",
    "vllm",
    "sgl-kernel",
    "sglang-kernel",
    "sglang",
    "tensorrt-llm",
    "llama-cpp-python",
    "xllamacpp",
    "",
)
# NVIDIA's libraries whose kernels are all compiled ahead; the others link theirs at run time.
_AHEAD = ("nvidia-cublas", "nvidia-cudnn")
_TEGRA = ("5.3", "6.2", "7.2", "8.7", "8.8")  # machine code for desktop chips does not run on these
FEW = 0.05
"""A share of a library's kernel files below which its code for an architecture is that of a few special kernels."""
MEANT = 0.1
"""A share of a package's kernel files below which its code for a card is not what the package is for."""
_OF_CUDA = re.compile(r"_?(?:cuda|cu)_?v?(\d{2,3})(?=[._]|$)")


class Reach(msgspec.Struct, frozen=True):
    """What a package's libraries have for one card; `isa`: the PTX that would have to be compiled."""

    use: Use
    isa: str = ""


def reach(code: GpuCodeFound, capability: str, driver_cuda: str = "") -> Reach:
    """Whether the code of one library runs on a card, and how."""
    usual = max(code.parts, *code.native.values(), *code.ptx.values(), 1)
    native = [arch for arch, count in code.native.items() if count >= FEW * usual]
    if capability in _TEGRA:
        native = [arch for arch in native if cuda.capability_of(arch) == capability]
    if cuda.covered(capability, tuple(native)):
        return Reach("native")
    ptx = [arch for arch, count in code.ptx.items() if count >= FEW * usual]
    if not cuda.covered(capability, tuple(ptx)):
        return Reach("none")
    needs = cuda.cuda_of_ptx(code.isa) if code.isa else None
    if needs and driver_cuda and cuda.numbers(needs) > cuda.numbers(driver_cuda):
        return Reach("driver-too-old", code.isa)
    return Reach("compiled", code.isa)


def package_reach(found: Sequence[GpuCodeFound], capability: str, driver_cuda: str = "") -> Use:
    """The best that a package's libraries have for a card, those together with a tenth of its kernel files at least:
    packages come with kernels for one generation, and torch's wheels bundle other libraries."""
    total = sum(code.parts for code in found)
    uses: tuple[Use, ...] = ("native", "compiled", "driver-too-old")
    parts = dict.fromkeys(uses, 0)
    for code in found:
        use = reach(code, capability, driver_cuda).use
        if use != "none":
            parts[use] += code.parts
    sums = 0
    for use in uses:
        sums += parts[use]
        if sums and sums >= MEANT * total:
            return use
    return "none"


def missing(case: Case) -> Iterator[Finding]:
    """Packages without code for a card, the framework and the engines first."""
    stack = stack_of(case)
    driver_cuda = offered(case)
    for card in cards(case):
        lacking: dict[str, list[GpuCodeFound]] = {}
        for name, found in by_package(case, stack).items():
            use = package_reach(found, card.capability, driver_cuda)
            if use == "none":
                lacking[name] = found
            elif use == "driver-too-old":
                yield _needs_driver(case, name, found, card, stack)
            elif use == "compiled" and name in CARRIERS:
                yield _only_ptx(case, name, found, card)
        if lacking:
            yield _lacks(case, lacking, card, stack)


def by_package(case: Case, stack: Stack) -> dict[str, list[GpuCodeFound]]:
    """The libraries of the environment that is meant (and of programs outside any) by package, without those that are
    another CUDA's variant of the same library and without NVIDIA's own that link their kernels at run time."""
    packages: dict[str, list[GpuCodeFound]] = {}
    for code in case.all(GpuCodeFound):
        own = code.package or (code.library if not code.environment else "")
        if (code.environment and not code.chosen) or not (code.native or code.ptx):
            continue
        if code.files > 1 or (own.startswith("nvidia-") and not own.startswith(_AHEAD)):
            continue  # collections of kernels for some cards only, by design
        if not own.startswith("nvidia-") and cuda.library(_name(code.library)):
            continue  # bundled beside the package's own
        packages.setdefault(own, []).append(code)
    return {name: _of_this_cuda(found, stack.torch_cuda) for name, found in packages.items()}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _of_this_cuda(found: list[GpuCodeFound], torch_cuda: str) -> list[GpuCodeFound]:
    """Of libraries that are there once for each CUDA (`…_cuda124.so`, `cuda_v12/…`): the one for torch's."""
    tag, major = torch_cuda.replace(".", ""), torch_cuda.partition(".")[0]
    marked = {
        code.library: hit[1] for code in found if (hit := _OF_CUDA.search(code.library.rpartition("site-packages/")[2]))
    }
    if len(set(marked.values())) < 2 or not tag:
        return found
    wanted = tag if tag in marked.values() else major
    fitting = [code for code in found if marked.get(code.library, wanted) == wanted]
    return fitting or found


def _lacks(case: Case, lacking: dict[str, list[GpuCodeFound]], card: Card, stack: Stack) -> Finding:
    carriers = sorted((name for name in lacking if _carries(name, lacking[name])), key=_rank)
    names = carriers or list(lacking)
    rest = [name for name in lacking if name not in carriers]
    facts = [max(lacking[name], key=lambda code: code.parts) for name in [*carriers, *rest]][:4]
    severity: Severity = "error" if carriers else "warning"
    shown = [_shown(name, lacking[name][0]) for name in names]
    title = f"{_listed(shown)} {'have' if len(shown) > 1 else 'has'} no code for {card.name or 'the GPU'} ({card.sm})"
    values = {"sm": card.sm, "card": card.name or "The GPU", "capability": card.capability}
    values |= {"archs": _archs(lacking[names[0]]), "package": shown[0], "arch_list": card.capability}
    if carriers:
        values["fatal"] = (
            'Its kernels cannot start on this card: the first one fails with "no kernel image is available".'
        )
    else:
        values["partial"] = (
            'What calls it fails with "no kernel image is available", unless the engine has another kernel for it.'
        )
    if others := [_shown(name, lacking[name][0]) for name in lacking if name not in names]:
        values["others"] = _listed(others)
    values["source_package"] = _built_from_source(names[0])
    values |= build_for(card.capability, stack) if "torch" in lacking else _newer(names[0])
    return finding("gpu-code-missing", facts, case=case, values=values, severity=severity, title=title[:139])


def _carries(name: str, found: list[GpuCodeFound]) -> bool:
    return name in CARRIERS or not found[0].environment


def _rank(name: str) -> int:
    return CARRIERS.index(name) if name in CARRIERS else len(CARRIERS)


def _built_from_source(name: str) -> str:
    """The package's name where a user can build it for a card in reasonable time; "" for torch, NVIDIA's and programs."""
    return "" if not name or name == "torch" or name.startswith(("nvidia-", "/")) else name


def _newer(package: str) -> dict[str, str]:
    if not package or package.startswith("/"):
        return {"action": "Use a build of the program made for this card, or build it with its architecture"}
    if package.startswith("nvidia-"):
        return {
            "action": f"Upgrade torch, which brings a newer {package}: it is pinned to one",
            "command": "pip install -U torch",
        }
    return {
        "action": f"Install a release of {package} that is built for this card",
        "command": f"pip install -U {package}",
    }


def _archs(found: Iterable[GpuCodeFound]) -> str:
    """The architectures of all libraries of a package, `sm_80, sm_90a and PTX compute_90`."""
    native = dict.fromkeys(arch for code in found for arch in code.native)
    ptx = dict.fromkeys(arch for code in found for arch in code.ptx)
    told = ", ".join(sorted(native, key=_number)) or "no machine code"
    return told + (f" and PTX {', '.join(sorted(ptx, key=_number))}" if ptx else "")


def _number(arch: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", arch) or 0), arch


def _shown(name: str, code: GpuCodeFound) -> str:
    return f"{name} {code.version}".strip() if not name.startswith("/") else name.rpartition("/")[2]


def _listed(names: list[str]) -> str:
    shown = names[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _needs_driver(case: Case, name: str, found: list[GpuCodeFound], card: Card, stack: Stack) -> Finding:
    isa = max((code.isa for code in found), key=cuda.numbers)
    needs = cuda.cuda_of_ptx(isa) or ""
    values = stack.values() | {
        "driver_cuda": offered(case),
        "package": _shown(name, found[0]), "sm": card.sm, "isa": isa, "needs_cuda": needs, "branch": cuda.branch_for(needs) or "",
        "arch_list": card.capability, "card": card.name or "the GPU", "source_package": _built_from_source(name),
    }  # fmt: skip
    carrier = name in CARRIERS or not found[0].environment
    return finding(
        "gpu-code-ptx-too-new", found[:3], case=case, values=values, severity="error" if carrier else "warning"
    )


def _only_ptx(case: Case, name: str, found: list[GpuCodeFound], card: Card) -> Finding:
    values = {"package": _shown(name, found[0]), "sm": card.sm, "card": card.name or "the GPU", "archs": _archs(found),
              "arch_list": card.capability}  # fmt: skip
    return finding("gpu-code-only-ptx", found[:3], case=case, values=values)


def damaged(case: Case) -> Iterator[Finding]:
    """Libraries whose GPU code, or the file itself, is cut off."""
    facts = [code for code in case.all(GpuCodeFound) if code.problem]
    if facts:
        first = facts[0]
        values = {"library": first.library.rpartition("/")[2], "path": first.library, "problem": first.problem,
                  "package": first.package or "the package"}  # fmt: skip
        yield finding("gpu-library-damaged", facts, case=case, values=values)


RULES = (
    Rule(missing, (GpuCodeFound,), ("gpu-code-missing", "gpu-code-ptx-too-new", "gpu-code-only-ptx")),
    Rule(damaged, (GpuCodeFound,), ("gpu-library-damaged",)),
)
