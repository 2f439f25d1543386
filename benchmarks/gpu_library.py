"""A library with a gigabyte of GPU code for `make bench`: real headers, holes in place of the kernels.

Run as a program it lists the architectures in a library, in a process of its own whose time and memory can be taken.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

CONTAINERS, KERNEL = 4096, 32 << 10
ARCHS = (75, 80, 86, 89, 90, 100, 103, 120)


def write(path: Path) -> None:
    """1 GiB: 4,096 containers with an entry of 32 KiB for each of eight architectures."""
    entry = 64 + KERNEL
    section = CONTAINERS * (16 + len(ARCHS) * entry)
    names = b"\0.shstrtab\0.nv_fatbin\0"
    at, table = 4096, 4096 + section + len(names)
    with path.open("wb") as file:
        file.write(
            b"\x7fELF\x02\x01\x01"
            + bytes(9)
            + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 1)
        )
        for n in range(CONTAINERS):
            file.seek(at + n * (16 + len(ARCHS) * entry))
            file.write(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(ARCHS) * entry))
            for arch in ARCHS:
                file.write(struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, KERNEL, 0, 0, 8, 1, arch, 0, 0, 0x11, 0, 0))
                file.seek(KERNEL, 1)
        file.seek(at + section)
        file.write(names + bytes(64))
        file.write(struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at + section, len(names), 0, 0, 1, 0))
        file.write(struct.pack("<IIQQQQIIQQ", 11, 1, 0, 0, at, section, 0, 0, 8, 0))


if __name__ == "__main__":
    from loadpath.collect.binaries.fatbin import gpu_code_of

    for code in gpu_code_of(Path(sys.argv[1])).code:
        print(code.kind, code.arch, code.entries)
