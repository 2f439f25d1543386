"""PyTorch: what its files say of themselves and, only when that is asked for, what it says when it is started."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from loadpath.collect.binaries.elf import BadElf, opened
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.pythons import Environment, environments, found_environments
from loadpath.collect.records import record
from loadpath.core.facts.binaries import PythonEnvironment, TorchInstalled

RUN_OPTION = "run-framework"
START_SECONDS = 120.0
"""Importing torch from a cold disk takes a minute on slow machines."""
_NEW_ABI, _OLD_ABI = b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx11", b"_ZN3c105ErrorC2ENS_14SourceLocationESs"
# Run by the environment's own Python; every question by itself, so that one that fails hides no other.
_QUESTIONS = """
import json, sys, traceback
told = {"type": "FrameworkStarted"}
def ask(name, question):
    try:
        told[name] = question()
    except BaseException:
        traceback.print_exc(limit=3)
import torch
told["version"] = torch.__version__
ask("cuda", lambda: torch.version.cuda or "")
ask("available", torch.cuda.is_available)
ask("archs", torch.cuda.get_arch_list)
ask("cudnn", lambda: str(torch.backends.cudnn.version() or ""))
ask("nccl", lambda: ".".join(map(str, torch.cuda.nccl.version())))
def devices():
    torch.cuda.init()
    return [(torch.cuda.get_device_name(i), "%d.%d" % torch.cuda.get_device_capability(i)) for i in range(torch.cuda.device_count())]
ask("devices", devices)
print(json.dumps(told))
"""


def installed(machine: Machine) -> Iterator[Sample]:
    lines = []
    every, left_out = found_environments(machine)
    for environment in every:
        lines.append(
            record(
                PythonEnvironment,
                environment=environment.prefix,
                python=environment.python,
                how=environment.how,
                chosen=environment.chosen,
                packages=sum(
                    name.endswith(".dist-info") for site in environment.site for name in machine.listdir(site)
                ),
            )
        )
        if line := _torch(machine, environment):
            lines.append(line)
    yield machine.told(lines, name="torch", kind="inventory", command="cat */site-packages/torch/version.py",
                       outcome="ok" if lines else "missing",
                       note=f"{left_out} further Python environments were left out" if left_out else "")  # fmt: skip
    if machine.options.get(RUN_OPTION):
        yield _started(machine)


def _torch(machine: Machine, environment: Environment) -> str | None:
    for site in environment.site:
        text = machine.text(f"{site}/torch/version.py")
        if text is None:
            continue
        told = _assigned(text)
        return record(
            TorchInstalled,
            environment=environment.prefix,
            version=told.get("__version__", ""),
            cuda=told.get("cuda", ""),
            hip=told.get("hip", ""),
            cxx11_abi=_abi(machine, f"{site}/torch/lib/libc10.so"),
            chosen=environment.chosen,
        )
    return None


def _assigned(text: str) -> dict[str, str]:
    """The names that a module sets to plain strings, read without running it."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return {}
    told = {}
    for line in body:
        target = (
            line.target
            if isinstance(line, ast.AnnAssign)
            else line.targets[0]
            if isinstance(line, ast.Assign)
            else None
        )
        value = line.value if isinstance(line, ast.AnnAssign | ast.Assign) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            told[target.id] = value.value
    return told


def _abi(machine: Machine, path: str) -> bool | None:
    """Whether torch's base library exports functions with the new C++ string ABI; None where it shows neither."""
    try:
        with opened(machine.path(path)) as elf:
            if elf.data.find(_NEW_ABI) >= 0:
                return True
            return False if elf.data.find(_OLD_ABI) >= 0 else None
    except (OSError, BadElf, ValueError):
        return None


def _started(machine: Machine) -> Sample:
    """PyTorch asked in a process of its own, by the Python of the environment that is meant."""
    chosen = next((e for e in environments(machine) if e.chosen), None)
    python = (
        next(
            (
                path
                for name in ("python", "python3", f"python{chosen.python}")
                if machine.exists(path := f"{chosen.prefix}/bin/{name}")
            ),
            "python3",
        )
        if chosen
        else "python3"
    )
    asked = machine.run(
        (python, "-c", _QUESTIONS), max(START_SECONDS, machine.timeout_s), name="torch-started", kind="framework"
    )
    return msgspec.structs.replace(asked, command=f"{python} -c 'import torch; …'")


PROBES = (Probe("torch", "inventory", "framework", installed),)
