"""What loadpath's own probes found in files: environments, packages, GPU code, libraries; one JSON object a line.

{"type":"TorchInstalled","environment":"/opt/venv","version":"2.9.0+cu128","cuda":"12.8","chosen":true}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import msgspec

from loadpath.core.facts import binaries
from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.stack import ComponentVersion
from loadpath.core.text import Capture, Line

LONGEST = 100_000


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        fact = _fact(capture, line)
        if fact is not None:
            yield fact
            yield from _versions(capture, line, fact)


@cache
def _kinds() -> dict[str, type[Fact]]:
    made = (value for value in vars(binaries).values() if isinstance(value, type) and issubclass(value, Fact))
    return {kind.__name__: kind for kind in made if kind is not Fact}


def _fact(capture: Capture, line: Line) -> Fact | None:
    """The fact that a line states; None for a line that is none (cut, edited, of a newer loadpath)."""
    if not line.raw.startswith("{") or len(line.raw) > LONGEST:
        return None
    try:
        told = msgspec.json.decode(line.raw)
        kind = _kinds()[told["type"]]
        made = msgspec.convert(told | {"span": msgspec.to_builtins(capture.span(line))}, kind)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    return msgspec.structs.replace(made, **{**at(capture, line), "text": _words(made)})


def _versions(capture: Capture, line: Line, fact: Fact) -> Iterator[ComponentVersion]:
    """The same as plain versions, for the rules that ask for those; only of the environment that is meant."""
    common = at(capture, line) | {"text": fact.text}
    if isinstance(fact, binaries.PackageInstalled) and fact.chosen:
        yield ComponentVersion(**common, name=fact.name, version=fact.version, basis="package")
    elif isinstance(fact, binaries.TorchInstalled) and fact.chosen and fact.cuda:
        yield ComponentVersion(**common, name="torch-cuda", version=fact.cuda, basis="package")
    elif isinstance(fact, binaries.FrameworkStarted):
        yield ComponentVersion(**common, name="torch", version=fact.version, basis="package")
        if fact.cuda:
            yield ComponentVersion(**common, name="torch-cuda", version=fact.cuda, basis="dump")


def _words(fact: Fact) -> str:
    """A fact as evidence shows it: one line for a person."""
    says = _SAYINGS.get(type(fact))
    return says(fact) if says else type(fact).__name__


def _of(package: str, version: str) -> str:
    return f" ({package} {version})".replace(" )", ")") if package else ""


def _code(fact: binaries.GpuCodeFound) -> str:
    code = [f"{arch} ×{count}" for arch, count in fact.native.items()]
    code += [f"PTX {arch} ×{count}" for arch, count in fact.ptx.items()]
    cubins = f", {fact.files:,} cubins" if fact.files > 1 else ""
    problem = f" [{fact.problem}]" if fact.problem else ""
    return f"{fact.library}{_of(fact.package, fact.version)}{cubins}: {', '.join(code) or 'no GPU code'}{problem}"


def _torch(fact: binaries.TorchInstalled) -> str:
    built = (
        f"built with CUDA {fact.cuda}"
        if fact.cuda
        else f"built with ROCm {fact.hip}"
        if fact.hip
        else "a build without CUDA"
    )
    return f"{fact.environment}: torch {fact.version}, {built}"


def _needs(fact: binaries.RequirementUnmet) -> str:
    has = f"{fact.needs} {fact.has} is installed" if fact.has else f"{fact.needs} is not installed"
    return f"{fact.package} {fact.version} requires {fact.wants}; {has}"


def _unfound(fact: binaries.LibraryUnfound) -> str:
    more = f" (and {fact.askers - 1} more)" if fact.askers > 1 else ""
    lies = f"; there is {fact.elsewhere}" if fact.elsewhere else ""
    return f"{fact.library}{_of(fact.package, fact.version)}{more} needs {fact.needed}: no such file where the loader looks{lies}"


def _shadowed(fact: binaries.LibraryShadowed) -> str:
    return (
        f"{fact.library} needs {fact.needed}: {fact.how} gives {fact.taken}{_of(fact.taken_version, '')}, "
        f"the environment has {fact.own}{_of(fact.own_version, '')}"
    )


def _symbols(fact: binaries.SymbolsUnfound) -> str:
    names = ", ".join(fact.names)
    return f"{fact.library}{_of(fact.package, fact.version)}: torch {fact.torch} does not define {fact.count} of its functions: {names}"


def _started(fact: binaries.FrameworkStarted) -> str:
    devices = ", ".join(f"{name} ({capability})" for name, capability in fact.devices)
    return f"torch {fact.version}, CUDA {fact.cuda or 'none'}, available: {fact.available}, archs: {' '.join(fact.archs)}; {devices}"


_SAYINGS: dict[type[Fact], Callable[..., str]] = {
    binaries.PythonEnvironment: lambda f: f"{f.environment}: Python {f.python}, {f.packages} packages ({f.how})",
    binaries.PackageInstalled: lambda f: f"{f.name} {f.version or '(no version)'} in {f.folder or f.environment}",
    binaries.RequirementUnmet: _needs,
    binaries.TorchInstalled: _torch,
    binaries.GpuCodeFound: _code,
    binaries.CudaLibraryFound: lambda f: f"{f.path}: {f.soname} {f.version} ({f.place})",
    binaries.LibrariesResolved: lambda f: (
        f"{f.environment}: {f.libraries} libraries, {f.needs} needs, {f.unfound} not found"
    ),
    binaries.LibraryUnfound: _unfound,
    binaries.LibraryShadowed: _shadowed,
    binaries.SymbolsUnfound: _symbols,
    binaries.SystemVersionUnmet: lambda f: (
        f"{f.library}{_of(f.package, f.version)} needs {f.wants}; {f.path} has {f.has} at most"
    ),
    binaries.FileOwnedTwice: lambda f: (
        f"{f.file} was installed by {' and by '.join(f.packages)} ({f.files} such files)"
    ),
    binaries.BuiltForOther: lambda f: f"{f.library} ({f.package} {f.version}) is built for {f.what}; here is {f.here}",
    binaries.FrameworkStarted: _started,
}
