"""The library set as it lies on disk: what the loader would not find, take from elsewhere, or find without the functions
that are asked for. The words are those of the findings that the same faults make when a log shows them."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.binaries import (
    BuiltForOther,
    LibraryShadowed,
    LibraryUnfound,
    SymbolsUnfound,
    SystemVersionUnmet,
)
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.library_set import library_words, system_package
from loadpath.diagnosis.stack.stack import stack_of
from loadpath.knowledge import cuda

_ENGINES = ("torch", "vllm", "sgl-kernel", "sglang-kernel", "tensorrt-llm", "lmdeploy")
"""Packages whose compiled part an engine loads at every start; others matter to whoever imports them."""


FEW = 0.5
"""A share of a package's modules below which what they lack may be optional."""


def _severity(package: str) -> Severity:
    return "error" if package in _ENGINES else "warning"


def _weight(fact: LibraryUnfound) -> Severity:
    """How grave a missing library is: one that a minority of a package's modules needs may be optional."""
    few = fact.askers < FEW * fact.modules
    if fact.package in _ENGINES:
        return "warning" if few else "error"
    return "info" if few else "warning"


def _gravest(facts: list[LibraryUnfound]) -> list[LibraryUnfound]:
    order: tuple[Severity, ...] = ("error", "warning", "info")
    return sorted(facts, key=lambda f: (order.index(_weight(f)), not f.needed.startswith("libcudart")))


def unfound(case: Case) -> Iterator[Finding]:
    """CUDA's libraries, and those of the operating system, that compiled modules need and that are nowhere."""
    stack = stack_of(case)
    of_cuda = [f for f in case.all(LibraryUnfound) if cuda.library(f.needed)]
    if of_cuda:
        first = _gravest(of_cuda)[0]
        values = library_words(first.needed, stack, first.package or "the package")
        names = ", ".join(dict.fromkeys(f.needed for f in of_cuda if f.package == first.package))
        cause = f"{first.package} {first.version}".strip() or first.library.rpartition("/")[2]
        told = [f"{cause} needs {names}: there is no such file where the loader looks, nor in {first.environment}."]
        told += [values["mismatch"]] if values.get("mismatch") else []
        if first.elsewhere:
            told.append(f"{first.elsewhere} exists, in a folder where the loader does not look by itself.")
            values["native_major"] = values["major"]
        told.append("It fails when it is imported, unless it loads the files itself from a toolkit.")
        yield finding("cuda-library-missing", _gravest(of_cuda), case=case, step="unseen", values=values, cause=" ".join(told),
                      severity=_weight(first), certainty="likely")  # fmt: skip
    other = [
        f
        for f in case.all(LibraryUnfound)
        if not cuda.library(f.needed) and not f.needed.startswith(("libtorch", "libc10"))
    ]
    if other:
        yield _system(case, other)


def _system(case: Case, facts: list[LibraryUnfound]) -> Finding:
    first = _gravest(facts)[0]
    names = list(dict.fromkeys(f.needed for f in facts))
    packages = [p for p in dict.fromkeys(system_package(name) for name in names) if not p.startswith("<")]
    values = {"lib": ", ".join(names[:4])}
    if packages:
        values["install"] = f"apt-get update && apt-get install -y {' '.join(packages)}"
    cause = (
        f"{first.package or first.library} needs {first.needed}, and there is no such file where the loader looks, nor in "
        f"{first.environment}. Slim images leave such libraries of the operating system out; what needs them fails when it is "
        "imported; optional parts of a package may never be."
    )
    return finding("system-library-missing", facts, case=case, step="unseen", values=values, cause=cause, severity=_weight(first),
                   certainty="likely")  # fmt: skip


def symbols(case: Case) -> Iterator[Finding]:
    """Extensions that ask the installed torch for functions that it does not define."""
    found = sorted(case.all(SymbolsUnfound), key=lambda f: f.package not in _ENGINES)
    if not found:
        return
    first = found[0]
    package = first.package or "the package"
    values = stack_of(case).values() | {
        "ext": first.library.rpartition("/")[2],
        "symbol": first.names[0] if first.names else "",
        "pkg": package,
        "engine": case.engine if case.engine in ("vllm", "sglang") else package,
        "torch": first.torch,
        "old_abi": "pre-cxx11" if first.old_abi else "",
    }
    others = dict.fromkeys(f.package for f in found if f.package and f.package != first.package)
    title = f"{package} {first.version} was built against another PyTorch than the installed {first.torch}"
    if others:
        title = (
            f"{package} {first.version} and {', '.join(others)} were built against another PyTorch than {first.torch}"
        )
    yield finding("torch-abi-mismatch", found, case=case, step="unseen", values=values, title=title[:139],
                  severity=_severity(package))  # fmt: skip


def shadowed(case: Case) -> Iterator[Finding]:
    """A copy from outside the environment that the loader would take for torch's own."""
    facts = case.all(LibraryShadowed)
    if not facts:
        return
    first = facts[0]
    values = {
        "needed": first.needed, "taken": first.taken, "own": first.own, "how": first.how, "asker": first.library.rpartition("/")[2],
        "own_folder": first.own.rpartition("/")[0], "taken_version": first.taken_version if first.own_version else "",
        "own_version": first.own_version,
    }  # fmt: skip
    older = (
        cuda.numbers(first.taken_version) < cuda.numbers(first.own_version)
        if first.taken_version and first.own_version
        else False
    )
    yield finding("library-shadowed", facts, case=case, step="unseen", values=values,
                  severity="error" if older and first.needed.startswith("libnvJitLink") else None)  # fmt: skip


def other_platform(case: Case) -> Iterator[Finding]:
    """Packages whose compiled modules are for another Python or another machine."""
    facts = case.all(BuiltForOther)
    if not facts:
        return
    first = facts[0]
    title = f"{first.package} {first.version} is built for {first.what}, and here is {first.here}"
    cause = f"All compiled modules of {first.package} in {first.environment} are for {first.what}: {first.here} cannot load them."
    yield finding("wheel-for-other-platform", facts, case=case, step="unseen", title=title, cause=cause,
                  severity=_severity(first.package))  # fmt: skip


def old_system(case: Case) -> Iterator[Finding]:
    """Modules that were built on a newer system: glibc or libstdc++ is too old for them."""
    facts = sorted(case.all(SystemVersionUnmet), key=lambda f: f.package not in _ENGINES)
    if not facts:
        return
    first = facts[0]
    who = f"{first.package} {first.version}".strip() or first.library.rpartition("/")[2]
    cause = (
        f"{who} was built on a newer system: {first.library.rpartition('/')[2]} asks for {first.wants}, and {first.path} offers "
        f"{first.wants.partition('_')[0]}_{first.has} at most. It fails when it is imported."
    )
    yield finding("glibc-too-old", facts, case=case, step="unseen", values={"v": first.wants}, cause=cause,
                  severity=_severity(first.package))  # fmt: skip


RULES = (
    Rule(unfound, (LibraryUnfound,), ("cuda-library-missing", "system-library-missing")),
    Rule(symbols, (SymbolsUnfound,), ("torch-abi-mismatch",)),
    Rule(shadowed, (LibraryShadowed,), ("library-shadowed",)),
    Rule(old_system, (SystemVersionUnmet,), ("glibc-too-old",)),
    Rule(other_platform, (BuiltForOther,), ("wheel-for-other-platform",)),
)
