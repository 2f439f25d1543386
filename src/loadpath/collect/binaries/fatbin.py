"""GPU code in files: which architectures a library, an executable, a fat binary or a cubin has code for.

nvcc puts containers of code (magic 0xBA55ED50) one after the other into the section `.nv_fatbin` (`__nv_relfatbin` for
code that is linked later). Each entry has a header with its kind, architecture, sizes and flags; the code behind it
may be compressed (LZ4, Zstandard), which does not matter here: everything wanted stands in the header.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

import msgspec

from loadpath.collect.binaries.elf import EM_CUDA, BadElf, Buffer, Elf, Section, opened

MAGIC = struct.pack("<I", 0xBA55ED50)
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")  # kind, version, header size, size, …, minor, major, architecture, …, flags
_PTX, _CUBIN, _IR, _MERCURY = 1, 2, 8, 16
_KINDS = {_PTX: "ptx", _CUBIN: "cubin", _IR: "ir", _MERCURY: "cubin"}
_SPECIFIC, _FAMILY = 0x100000, 0x200000  # flags: `sm_90a`, `sm_100f`
_MOST_HEADER = 1 << 16
# A cubin's e_flags: up to CUDA 12 the architecture is the lowest byte, from the second layout on the next byte.
_ABI_OF_SECOND_LAYOUT = 8
_TOLD_TARGET = re.compile(rb"-arch[ =]sm_(\d{2,3}[af]?)\b")


class Code(msgspec.Struct, frozen=True, omit_defaults=True):
    """All code of one kind for one architecture. `kind`: `cubin` (machine code), `ptx`, `ir` (for the linker, not
    loadable), `other`. `isa`: the newest PTX version of the entries, `8.7`."""

    kind: str
    arch: str
    entries: int = 0
    bytes: int = 0
    isa: str = ""


class GpuCode(msgspec.Struct, frozen=True):
    """What a file holds. `problem` says where reading stopped; what was read before it counts."""

    code: tuple[Code, ...] = ()
    containers: int = 0
    problem: str = ""


class _Tally:
    """Entries summed by kind and architecture: a big library has a hundred thousand of them."""

    def __init__(self) -> None:
        self.sums: dict[tuple[int, int, int], list[int]] = {}
        self.containers = 0

    def add(self, kind: int, arch: int, flags: int, size: int, isa: int) -> None:
        row = self.sums.setdefault((kind, arch, flags & (_SPECIFIC | _FAMILY)), [0, 0, 0])
        row[0] += 1
        row[1] += size
        row[2] = max(row[2], isa)

    def code(self) -> tuple[Code, ...]:
        sums: dict[tuple[str, str], Code] = {}
        for (number, arch, flags), (entries, size, isa) in sorted(self.sums.items()):
            kind = _KINDS.get(number, "other")
            name = arch_name(kind, arch, bool(flags & _SPECIFIC), bool(flags & _FAMILY))
            told = f"{isa >> 16}.{isa & 0xFFFF}" if kind == "ptx" else ""
            before = sums.get((kind, name), Code(kind, name))
            sums[kind, name] = Code(kind, name, before.entries + entries, before.bytes + size, told or before.isa)
        return tuple(sums.values())


def arch_name(kind: str, arch: int, specific: bool = False, family: bool = False) -> str:
    """`sm_90a` for machine code, `compute_90a` for PTX and IR."""
    suffix = "a" if specific else "f" if family else ""
    return f"{'sm' if kind in ('cubin', 'other') else 'compute'}_{arch}{suffix}"


def gpu_code_of(path: Path) -> GpuCode:
    """The GPU code in a library, executable, object file, cubin, or bare fat binary. Raises OSError, BadElf."""
    with path.open("rb") as file:
        head = file.read(4)
    if head == MAGIC:
        data = path.read_bytes()
        return in_section(data, 0, len(data))
    with opened(path) as elf:
        return gpu_code(elf)


def gpu_code(elf: Elf) -> GpuCode:
    """The GPU code in an ELF file: its fat-binary sections, or itself where it is a cubin."""
    if elf.machine == EM_CUDA:
        return GpuCode((cubin(elf),))
    return _merged(in_section(elf.data, s.offset, s.end) for s in elf.sections if s.name in SECTIONS)


def in_section(data: Buffer, start: int, end: int) -> GpuCode:
    """The containers between two offsets of `data`, and what stands in their way."""
    tally, problem = _Tally(), ""
    if end > len(data):
        problem = f"the file is cut off: its GPU code ends at byte {end:,}, the file at {len(data):,}"
        end = len(data)
    at = start
    while (at := data.find(MAGIC, at, end)) >= 0:
        if at + _CONTAINER.size > end:
            break
        _, version, header, size = _CONTAINER.unpack_from(data, at)
        last = at + header + size
        if version != 1 or header < _CONTAINER.size or header > _MOST_HEADER:
            at += 4  # the four bytes of the magic inside other data
            continue
        tally.containers += 1
        if last > end:
            problem = problem or f"the container at byte {at:,} is longer than what holds it"
        stopped = _entries(data, at + header, min(last, end), tally)
        problem = problem or stopped
        at = max(at + 4, last if not stopped else at + header)
    return GpuCode(tally.code(), tally.containers, problem)


def _entries(data: Buffer, at: int, end: int, tally: _Tally) -> str:
    """Count the entries of one container; "" or why it could not be read to its end."""
    while at + _ENTRY.size <= end:
        kind, _, header, size, packed, _, minor, major, arch, _, _, flags, _, _ = _ENTRY.unpack_from(data, at)
        if not kind and not size:
            return ""  # padding behind the last entry
        if not _ENTRY.size <= header <= _MOST_HEADER or not 10 <= arch < 1000 or at + header + size > end:
            return f"an entry at byte {at:,} is damaged"
        tally.add(kind, arch, flags, packed or size, major << 16 | minor)
        at += header + size
    return ""


def cubin(elf: Elf) -> Code:
    """The architecture of a separately stored cubin, by the layout of its header flags and its tool-kit note."""
    second = elf.abi_version >= _ABI_OF_SECOND_LAYOUT
    arch = elf.flags >> 8 & 0xFF if second else elf.flags & 0xFF
    if not arch >= 10:
        raise BadElf(f"its header names no architecture (flags {elf.flags:#x})")
    note = elf.section(".note.nv.tkinfo")
    told = _TOLD_TARGET.search(elf.data[note.offset : note.end]) if note else None
    suffix = told[1].decode().lstrip("0123456789") if told else ""
    specific = suffix == "a" or (not second and bool(elf.flags & 0x800))
    return Code("cubin", arch_name("cubin", arch, specific, suffix == "f"), 1, elf.size)


def _merged(parts: Iterable[GpuCode]) -> GpuCode:
    sums: dict[tuple[str, str], Code] = {}
    containers, problem = 0, ""
    for part in parts:
        containers += part.containers
        problem = problem or part.problem
        for code in part.code:
            before = sums.get((code.kind, code.arch), Code(code.kind, code.arch))
            isa = max(before.isa, code.isa, key=_isa)
            sums[code.kind, code.arch] = Code(
                code.kind, code.arch, before.entries + code.entries, before.bytes + code.bytes, isa
            )
    return GpuCode(tuple(sums.values()), containers, problem)


def _isa(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def has_gpu_code(elf: Elf) -> bool:
    return elf.machine == EM_CUDA or any(_holds(s) for s in elf.sections)


def _holds(section: Section) -> bool:
    return section.name in SECTIONS and section.size > 0
