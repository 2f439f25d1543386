"""How the dynamic loader would find a library: LD_LIBRARY_PATH, then its cache, then the default folders."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from loadpath.collect.probe import Machine

CACHE = "/etc/ld.so.cache"
DEFAULT_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
                   "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")  # fmt: skip
_NEW = b"glibc-ld.so.cache1.1"
_ENTRY = struct.Struct("<iIIIQ")  # flags, key, value, os version, hardware capabilities
_64BIT = (0x0300, 0x0A00, 0x0500)  # x86-64, aarch64, powerpc64 in the flags' second byte


def cache_entries(data: bytes) -> Iterator[tuple[str, str]]:
    """(soname, path) of each 64-bit entry of a loader cache (glibc's format since 2.2); none where it is damaged."""
    start = data.find(_NEW)
    if start < 0:
        return
    try:
        count, _ = struct.unpack_from("<II", data, start + len(_NEW))
        table = start + len(_NEW) + 8 + 20  # flags, padding, extension offset, unused
        for i in range(min(count, 200_000)):
            flags, key, value, _, _ = _ENTRY.unpack_from(data, table + i * _ENTRY.size)
            if flags & 0xFF00 in _64BIT:
                yield _string(data, start + key), _string(data, start + value)
    except (struct.error, ValueError):
        return


def _string(data: bytes, offset: int) -> str:
    end = data.index(b"\0", offset) if offset < len(data) else offset
    return data[offset:end].decode("utf-8", "replace")


def candidates(machine: Machine, soname: str) -> list[tuple[str, str]]:
    """(via, path) of every file of that name that the loader would come by, in its order: the first one is taken."""
    found: list[tuple[str, str]] = []
    for folder in machine.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and machine.exists(f"{folder.rstrip('/')}/{soname}"):
            found.append(("LD_LIBRARY_PATH", f"{folder.rstrip('/')}/{soname}"))
    for name, path in cache_entries(machine.read(CACHE) or b""):
        if name == soname and machine.exists(path):
            found.append(("ld.so.cache", path))
    for folder in DEFAULT_FOLDERS:
        if machine.exists(f"{folder}/{soname}"):
            found.append(("default", f"{folder}/{soname}"))
    seen: set[str] = set()
    return [(via, path) for via, path in found if not (path in seen or seen.add(path))]  # type: ignore[func-returns-value]
