"""Which file the dynamic loader would take when one library asks for another: glibc's rules, applied to files.

Order: the asker's RPATH (unless it has a RUNPATH), LD_LIBRARY_PATH, RUNPATH, ld.so.cache, the default folders. Files of
another word size or machine are passed over. What a process has loaded before counts first, and is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from loadpath.collect.binaries.elf import BadElf, Elf, opened
from loadpath.collect.loader import CACHE, DEFAULT_FOLDERS, cache_entries
from loadpath.collect.probe import Machine

How = Literal["RPATH", "LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache", "default"]


class Found(msgspec.Struct, frozen=True):
    path: str
    how: How


class Loader:
    """ld.so on one machine, for programs started with these LD_LIBRARY_PATH folders."""

    def __init__(self, machine: Machine, library_path: Sequence[str] | None = None) -> None:
        """`library_path`: LD_LIBRARY_PATH's folders; None for what the shell that asked has."""
        self.machine = machine
        told = machine.environ.get("LD_LIBRARY_PATH", "").split(":") if library_path is None else library_path
        self.library_path = tuple(folder.rstrip("/") for folder in told if folder)
        self._fits: dict[tuple[str, int], bool] = {}

    @cached_property
    def cache(self) -> dict[str, list[str]]:
        """The paths in ld.so.cache by library name."""
        rows: dict[str, list[str]] = {}
        for name, path in cache_entries(self.machine.read(CACHE) or b""):
            rows.setdefault(name, []).append(path)
        return rows

    def resolve(self, wanted: str, asker: str, elf: Elf, inherited: Sequence[str] = ()) -> Found | None:
        """The file for `wanted` when the library or program at path `asker` needs it; None where none would be found."""
        return next(self.candidates(wanted, asker, elf, inherited), None)

    def candidates(self, wanted: str, asker: str, elf: Elf, inherited: Sequence[str] = ()) -> Iterator[Found]:
        """Every file that could be taken, in the loader's order: the first one is.

        `inherited`: the RPATH folders of the libraries that led to the asker; its own RUNPATH switches them off.
        """
        told = elf.dynamic
        rpath = () if told.runpath else (*told.rpath, *inherited)
        places: tuple[tuple[How, Iterable[str]], ...] = (
            ("RPATH", [wanted] if "/" in wanted else _in(rpath, wanted, asker, elf)),
            ("LD_LIBRARY_PATH", _in(self.library_path, wanted, asker, elf)),
            ("RUNPATH", _in(told.runpath, wanted, asker, elf)),
            ("ld.so.cache", self.cache.get(wanted, ())),
            ("default", _in(DEFAULT_FOLDERS, wanted, asker, elf)),
        )
        for how, paths in places:
            for path in paths:
                if self.usable(path, elf.machine):
                    yield Found(path, how)

    def usable(self, path: str, machine: int) -> bool:
        """Whether a file is there and is a 64-bit library for that machine (an ELF number)."""
        key = (path, machine)
        if key not in self._fits:
            try:
                with opened(self.machine.path(path)) as elf:
                    self._fits[key] = elf.machine == machine and elf.bits == 64
            except (OSError, BadElf, ValueError):
                self._fits[key] = False
        return self._fits[key]


class Loaded(msgspec.Struct, frozen=True):
    """One library that a process would have in memory: its file, how that was found, and which library asked first."""

    path: str
    how: How
    asker: str


def closure(loader: Loader, roots: Iterable[str]) -> dict[str, Loaded]:
    """What a process has loaded after it opened `roots` in this order, by the name that was asked for: each library's
    needs breadth first, a name that is there already counting for all who ask later."""
    loaded: dict[str, Loaded] = {}
    for root in roots:
        queue: deque[tuple[str, tuple[str, ...]]] = deque([(root, ())])
        while queue:
            path, inherited = queue.popleft()
            try:
                with opened(loader.machine.path(path)) as elf:
                    told = elf.dynamic
                    loaded.setdefault(told.soname or path.rpartition("/")[2], Loaded(path, "default", path))
                    for wanted in told.needed:
                        found = None if wanted in loaded else loader.resolve(wanted, path, elf, inherited)
                        if found is not None:
                            loaded[wanted] = Loaded(found.path, found.how, path)
                            own = () if told.runpath else spelled_out(told.rpath, path, elf)
                            queue.append((found.path, (*own, *inherited)))
            except (OSError, BadElf, ValueError):
                continue
    return loaded


def _in(folders: Iterable[str], wanted: str, asker: str, elf: Elf) -> list[str]:
    """`wanted` in each of the folders."""
    return [f"{folder}/{wanted}" for folder in spelled_out(folders, asker, elf)]


def spelled_out(folders: Iterable[str], asker: str, elf: Elf) -> tuple[str, ...]:
    """Folders as written in a library at path `asker`, with `$ORIGIN` and the like filled in."""
    origin = asker.rpartition("/")[0] or "/"
    out = []
    for folder in folders:
        for name, value in (("ORIGIN", origin), ("LIB", "lib64"), ("PLATFORM", elf.machine_name.replace("-", "_"))):
            folder = folder.replace(f"${{{name}}}", value).replace(f"${name}", value)
        out.append(folder.rstrip("/"))
    return tuple(out)
