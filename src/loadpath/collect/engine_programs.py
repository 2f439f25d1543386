"""Engines that are programs of their own: their executables and the libraries beside them, running or installed."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from loadpath.collect.probe import Machine

PROGRAMS = ("llama-server", "llama-cli", "ollama", "tritonserver", "text-generation-launcher", "trtllm-serve")
# Where such programs lie that are not in PATH; `*` matches within one name.
_FOLDERS = ("/usr/lib/ollama", "/usr/local/lib/ollama", "/app", "/app/lib", "/opt/llama.cpp", "/opt/llama.cpp/build/bin",
            "/opt/tritonserver/backends/*", "/opt/tritonserver/lib")  # fmt: skip
_OF_THE_SYSTEM = ("/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin")


def program_files(machine: Machine) -> Iterator[str]:
    """The paths of executables and of the libraries beside them; a path may come twice."""
    for path in (*_running(machine), *_in_path(machine)):
        yield path
        yield from _beside(machine, path.rpartition("/")[0])
    for folder in _FOLDERS:
        parent, _, last = folder.rpartition("/")
        for each in _named(machine, parent, last):
            yield from _beside(machine, f"{parent}/{each}")


def _running(machine: Machine) -> Iterator[str]:
    """The executables of running engines that share our file system."""
    ours = machine.readlink("/proc/self/ns/mnt")
    for pid in machine.listdir("/proc"):
        path = machine.readlink(f"/proc/{pid}/exe") if pid.isdigit() else None
        if path is None or path.rpartition("/")[2] not in PROGRAMS:
            continue
        if not ours or machine.readlink(f"/proc/{pid}/ns/mnt") in (ours, None):
            yield path


def _in_path(machine: Machine) -> Iterator[str]:
    folders = [folder for folder in machine.environ.get("PATH", "").split(":") if folder]
    for folder in dict.fromkeys((*folders, "/usr/local/bin", "/usr/bin", "/app", "/opt/llama.cpp/build/bin")):
        yield from (f"{folder}/{name}" for name in PROGRAMS if machine.exists(f"{folder}/{name}"))


def _named(machine: Machine, parent: str, mask: str) -> list[str]:
    if "*" not in mask:
        return [mask] if machine.exists(f"{parent}/{mask}") else []
    return [name for name in machine.listdir(parent) if fnmatch(name, mask)]


def _beside(machine: Machine, folder: str) -> Iterator[str]:
    """The libraries of a program's folder and of its folders of variants (`cuda_v12/libggml-cuda.so`)."""
    if folder in _OF_THE_SYSTEM:
        return
    for name in machine.listdir(folder):
        if ".so" in name:
            yield f"{folder}/{name}"
        elif name.startswith("cuda"):
            yield from (f"{folder}/{name}/{own}" for own in machine.listdir(f"{folder}/{name}") if ".so" in own)
