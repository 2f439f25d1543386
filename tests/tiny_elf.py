"""Tiny ELF files for tests: a shared library with what a test says, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).parent / "data" / "gpu_code"
_NEEDED, _STRTAB, _SYMTAB, _SONAME, _RPATH, _RUNPATH, _GNU_HASH = 1, 5, 6, 14, 15, 29, 0x6FFFFEF5
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_HEADER, _SEGMENTS = 64, 2 * 56


def _hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def library(
    *,
    soname: str = "",
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str = "",
    defines: Sequence[str] = (),
    asks: Sequence[str] = (),
    gpu_code: bytes = b"",
    versions: Sequence[str] = (),
    machine: int = 62,
) -> bytes:
    """A 64-bit shared library: its dynamic section, dynamic symbols with a GNU hash table, `.nv_fatbin`, and
    the symbol versions that it asks for."""
    strings = bytearray(b"\0")

    def text(value: str) -> int:
        strings.extend(value.encode() + b"\0")
        return len(strings) - len(value.encode()) - 1

    tags = [(_NEEDED, text(name)) for name in needed]
    tags += [(tag, text(value)) for tag, value in ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath)) if value]
    symbols = bytearray(24)
    for name, section in [*((name, 0) for name in asks), *((name, 1) for name in defines)]:
        symbols += struct.pack("<IBBHQQ", text(name), 0x12, 0, section, 0, 0)
    first = 1 + len(asks)
    chain = [_hash(name) & ~1 for name in defines]
    if chain:
        chain[-1] |= 1
    bloom = 0xFFFFFFFFFFFFFFFF if defines else 0
    table = struct.pack("<IIIIQI", 1, first, 1, 6, bloom, first if defines else 0) + struct.pack(
        f"<{len(chain)}I", *chain
    )

    body = bytearray()

    def placed(data: bytes) -> int:
        body.extend(b"\0" * (-len(body) % 16))
        body.extend(data)
        return _HEADER + _SEGMENTS + len(body) - len(data)

    if versions:  # one needed file that is asked for all of them
        aux = [
            struct.pack("<IHHII", 0, 0, 2, text(name), 16 * (n + 1 < len(versions))) for n, name in enumerate(versions)
        ]
        tags += [(_VERNEED, placed(struct.pack("<HHIII", 1, len(aux), 0, 16, 0) + b"".join(aux))), (_VERNEEDNUM, 1)]
    tags += [(_STRTAB, placed(bytes(strings))), (_SYMTAB, placed(bytes(symbols))), (_GNU_HASH, placed(table)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    dynamic_at = placed(dynamic)
    names = b"\0.shstrtab\0.nv_fatbin\0"
    code_at, names_at = placed(gpu_code), placed(names)
    sections = bytes(64) + _section(1, 3, names_at, len(names)) + _section(11, 1, code_at, len(gpu_code))
    sections_at = placed(sections)
    size = _HEADER + _SEGMENTS + len(body)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, sections_at, 0, 64, 56, 2,
                                                             64, 3, 1)  # fmt: skip
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    place = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    return bytes(header + load + place + body)


def _section(name: int, kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)


def fat_binary(*code: str, parts: int = 1) -> bytes:
    """Containers with an empty entry for each of `code`: `sm_90a`, `compute_120`, `compute_80:8.4` (the PTX version)."""
    entries = b""
    for name in code:
        arch, _, isa = name.partition(":")
        number = arch.rpartition("_")[2]
        flags = 0x11 | (0x100000 if number.endswith("a") else 0x200000 if number.endswith("f") else 0)
        major, minor = map(int, (isa or "9.0").split("."))
        kind = 1 if arch.startswith("compute_") else 2
        entries += struct.pack(
            "<HHIQIIHHIIIQQQ", kind, 0x101, 64, 8, 0, 0, minor, major, int(number.rstrip("af")), 0, 0, flags, 0, 0
        )
        entries += bytes(8)
    return (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries) * parts
