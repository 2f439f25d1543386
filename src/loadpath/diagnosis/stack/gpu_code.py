"""Compiled kernels against the cards: which package has neither machine code nor usable PTX for a GPU that is here.

Machine code runs on its own major capability from its minor on; `a` targets on that chip alone, `f` within the family.
PTX is compiled by the driver for any newer card, if the driver knows that version of PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.binaries import GpuCodeFound
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.arch import build_for
from loadpath.diagnosis.stack.cards import Card, cards
from loadpath.diagnosis.stack.installed_runtime import offered
from loadpath.diagnosis.stack.stack import Stack, stack_of
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


def usual(code: GpuCodeFound) -> int:
    """How many kernel files a library has, by its containers or its most frequent architecture."""
    return max(code.parts, *code.native.values(), *code.ptx.values(), 1)


def reach(code: GpuCodeFound, capability: str, driver_cuda: str = "") -> Reach:
    """Whether the code of one library runs on a card, and how."""
    native = [arch for arch, count in code.native.items() if count >= FEW * usual(code)]
    if capability in _TEGRA:
        native = [arch for arch in native if cuda.capability_of(arch) == capability]
    if cuda.covered(capability, tuple(native)):
        return Reach("native")
    ptx = [arch for arch, count in code.ptx.items() if count >= FEW * usual(code)]
    if not cuda.covered(capability, tuple(ptx)):
        return Reach("none")
    needs = cuda.cuda_of_ptx(code.isa) if code.isa else None
    if needs and driver_cuda and cuda.numbers(needs) > cuda.numbers(driver_cuda):
        return Reach("driver-too-old", code.isa)
    return Reach("compiled", code.isa)


def package_reach(found: Sequence[GpuCodeFound], capability: str, driver_cuda: str = "", share: float = MEANT) -> Use:
    """The best that a package's libraries have for a card, those together with that share of its kernel files at least:
    packages come with some kernels for one generation only."""
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
        if sums and sums >= share * total:
            return use
    return "none"


def missing(case: Case) -> Iterator[Finding]:
    """Packages without code for a card, the framework and the engines first."""
    stack = stack_of(case)
    driver_cuda = offered(case)
    for card in cards(case):
        lacking: dict[str, list[GpuCodeFound]] = {}
        for name, found in by_package(case, stack).items():
            share = MEANT if _carries(name, found) else 0.0  # of other packages, any code may be all that is asked for
            use = package_reach(found, card.capability, driver_cuda, share)
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
        own = code.package or ("" if code.environment else _program(code.library))
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


def _program(library: str) -> str:
    """What a library outside any Python environment belongs to: its folder, one up for a CUDA version's own
    (`/usr/lib/ollama/cuda_v12/…` → `/usr/lib/ollama/`); its name where it has no folder."""
    folder, _, name = library.rpartition("/")
    if not folder:
        return name
    parent, _, last = folder.rpartition("/")
    return f"{parent}/" if re.fullmatch(r"cuda_?v?\d+", last) else f"{folder}/"


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
    rest = [name for name in lacking if name not in carriers]
    facts = [max(lacking[name], key=lambda code: code.parts) for name in [*carriers, *rest]][:4]
    meant = carriers or [name for name in lacking if _general(lacking[name])]
    names = meant or list(lacking)
    severity: Severity = "error" if carriers else "warning" if meant else "info"
    called = [shown(name, lacking[name][0]) for name in names]
    title = f"{_listed(called)} {'have' if len(called) > 1 else 'has'} no code for {card.name or 'the GPU'} ({card.sm})"
    values = {"sm": card.sm, "card": card.name or "The GPU", "capability": card.capability}
    values |= {"few": _few(lacking[names[0]], card.capability)}
    values |= {"archs": _archs(lacking[names[0]]), "package": called[0], "arch_list": card.capability}
    if carriers:
        values["fatal"] = (
            'Its kernels cannot start on this card: the first one fails with "no kernel image is available".'
        )
    elif not meant:
        values["partial"] = (
            "Its libraries are each made for one generation of cards: packages choose among them, or do without."
        )
    else:
        values["partial"] = (
            'What calls it fails with "no kernel image is available", unless the engine has another kernel for it.'
        )
    if others := [shown(name, lacking[name][0]) for name in lacking if name not in names]:
        values["others"] = _listed(others)
    values["source_package"] = _built_from_source(lacking[names[0]][0].package)
    values |= build_for(card.capability, stack) if "torch" in lacking else _newer(lacking[names[0]][0].package)
    return finding("gpu-code-missing", facts, case=case, values=values, severity=severity, title=title[:139])


def _carries(name: str, found: list[GpuCodeFound]) -> bool:
    return name in CARRIERS or not found[0].environment


def _general(found: Sequence[GpuCodeFound]) -> bool:
    """Whether a library of the package is made for several generations: one for a single generation is for that by design."""
    return any(
        len({cuda.numbers(cuda.capability_of(arch) or "")[:1] for arch in (*code.native, *code.ptx)}) > 1
        for code in found
    )


def _rank(name: str) -> int:
    return CARRIERS.index(name) if name in CARRIERS else len(CARRIERS)


def _built_from_source(name: str) -> str:
    """The package's name where a user can build it for a card in reasonable time; "" for torch and NVIDIA's."""
    return "" if not name or name == "torch" or name.startswith("nvidia-") else name


def _newer(package: str) -> dict[str, str]:
    if not package:
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


def _archs(found: Sequence[GpuCodeFound]) -> str:
    """The architectures of a package's libraries, `sm_80, sm_90a and PTX compute_90`, without those of a few special
    kernels."""
    total = sum(code.parts for code in found)
    own = [code for code in found if code.parts >= MEANT * total] or list(found)
    native = dict.fromkeys(arch for code in own for arch, count in code.native.items() if count >= FEW * usual(code))
    ptx = dict.fromkeys(arch for code in own for arch, count in code.ptx.items() if count >= FEW * usual(code))
    told = ", ".join(sorted(native, key=_number)) or "no machine code"
    return told + (f" and PTX {', '.join(sorted(ptx, key=_number))}" if ptx else "")


def _few(found: Sequence[GpuCodeFound], capability: str) -> str:
    """A word on the special kernels that a package does have for a card."""
    archs = {
        arch: count for code in found for arch, count in (code.native | code.ptx).items() if cuda.covered(capability, (arch,))
    }  # fmt: skip
    total = sum(code.parts for code in found)
    return f"Only {max(archs.values())} of its {total:,} kernel files have code for it." if archs else ""


def _number(arch: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", arch) or 0), arch


def shown(name: str, code: GpuCodeFound) -> str:
    """A package of `by_package` as a report names it: `torch 2.9.0`, `libggml-cuda.so`."""
    return _name(code.library) if name.endswith("/") else f"{name} {code.version}".strip()


def _listed(names: list[str]) -> str:
    shown = names[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _needs_driver(case: Case, name: str, found: list[GpuCodeFound], card: Card, stack: Stack) -> Finding:
    isa = max((code.isa for code in found), key=cuda.numbers)
    needs = cuda.cuda_of_ptx(isa) or ""
    values = stack.values() | {
        "driver_cuda": offered(case),
        "package": shown(name, found[0]), "sm": card.sm, "isa": isa, "needs_cuda": needs, "branch": cuda.branch_for(needs) or "",
        "arch_list": card.capability, "card": card.name or "the GPU", "source_package": _built_from_source(found[0].package),
    }  # fmt: skip
    carrier = name in CARRIERS or not found[0].environment
    return finding(
        "gpu-code-ptx-too-new", found[:3], case=case, values=values, severity="error" if carrier else "warning"
    )


def _only_ptx(case: Case, name: str, found: list[GpuCodeFound], card: Card) -> Finding:
    values = {"package": shown(name, found[0]), "sm": card.sm, "card": card.name or "the GPU", "archs": _archs(found),
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
