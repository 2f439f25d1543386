"""Compiled kernels: every library with GPU code in the Python environments and beside the engines' own programs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import takewhile

from loadpath.collect.binaries.elf import MAGIC, BadElf, opened
from loadpath.collect.binaries.fatbin import Code, GpuCode, gpu_code, gpu_code_of, has_gpu_code
from loadpath.collect.distributions import Distribution, distributions, owners
from loadpath.collect.engine_programs import program_files
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.pythons import Environment, environments
from loadpath.collect.records import record, timed
from loadpath.core.facts.binaries import GpuCodeFound

SECONDS = 30.0
"""So long may the environments take together (a slow network disk); the sample says what was left."""
MOST_CUBINS = 2_000
"""Of a folder with more cubins every so many-th is read: their architectures repeat."""


@timed
def gather(machine: Machine) -> Iterator[Sample]:
    notes: list[str] = []
    lines = list(_of_programs(machine))
    end = time.monotonic() + SECONDS
    for environment in environments(machine):
        lines += takewhile(lambda _: time.monotonic() < end, _of_environment(machine, environment))
        if time.monotonic() >= end:
            notes.append(f"{environment.prefix} was not read to its end within {SECONDS:.0f} s")
    yield machine.told(lines, name="gpu-code", kind="inventory", command="read the GPU code in *.so and *.cubin of the Python environments "
                       "and engines", outcome="ok" if lines else "missing", note="; ".join(notes))  # fmt: skip


def _of_environment(machine: Machine, environment: Environment) -> Iterator[str]:
    packages = distributions(machine, environment)
    owned = owners(machine, packages)
    for site in environment.site:
        cubins: dict[str, list[str]] = {}
        for path in binaries_below(machine, site):
            if path.endswith((".cubin", ".fatbin")):
                cubins.setdefault(path.removeprefix(f"{site}/").partition("/")[0], []).append(path)
            elif line := _library(machine, path, environment, owned.get(path) or _by_folder(path, site, packages)):
                yield line
        for top, paths in cubins.items():
            yield _folder(machine, f"{site}/{top}", paths, environment, owned.get(paths[0]))


def binaries_below(machine: Machine, folder: str) -> Iterator[str]:
    """The paths of libraries, cubins and bare fat binaries below a folder, links left out."""
    base = str(machine.path(folder))
    for here, folders, names in os.walk(base):
        folders.sort()
        for name in sorted(names):
            if ".so" in name or name.endswith((".cubin", ".fatbin")):
                path = f"{here}/{name}"
                if not os.path.islink(path):  # noqa: PTH114 - of thousands of names
                    yield folder + path.removeprefix(base)


def _by_folder(path: str, site: str, packages: list[Distribution]) -> Distribution | None:
    """The package of a file that no RECORD lists (conda, a developer's install): by its folder's name."""
    top = path.removeprefix(f"{site}/").partition("/")[0].partition(".")[0].replace("_", "-").lower()
    return next((package for package in packages if package.name == top), None)


def _library(machine: Machine, path: str, environment: Environment | None, package: Distribution | None) -> str | None:
    """The record of one library; None where it is none, or holds no GPU code."""
    try:
        with opened(machine.path(path)) as elf:
            if not has_gpu_code(elf):
                return None
            return _line(path, elf.size, gpu_code(elf), environment, package)
    except BadElf as error:
        if not _claims_to_be_elf(machine, path):
            return None  # linker scripts and the like
        return _line(path, 0, GpuCode(problem=str(error)), environment, package)
    except OSError:
        return None


def _claims_to_be_elf(machine: Machine, path: str) -> bool:
    return machine.read(path, len(MAGIC)) == MAGIC


def _folder(
    machine: Machine, folder: str, paths: list[str], environment: Environment, package: Distribution | None
) -> str:
    """One record for a folder of separately stored kernels: there may be fifteen thousand."""
    sums: dict[tuple[str, str], list[int]] = {}
    problem, read = "", 0
    for path in paths[:: max(1, len(paths) // MOST_CUBINS)]:
        try:
            found = gpu_code_of(machine.path(path))
        except (OSError, BadElf) as error:
            problem = problem or f"{path.rpartition('/')[2]}: {error}"
            continue
        read += 1
        for code in found.code:
            row = sums.setdefault((code.kind, code.arch), [0, 0])
            row[0] += code.entries
            row[1] += code.bytes
    codes = tuple(Code(kind, arch, entries, size) for (kind, arch), (entries, size) in sorted(sums.items()))
    return _line(
        f"{folder}/", sum(c.bytes for c in codes), GpuCode(codes, read, problem), environment, package, len(paths)
    )


def _line(
    path: str, size: int, found: GpuCode, environment: Environment | None, package: Distribution | None, files: int = 1
) -> str:
    def of(kind: str) -> dict[str, int]:
        return {code.arch: code.entries for code in sorted(found.code, key=_by_number) if code.kind == kind}

    return record(
        GpuCodeFound,
        library=path,
        environment=environment.prefix if environment else "",
        package=package.name if package else "",
        version=package.version if package else "",
        files=files,
        bytes=size,
        parts=found.containers,
        native=of("cubin"),
        ptx=of("ptx"),
        isa=max((code.isa for code in found.code), key=lambda isa: [int(n) for n in isa.split(".") if n], default=""),
        problem=found.problem,
        chosen=environment.chosen if environment else False,
    )


def _by_number(code: Code) -> tuple[int, str]:
    name = code.arch.rpartition("_")[2]
    return int("".join(c for c in name if c.isdigit()) or 0), name


def _of_programs(machine: Machine) -> Iterator[str]:
    """Engines that are programs of their own, with the libraries beside them."""
    seen: set[str] = set()
    for path in program_files(machine):
        real = os.path.realpath(machine.path(path))
        if real not in seen:
            seen.add(real)
            if line := _library(machine, path, None, None):
                yield line


PROBES = (Probe("gpu-code", "inventory", "compiled-kernels", gather),)
