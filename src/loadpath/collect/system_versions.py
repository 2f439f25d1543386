"""glibc and libstdc++ against what compiled modules ask of them: `GLIBC_2.38`, `GLIBCXX_3.4.32`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from loadpath.collect.binaries.elf import BadElf, Elf, opened
from loadpath.collect.binaries.resolve import Loader

_WANTED = re.compile(r"^(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)+)$")
_OFFERED = re.compile(rb"\0(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)+)(?=\0)")
_HOME = {"GLIBC": "libc.so.6", "GLIBCXX": "libstdc++.so.6", "CXXABI": "libstdc++.so.6"}

Number = tuple[int, ...]


class Short(msgspec.Struct, frozen=True):
    """`wanted` (`GLIBC_2.38`) is asked of the library at `path`, whose newest is `has` (`2.35`)."""

    wanted: str
    has: str
    path: str


class SystemLibraries:
    """The C and C++ libraries that modules of one environment would get, and the versions that they offer."""

    def __init__(self, loader: Loader, prefix: str) -> None:
        """`prefix`: of the environment, whose own libstdc++ (conda's) Python has loaded before."""
        self.loader, self.prefix = loader, prefix
        self._offers: dict[str, dict[str, Number]] = {}

    def short(self, path: str, elf: Elf) -> Iterator[Short]:
        """What the module at `path` asks for and does not get, the newest of each kind."""
        newest: dict[str, Number] = {}
        for name in elf.dynamic.needs_versions:
            if hit := _WANTED.match(name):
                newest[hit[1]] = max(newest.get(hit[1], ()), _numbers(hit[2]))
        for kind, wanted in newest.items():
            copies = self._copies(_HOME[kind], path, elf)
            offers = [(self._offered(copy).get(kind, ()), copy) for copy in copies]
            best, where = max(offers, default=((), ""))
            if best and wanted > best:
                yield Short(f"{kind}_{_text(wanted)}", _text(best), where)

    def _copies(self, name: str, path: str, elf: Elf) -> list[str]:
        found = self.loader.resolve(name, path, elf)
        own = f"{self.prefix}/lib/{name}"
        if found is None:
            return []
        return [found.path, own] if self.loader.usable(own, elf.machine) else [found.path]

    def _offered(self, path: str) -> dict[str, Number]:
        """The newest version of each kind that a library defines, from the names in its string tables."""
        if path not in self._offers:
            newest: dict[str, Number] = {}
            try:
                with opened(self.loader.machine.path(path)) as elf:
                    for kind, number in _OFFERED.findall(elf.data):
                        name = kind.decode()
                        newest[name] = max(newest.get(name, ()), _numbers(number.decode()))
            except (OSError, BadElf, ValueError):
                pass
            self._offers[path] = newest
        return self._offers[path]


def _numbers(text: str) -> Number:
    return tuple(int(part) for part in text.split("."))


def _text(numbers: Number) -> str:
    return ".".join(map(str, numbers))
