"""The installed packages of a Python environment, from their metadata folders (`*.dist-info`, `*.egg-info`)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from email.parser import HeaderParser

import msgspec

from loadpath.collect.probe import Machine
from loadpath.collect.pythons import Environment

_SEPARATORS = re.compile(r"[-_.]+")
_BINARY = re.compile(r"\.so(?:\.[\d.]+)?$|\.cubin$|\.fatbin$")


class Distribution(msgspec.Struct, frozen=True):
    """One package. `info`: its metadata folder; `requires`: as declared, markers included."""

    name: str
    version: str
    site: str
    info: str
    requires: tuple[str, ...] = ()


def normal(name: str) -> str:
    """A package's name as pip compares it: lower case, dashes."""
    return _SEPARATORS.sub("-", name).lower()


def distributions(machine: Machine, environment: Environment) -> list[Distribution]:
    """Every package of an environment; one that is half installed has the version ""."""
    found = []
    for site in environment.site:
        for folder in machine.listdir(site):
            if folder.endswith((".dist-info", ".egg-info")):
                found.append(_read(machine, site, folder))
    return found


def _read(machine: Machine, site: str, folder: str) -> Distribution:
    info = f"{site}/{folder}"
    wheel = folder.endswith(".dist-info")
    data = machine.read(f"{info}/METADATA" if wheel else f"{info}/PKG-INFO", 1 << 20)
    if data is None and not wheel:
        data = machine.read(info, 1 << 20)  # an egg-info may be one file
    stem = folder.rpartition(".")[0].split("-")
    if data is None:
        return Distribution(normal(stem[0]), "", site, info)
    head = HeaderParser().parsestr(data.decode("utf-8", "replace").partition("\n\n")[0])
    return Distribution(
        normal(head["Name"] or stem[0]),
        head["Version"] or "",
        site,
        info,
        tuple(str(value) for value in head.get_all("Requires-Dist") or ()),
    )


def owners(machine: Machine, packages: list[Distribution]) -> dict[str, Distribution]:
    """Which package each library and cubin belongs to, by its path, as the packages' RECORD files say."""
    owned: dict[str, Distribution] = {}
    for package in packages:
        for path in _recorded(machine, package):
            owned[path] = package
    return owned


def contested(machine: Machine, packages: list[Distribution]) -> dict[tuple[str, ...], list[str]]:
    """Libraries that more than one package says it installed, by the names of those packages."""
    claims: dict[str, set[str]] = {}
    for package in packages:
        for path in _recorded(machine, package):
            claims.setdefault(path, set()).add(package.name)
    found: dict[tuple[str, ...], list[str]] = {}
    for path, names in claims.items():
        if len(names) > 1 and ".so" in path:
            found.setdefault(tuple(sorted(names)), []).append(path)
    return found


def _recorded(machine: Machine, package: Distribution) -> Iterator[str]:
    record = machine.read(f"{package.info}/RECORD")
    if record is None:
        return
    lines = (line for line in record.decode("utf-8", "replace").splitlines() if ".so" in line or "bin," in line)
    for row in csv.reader(lines):
        if row and _BINARY.search(row[0]):
            yield f"{package.site}/{row[0]}"
