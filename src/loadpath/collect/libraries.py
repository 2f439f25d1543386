"""The library set of each Python environment: does the loader find what compiled modules need, the copy that belongs to
them, and does the installed torch define the functions that they ask it for? Read from files; nothing is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack

from loadpath.collect.binaries.elf import MACHINES, BadElf, Elf, opened
from loadpath.collect.binaries.resolve import Loaded, Loader, closure
from loadpath.collect.binaries.symbols import Exports, undefined
from loadpath.collect.cuda_libraries import library_folders, name_of
from loadpath.collect.distributions import Distribution, contested, distributions, owners
from loadpath.collect.fat_binaries import binaries_below
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.pythons import Environment, environments
from loadpath.collect.records import record, timed
from loadpath.collect.system_versions import Short, SystemLibraries
from loadpath.core.facts.binaries import (
    BuiltForOther,
    FileOwnedTwice,
    LibrariesResolved,
    LibraryShadowed,
    LibraryUnfound,
    SymbolsUnfound,
    SystemVersionUnmet,
)

_MODULE = re.compile(r"\.(?:cpython-(?P<python>\d{2,3})t?-(?P<machine>[\w-]+)|abi3)\.so$")
# Of the driver, which another layer looks for; and the interpreter's own, which is in memory already.
_NOT_OURS = re.compile(r"^(?:libcuda\.so|libnvidia-|libnvcuvid|libnvoptix|libpython3|ld-linux|linux-vdso)")
_TORCH = ("libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so")
_OF_TORCH = re.compile(
    r"^_ZN[rVKRO]*(?:3c10|2at|5torch|6caffe2)|^_ZT[IVS]N(?:3c10|2at|5torch)|^_Zls\w+N3c10|^aoti_torch_|^THP[A-Z]"
)
_OLD_ABI = re.compile(r"RKSs|SsE?$|Ss[bijlmS]|ISs")
_NEW_ABI_ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
"""A function that every torch has, as it is called where std::string is of the new ABI."""
_NAMES_SHOWN = 3
_FIRST_LOADED = ("libtorch_global_deps.so", "libtorch_python.so")
"""What `import torch` opens, in its order."""


@timed
def gather(machine: Machine) -> Iterator[Sample]:
    lines = [line for environment in environments(machine) for line in Followed(machine, environment).lines()]
    yield machine.told(lines, name="library-set", kind="inventory", outcome="ok" if lines else "missing",
                       command="follow NEEDED, RPATH and symbols of the compiled Python modules, as ld.so would")  # fmt: skip


class Followed:
    """One environment's compiled modules, followed as the loader would."""

    def __init__(self, machine: Machine, environment: Environment) -> None:
        self.machine, self.environment = machine, environment
        self.loader = Loader(machine, environment.library_path)
        self.packages = distributions(machine, environment)
        self.owned = owners(machine, self.packages)
        self.paths = [
            p
            for site in environment.site
            for p in binaries_below(machine, site)
            if not p.endswith((".cubin", ".fatbin"))
        ]
        self.names = {path.rpartition("/")[2]: path for path in self.paths}
        self.torch = next((f"{site}/torch/lib" for site in environment.site if machine.exists(f"{site}/torch/lib")), "")
        first = [f"{self.torch}/{name}" for name in _FIRST_LOADED if self.torch]
        self.loaded: dict[str, Loaded] = closure(self.loader, first)
        self.system = SystemLibraries(self.loader, environment.prefix)
        self.exports: list[Exports] = []
        self.modules: list[str] = []
        self.needs = self.asked = 0
        self.unfound: dict[tuple[str, str], list[str]] = {}
        self.undefined: dict[str, str] = {}
        self.old: dict[tuple[str, str], tuple[str, Short]] = {}

    def lines(self) -> Iterator[str]:
        with ExitStack() as stack:
            self.exports = self._exports(stack)
            for path in self.paths:
                try:
                    with opened(self.machine.path(path)) as elf:
                        self._look_at(path, elf)
                except (OSError, BadElf, ValueError):
                    continue
        yield record(LibrariesResolved, environment=self.environment.prefix, libraries=len(self.modules), needs=self.needs,
                     unfound=len(self.unfound), symbols=self.asked)  # fmt: skip
        for (_, wanted), askers in self.unfound.items():
            if broken := self._without_variants(askers):
                yield self._unfound(wanted, broken)
        yield from (self.undefined[path] for path in self._without_variants(list(self.undefined)))
        for path, short in self.old.values():
            yield record(SystemVersionUnmet, library=path, wants=short.wanted, has=short.has, path=short.path,
                         **self._named(self.owned.get(path)))  # fmt: skip
        for names, files in contested(self.machine, self.packages).items():
            yield record(
                FileOwnedTwice, file=files[0], packages=names, files=len(files), environment=self.environment.prefix
            )
        yield from self._shadowed()
        yield from self._for_other()

    def _look_at(self, path: str, elf: Elf) -> None:
        """Follow one library if it is a Python module, part of torch, or an extension of torch."""
        module = bool(_MODULE.search(path)) or path.startswith(f"{self.torch}/libtorch")
        if not module and not any(name in _TORCH for name in elf.dynamic.needed):
            return
        self.modules.append(path)
        self.needs += len(elf.dynamic.needed)
        for wanted in self._open_needs(path, elf):
            self.unfound.setdefault((self._package(path), wanted), []).append(path)
        self._functions(path, elf)
        for short in self.system.short(path, elf) if module else ():
            self.old.setdefault((self._package(path), short.wanted), (path, short))

    def _open_needs(self, path: str, elf: Elf) -> Iterator[str]:
        """The libraries that neither torch has loaded before, nor the loader finds, nor the environment holds."""
        for wanted in elf.dynamic.needed:
            if wanted in self.loaded or wanted in self.names or _NOT_OURS.match(wanted):
                continue
            if self.loader.resolve(wanted, path, elf) is None:
                yield wanted

    def _without_variants(self, broken: list[str]) -> list[str]:
        """Without modules of which another variant is whole: packages bring one for each torch (`pg_2_9_0`, `pg_2_10_0`)."""
        all_broken = {path for askers in self.unfound.values() for path in askers} | set(self.undefined)
        whole = {_variant(path) for path in self.modules if path not in all_broken}
        return [path for path in broken if _variant(path) not in whole]

    def _unfound(self, wanted: str, askers: list[str]) -> str:
        package = self.owned.get(askers[0])
        return record(
            LibraryUnfound,
            library=askers[0],
            needed=wanted,
            askers=len(askers),
            modules=sum(self._package(path) == self._package(askers[0]) for path in self.modules),
            elsewhere=self._elsewhere(wanted),
            **self._named(package),
        )

    def _elsewhere(self, wanted: str) -> str:
        """The file in a toolkit's or conda's folder, where the loader does not look by itself."""
        folders = [f"{self.environment.prefix}/lib"]
        for name in self.machine.listdir("/usr/local"):
            if name.startswith("cuda"):
                folders += [f"/usr/local/{name}/lib64", f"/usr/local/{name}/compat"]
        return next((f"{folder}/{wanted}" for folder in folders if self.machine.exists(f"{folder}/{wanted}")), "")

    def _exports(self, stack: ExitStack) -> list[Exports]:
        found = []
        for name in self.machine.listdir(self.torch) if self.torch else ():
            if not name.startswith(("libtorch", "libc10")):
                continue
            try:
                found.append(Exports(stack.enter_context(opened(self.machine.path(f"{self.torch}/{name}")))))
            except (OSError, BadElf, ValueError):
                continue
        return found

    def _functions(self, path: str, elf: Elf) -> None:
        """Look up the functions of torch that a module asks for, and note those that none of torch's libraries defines."""
        if not self.exports or path.startswith(self.torch) or not any(name in _TORCH for name in elf.dynamic.needed):
            return
        asked = [name for name in undefined(elf) if _OF_TORCH.match(name)]
        self.asked += len(asked)
        missing = [name for name in asked if not any(name in exported for exported in self.exports)]
        missing = [name for name in missing if not self._defined_beside(name, path, elf)]
        if missing:
            torch = next((package.version for package in self.packages if package.name == "torch"), "")
            new_here = any(_NEW_ABI_ERROR in exported for exported in self.exports)
            old = new_here and any(_OLD_ABI.search(name) and "cxx11" not in name for name in missing)
            self.undefined[path] = (
                record(SymbolsUnfound, library=path, count=len(missing), names=missing[:_NAMES_SHOWN], torch=torch, old_abi=old,
                       **self._named(self.owned.get(path)))
            )  # fmt: skip

    def _defined_beside(self, name: str, path: str, elf: Elf) -> bool:
        """Whether another library that the module needs, one of its own package, defines the function."""
        for wanted in elf.dynamic.needed:
            if wanted in _TORCH or wanted in self.loaded or (found := self.names.get(wanted)) is None:
                continue
            try:
                with opened(self.machine.path(found)) as beside:
                    if name in Exports(beside):
                        return True
            except (OSError, BadElf, ValueError):
                continue
        return False

    def _shadowed(self) -> Iterator[str]:
        """CUDA libraries that torch would take from outside the environment although the environment brings them."""
        own = {
            name: f"{folder}/{name}"
            for folder in library_folders(self.machine, self.environment)
            for name in self.machine.listdir(folder)
            if name_of(name)
        }
        for wanted, taken in self.loaded.items():
            path = own.get(wanted)
            if path is None or self._same(path, taken.path):
                continue
            yield record(
                LibraryShadowed,
                library=taken.asker,
                needed=wanted,
                taken=taken.path,
                own=path,
                how=taken.how,
                taken_version=self._version(taken.path),
                own_version=self._version(path),
                **{k: v for k, v in self._named(self.owned.get(taken.asker)).items() if k != "version"},
            )

    def _same(self, one: str, other: str) -> bool:
        return os.path.realpath(self.machine.path(one)) == os.path.realpath(self.machine.path(other))

    def _version(self, path: str) -> str:
        """The version in the name of the file that a link leads to, or of the package that owns it."""
        told = os.path.realpath(self.machine.path(path)).rpartition(".so.")[2]
        owner = self.owned.get(path)
        return told if "." in told else owner.version if owner else ""

    def _for_other(self) -> Iterator[str]:
        """Packages none of whose compiled modules fits this Python or this machine."""
        if "." not in self.environment.python:
            return  # which Python it is cannot be told
        here = self.environment.python.replace(".", "")
        by_package: dict[str, list[tuple[str, str]]] = {}
        for path in self.modules:
            name = self._package(path)
            if name and (hit := _MODULE.search(path)):
                python = hit["python"] or here
                by_package.setdefault(name, []).append(
                    (path, "" if python == here else f"Python {python[0]}.{python[1:]}")
                )
        for built in by_package.values():
            wrong = self._wrong_machine(built[0][0]) or (built[0][1] if all(what for _, what in built) else "")
            package = self.owned.get(built[0][0])
            if wrong and package:
                local = (
                    f"Python {self.environment.python}" if wrong.startswith("Python") else _machine_here(self.machine)
                )
                yield record(BuiltForOther, package=package.name, version=package.version, library=built[0][0], what=wrong,
                             here=local, environment=self.environment.prefix)  # fmt: skip

    def _wrong_machine(self, path: str) -> str:
        here = _machine_here(self.machine)
        try:
            with opened(self.machine.path(path)) as elf:
                return elf.machine_name if here and elf.machine_name != here else ""
        except (OSError, BadElf, ValueError):
            return ""

    def _package(self, path: str) -> str:
        package = self.owned.get(path)
        return package.name if package else ""

    def _named(self, package: Distribution | None) -> dict[str, str]:
        return {
            "environment": self.environment.prefix,
            "package": package.name if package else "",
            "version": package.version if package else "",
        }


def _variant(path: str) -> str:
    """A module's path without its numbers: the same for the variants of one module."""
    return re.sub(r"\d+(?:[._]\d+)*", "#", path)


def _machine_here(machine: Machine) -> str:
    """The machine that the system's own programs are for, `x86-64`; "" where none can be read."""
    for path in ("/bin/sh", "/usr/bin/env", "/bin/busybox"):
        try:
            with opened(machine.path(path)) as elf:
                return MACHINES.get(elf.machine, "")
        except (OSError, BadElf, ValueError):
            continue
    return ""


PROBES = (Probe("library-set", "inventory", "library-set", gather),)
