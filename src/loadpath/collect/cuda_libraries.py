"""CUDA's libraries on disk: those of the Python environments, of toolkits, of the system and of the compatibility package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from loadpath.collect.binaries.elf import BadElf, opened
from loadpath.collect.distributions import distributions, owners
from loadpath.collect.loader import CACHE, cache_entries
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.pythons import Environment, environments
from loadpath.collect.records import record, timed
from loadpath.core.facts.binaries import CudaLibraryFound

NAMES = ("libcudart", "libcublas", "libcublasLt", "libcudnn", "libnccl", "libnvrtc", "libnvJitLink", "libcusparse", "libcusparseLt",
         "libcusolver", "libcufft", "libcurand", "libcupti", "libcufile", "libnvshmem_host", "libnvinfer", "libnvToolsExt")  # fmt: skip
_FILE = re.compile(rf"^({'|'.join(sorted(NAMES, key=len, reverse=True))})(?:-[0-9a-f]{{8}})?\.so(?:\.([\d.]+))?$")
_TOOLKIT_FOLDERS = ("lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_COMPAT = re.compile(r"^libcuda\.so\.(\d{3}\.\d+(?:\.\d+)*)$")


def name_of(path: str) -> str:
    """`libcudart` of `…/libcudart.so.12.8.90`; "" for what is no library of CUDA's."""
    hit = _FILE.match(path.rpartition("/")[2])
    return hit[1] if hit else ""


@timed
def gather(machine: Machine) -> Iterator[Sample]:
    lines = [*_of_environments(machine), *_of_system(machine), *_of_toolkits(machine)]
    yield machine.told(lines, name="cuda-libraries", kind="inventory", outcome="ok" if lines else "missing",
                       command="list CUDA's libraries in the Python environments, /usr/local/cuda*, ld.so.cache and "
                       "LD_LIBRARY_PATH")  # fmt: skip


def _of_environments(machine: Machine) -> Iterator[str]:
    for environment in environments(machine):
        owned = owners(machine, distributions(machine, environment))
        for folder in library_folders(machine, environment):
            for name in machine.listdir(folder):
                path = f"{folder}/{name}"
                if not name_of(name) or machine.readlink(path):
                    continue
                owner = owned.get(path)
                place = "pip" if owner or "/nvidia/" in path else "bundled"
                package, version = (owner.name, owner.version) if owner else ("", "")
                yield _line(machine, path, place, environment, package, version if place == "pip" else "")
        if machine.exists(f"{environment.prefix}/conda-meta"):
            for name in machine.listdir(f"{environment.prefix}/lib"):
                path = f"{environment.prefix}/lib/{name}"
                if name_of(name) and not machine.readlink(path):
                    yield _line(machine, path, "conda", environment)


def library_folders(machine: Machine, environment: Environment) -> Iterator[str]:
    """The folders of an environment that hold shared libraries which torch and others load."""
    for site in environment.site:
        for package in machine.listdir(f"{site}/nvidia"):
            yield f"{site}/nvidia/{package}/lib"
        for name in machine.listdir(site):
            if name.endswith(".libs"):
                yield f"{site}/{name}"
        yield from (f"{site}/torch/lib", f"{site}/tensorrt_libs")


def _of_system(machine: Machine) -> Iterator[str]:
    """What the loader finds by itself: its cache, and LD_LIBRARY_PATH."""
    seen: set[str] = set()
    for _, path in cache_entries(machine.read(CACHE) or b""):
        if name_of(path) and path not in seen and "/cuda" not in path:
            seen.add(path)
            yield _line(machine, path, "system")
    for folder in machine.environ.get("LD_LIBRARY_PATH", "").split(":"):
        for name in machine.listdir(folder) if folder else ():
            path = f"{folder.rstrip('/')}/{name}"
            if name_of(name) and path not in seen and not machine.readlink(path):
                seen.add(path)
                yield _line(machine, path, "toolkit" if "/cuda" in path else "system")


def _of_toolkits(machine: Machine) -> Iterator[str]:
    for name in machine.listdir("/usr/local"):
        if not re.fullmatch(r"cuda(-\d+(\.\d+)?)?", name) or machine.readlink(f"/usr/local/{name}"):
            continue
        home = f"/usr/local/{name}"
        if version := _toolkit_version(machine, home):
            yield record(CudaLibraryFound, name="cuda-toolkit", soname="", path=home, version=version, place="toolkit")
        done: set[str] = set()
        for below in _TOOLKIT_FOLDERS:
            for file in machine.listdir(f"{home}/{below}"):
                path = f"{home}/{below}/{file}"
                if name_of(file) and file not in done and not machine.readlink(path):
                    done.add(file)
                    yield _line(machine, path, "toolkit")
        for file in machine.listdir(f"{home}/compat"):
            if hit := _COMPAT.match(file):
                path = f"{home}/compat/{file}"
                yield record(
                    CudaLibraryFound, name="libcuda", soname="libcuda.so.1", path=path, version=hit[1], place="compat"
                )


def _toolkit_version(machine: Machine, home: str) -> str:
    try:
        told = json.loads(machine.read(f"{home}/version.json", 1 << 20) or b"{}")
        return str((told.get("cuda_nvcc") or told.get("cuda") or {}).get("version", ""))
    except (ValueError, AttributeError):
        return ""


def _line(
    machine: Machine,
    path: str,
    place: str,
    environment: Environment | None = None,
    package: str = "",
    version: str = "",
) -> str:
    name = path.rpartition("/")[2]
    hit = _FILE.match(name)
    told = (hit[2] or "") if hit else ""
    try:
        with opened(machine.path(path)) as elf:
            soname = elf.dynamic.soname
    except (OSError, BadElf, ValueError):
        soname = ""
    return record(
        CudaLibraryFound,
        name=name_of(path),
        soname=soname or name,
        path=path,
        version=told if "." in told else version,
        place=place,
        package=package,
        environment=environment.prefix if environment else "",
        chosen=environment.chosen if environment else False,
    )


PROBES = (Probe("cuda-libraries", "inventory", "cuda-runtime", gather),)
