"""The Python environments of a machine that hold packages for GPUs, the one that an engine runs from first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

import msgspec

from loadpath.collect.probe import Machine

MOST = 6
"""Environments that are looked through."""
_WORTH = ("torch", "nvidia", "vllm", "sglang", "tensorrt_llm", "llama_cpp", "xllamacpp", "ctranslate2", "cupy", "jaxlib", "tensorflow",
          "onnxruntime", "triton")  # fmt: skip
_ENGINES = re.compile(
    r"vllm|sglang|trtllm|tensorrt_llm|lmdeploy|text_generation|torchrun|torch\.distributed|llama_cpp|tritonserver"
)
_USUAL = ("/opt/venv", "/opt/conda", "/opt/conda/envs/*", "/venv", "/app/.venv", "/workspace/.venv", "/workspace/venv", "/root/.venv",
          "/root/venv", "/home/*/.venv", "/home/*/venv", "/root/miniconda3", "/home/*/miniconda3", "/root/miniconda3/envs/*",
          "/home/*/miniconda3/envs/*", "/opt/*venv*", "/root/.local", "/home/*/.local", "/usr/local", "/usr")  # fmt: skip


class Environment(msgspec.Struct, frozen=True):
    """`site`: its package folders, in the order in which Python looks; `how`: in words, how it was found;
    `library_path`: LD_LIBRARY_PATH of the engine that runs from it, None where none runs."""

    prefix: str
    site: tuple[str, ...]
    python: str
    how: str
    chosen: bool = False
    library_path: tuple[str, ...] | None = None


def environments(machine: Machine) -> tuple[Environment, ...]:
    """At most MOST environments, each once; the first with torch is `chosen`."""
    return found_environments(machine)[0]


def found_environments(machine: Machine) -> tuple[tuple[Environment, ...], int]:
    """The same, and how many more there are that were left out."""
    found: dict[tuple[str, ...], Environment] = {}
    seen: set[str] = set()
    for prefix, how, library_path in _prefixes(machine):
        prefix = prefix.rstrip("/")
        if not prefix or prefix in seen:
            continue
        seen.add(prefix)
        for python, site in _sites(machine, prefix).items():
            real = tuple(os.path.realpath(machine.path(folder)) for folder in site)
            if real not in found and any(_worth(machine, folder) for folder in site):
                found[real] = Environment(prefix, site, python, how, library_path=library_path)
    every = list(found.values())[:MOST]
    first = next((e for e in every if any(machine.exists(f"{folder}/torch") for folder in e.site)), None)
    return tuple(msgspec.structs.replace(e, chosen=e is (first or every[0])) for e in every), len(found) - len(every)


def _worth(machine: Machine, folder: str) -> bool:
    return any(machine.exists(f"{folder}/{name}") for name in _WORTH)


def _sites(machine: Machine, prefix: str) -> dict[str, tuple[str, ...]]:
    """The package folders below a prefix by Python version."""
    sites: dict[str, list[str]] = {}
    for lib in ("lib", "lib64"):
        if lib == "lib64" and machine.readlink(f"{prefix}/lib64"):
            continue
        for name in machine.listdir(f"{prefix}/{lib}"):
            if not re.fullmatch(r"python3(\.\d+)?", name):
                continue
            for packages in ("site-packages", "dist-packages"):
                folder = f"{prefix}/{lib}/{name}/{packages}"
                if machine.exists(folder):
                    sites.setdefault(_minor(machine, prefix, name), []).append(folder)
    return {python: tuple(folders) for python, folders in sites.items()}


def _minor(machine: Machine, prefix: str, name: str) -> str:
    """`python3.12` → `3.12`; for Debian's `python3` folder that of the interpreter, `3` where it cannot be told."""
    version = name.removeprefix("python")
    if "." not in version and (link := machine.readlink(f"{prefix}/bin/python3")):
        hit = re.search(r"python(3\.\d+)$", link)
        version = hit[1] if hit else version
    return version


def _prefixes(machine: Machine) -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
    """Prefixes where an environment may lie, the most telling first, with how each was come by and, for that of a
    running engine, its LD_LIBRARY_PATH."""
    if told := machine.options.get("python"):
        yield _prefix_of(told), "the Python that was named", None
    yield from _of_processes(machine)
    for prefix, how in _of_shell_and_usual(machine):
        yield prefix, how, None


def _of_shell_and_usual(machine: Machine) -> Iterator[tuple[str, str]]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := machine.environ.get(name):
            yield value, name
    for folder in machine.environ.get("PATH", "").split(":"):
        if folder and machine.exists(f"{folder}/python3"):
            yield _prefix_of(f"{folder}/python3"), "the first python3 in PATH"
            break
    if machine.live:
        yield str(os.path.normpath(sys.prefix)), "loadpath's own"
        yield f"{os.getcwd()}/.venv", "the current folder"  # noqa: PTH109 - of the machine, as text
    for pattern in _USUAL:
        for prefix in _matching(machine, pattern):
            yield prefix, "a usual place"


def _of_processes(machine: Machine) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The environments of running engines that share our file system."""
    ours = machine.readlink("/proc/self/ns/mnt")
    for pid in machine.listdir("/proc"):
        if not pid.isdigit():
            continue
        words = (machine.read(f"/proc/{pid}/cmdline", 65536) or b"").decode("utf-8", "replace").split("\0")
        if not words[0] or not _ENGINES.search(" ".join(words)):
            continue
        if ours and machine.readlink(f"/proc/{pid}/ns/mnt") not in (ours, None):
            continue  # in a container: its paths mean other files
        told = dict(
            pair.partition("=")[::2]
            for pair in (machine.read(f"/proc/{pid}/environ", 1 << 20) or b"").decode("utf-8", "replace").split("\0")
        )
        how = f"of process {pid}"
        library_path = tuple(told.get("LD_LIBRARY_PATH", "").split(":"))
        if told.get("VIRTUAL_ENV"):
            yield told["VIRTUAL_ENV"], how, library_path
        for word in words[:2]:
            if word.startswith("/") and "/bin/" in word:
                yield _prefix_of(word), how, library_path
        if exe := machine.readlink(f"/proc/{pid}/exe"):
            yield _prefix_of(exe), how, library_path


def _prefix_of(program: str) -> str:
    """The prefix of a program (`/opt/venv/bin/python3` → `/opt/venv`); a prefix stays what it is."""
    return program.rpartition("/bin/")[0] if "/bin/" in program else program


def _matching(machine: Machine, pattern: str) -> Iterator[str]:
    """The folders that a pattern with `*` names."""
    if "*" not in pattern:
        yield pattern
        return
    head, _, tail = pattern.partition("*")
    base, _, start = head.rpartition("/")
    mask, _, rest = tail.partition("/")
    for name in machine.listdir(base or "/"):
        if fnmatch(name, f"{start}*{mask}"):
            yield from _matching(machine, f"{base}/{name}" + (f"/{rest}" if rest else ""))
