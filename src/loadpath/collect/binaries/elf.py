"""ELF files as far as a doctor needs them: sections by name, what the dynamic loader is told, the CUDA header flags.

Read straight from a memory map, so that a library of a gigabyte costs the few pages that are looked at. A general
library for ELF was measured at 2.2 ms a file and 40 ms of import; an environment has two thousand such files.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec

Buffer = mmap.mmap | bytes

MAGIC = b"\x7fELF"
EM_CUDA = 190  # the machine of a cubin
MACHINES = {3: "i386", 62: "x86-64", 183: "aarch64", 21: "ppc64", 22: "s390x", 243: "riscv64", EM_CUDA: "cuda"}
_PT_LOAD, _PT_DYNAMIC, _SHT_NOBITS = 1, 2, 8
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 6, 14, 15, 29
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF
_LONGEST_NAME = 64 << 10  # C++ symbols reach a few thousand characters
_MOST = 1 << 16  # headers of one table: more is a damaged file


class BadElf(ValueError):
    """The bytes are no ELF file, or a damaged one; the text says what is wrong, for a person."""


class Section(msgspec.Struct, frozen=True):
    name: str
    kind: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class Segment(msgspec.Struct, frozen=True):
    kind: int
    offset: int
    address: int
    size: int


class Dynamic(msgspec.Struct, frozen=True):
    """What the dynamic section tells the loader; folders as written (`$ORIGIN/../lib`)."""

    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    needs_versions: tuple[str, ...] = ()
    """Symbol versions that it asks of others: `GLIBC_2.34`, `GLIBCXX_3.4.30`."""


class Elf:
    """One ELF file in memory. Everything is read when it is asked for; damage shows as BadElf then."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.size = len(data)
        if self.size < 64 or data[:4] != MAGIC:
            raise BadElf(_not_elf(data))
        self.bits = {1: 32, 2: 64}.get(data[4], 0)
        if data[5] not in (1, 2) or not self.bits:
            raise BadElf("its ELF header is damaged")
        self.order = "<" if data[5] == 1 else ">"
        self.os_abi, self.abi_version = data[7], data[8]
        self.type, self.machine = self.unpack("HH", 16)
        if self.bits == 64:
            self._phoff, self._shoff, self.flags = self.unpack("QQI", 32)
            self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = self.unpack("HHHHH", 54)
        else:
            self._phoff, self._shoff, self.flags = self.unpack("III", 28)
            self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = self.unpack("HHHHH", 42)

    @property
    def machine_name(self) -> str:
        return MACHINES.get(self.machine, f"machine {self.machine}")

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        """The integers of `form` at `offset`, in the file's byte order. Raises BadElf beyond the end."""
        try:
            return struct.unpack_from(self.order + form, self.data, offset)
        except (struct.error, OverflowError, ValueError):
            raise BadElf(f"the file ends before byte {offset:#x}, to which its headers point") from None

    def text(self, offset: int) -> str:
        """The zero-terminated string at `offset`."""
        if not 0 <= offset < self.size:
            raise BadElf(f"a name lies at byte {offset:#x}, beyond the end of the file")
        end = self.data.find(b"\0", offset, offset + _LONGEST_NAME)
        return self.data[offset : end if end >= 0 else offset + 200].decode("utf-8", "replace")

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections that take room in the file; () where the table was stripped."""
        if not self._shoff or self._shnum > _MOST:
            return ()
        rows = []
        for n in range(self._shnum):
            at = self._shoff + n * self._shentsize
            if self.bits == 64:
                name, kind, _, _, offset, size = self.unpack("IIQQQQ", at)
            else:
                name, kind, _, _, offset, size = self.unpack("IIIIII", at)
            rows.append((name, kind, offset, size))
        if self._shstrndx >= len(rows):
            return ()
        names = rows[self._shstrndx][2]
        return tuple(
            Section(self.text(names + name), kind, offset, size)
            for name, kind, offset, size in rows
            if kind not in (0, _SHT_NOBITS)
        )

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        rows = []
        for n in range(min(self._phnum, _MOST)):
            at = self._phoff + n * self._phentsize
            if self.bits == 64:
                kind, _, offset, address, _, size = self.unpack("IIQQQQ", at)
            else:
                kind, offset, address, _, size = self.unpack("IIIII", at)
            rows.append(Segment(kind, offset, address, size))
        return tuple(rows)

    def offset_of(self, address: int) -> int | None:
        """Where in the file the byte lies that is loaded at `address`."""
        for segment in self.segments:
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        return None

    @cached_property
    def tags(self) -> tuple[tuple[int, int], ...]:
        """The dynamic section's (tag, value) pairs; () for a file that is not dynamically linked."""
        place = next((s for s in self.segments if s.kind == _PT_DYNAMIC), None)
        if place is None:
            return ()
        form, step = ("qQ", 16) if self.bits == 64 else ("iI", 8)
        tags: list[tuple[int, int]] = []
        for at in range(place.offset, place.offset + min(place.size, _MOST * step), step):
            tag, value = self.unpack(form, at)
            if tag == 0:
                break
            tags.append((tag, value))
        return tuple(tags)

    def tag(self, wanted: int) -> int | None:
        return next((value for tag, value in self.tags if tag == wanted), None)

    @cached_property
    def strings(self) -> int | None:
        """File offset of the dynamic string table."""
        address = self.tag(_DT_STRTAB)
        return None if address is None else self.offset_of(address)

    @cached_property
    def symbols(self) -> int | None:
        """File offset of the dynamic symbol table."""
        address = self.tag(_DT_SYMTAB)
        return None if address is None else self.offset_of(address)

    @cached_property
    def gnu_hash(self) -> int | None:
        """File offset of the GNU hash table of the dynamic symbols."""
        address = self.tag(_DT_GNU_HASH)
        return None if address is None else self.offset_of(address)

    @cached_property
    def dynamic(self) -> Dynamic:
        strings = self.strings
        if strings is None:
            return Dynamic()

        def named(wanted: int) -> tuple[str, ...]:
            return tuple(self.text(strings + value) for tag, value in self.tags if tag == wanted)

        return Dynamic(
            soname=next(iter(named(_DT_SONAME)), ""),
            needed=named(_DT_NEEDED),
            rpath=_folders(named(_DT_RPATH)),
            runpath=_folders(named(_DT_RUNPATH)),
            needs_versions=tuple(self._versions(strings)),
        )

    def _versions(self, strings: int) -> Iterator[str]:
        """The names in the version-needs table (DT_VERNEED)."""
        address, count = self.tag(_DT_VERNEED), self.tag(_DT_VERNEEDNUM)
        at = self.offset_of(address) if address is not None else None
        if at is None:
            return
        for _ in range(min(count or 0, 1000)):
            _, parts, _, aux, following = self.unpack("HHIII", at)
            part = at + aux
            for _ in range(min(parts, 1000)):
                _, _, _, name, step = self.unpack("IHHII", part)
                yield self.text(strings + name)
                part += step
            if not following:
                return
            at += following


def _folders(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(folder for value in values for folder in value.split(":") if folder)


def _not_elf(data: Buffer) -> str:
    head = data[:64]
    if not head:
        return "the file is empty"
    if head[:4] == MAGIC:
        return "the file is cut off within its header"
    if head.lstrip()[:1] in (b"/", b"#") or b"GNU ld script" in head:
        return "the file is a linker script, no library"
    if head.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer: its content was not downloaded"
    return "the file is no ELF file"


@contextmanager
def opened(path: Path) -> Iterator[Elf]:
    """The ELF file at `path`, mapped while the block runs. Raises OSError, or BadElf for what is none."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise BadElf("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield Elf(data)
