"""Which file the loader would take: the order of its places, and what a process has in memory afterwards."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.collect.binaries.elf import BadElf, Elf, opened
from loadpath.collect.binaries.resolve import Loader, closure
from loadpath.collect.binaries.symbols import Exports, undefined
from loadpath.collect.probe import Machine
from tiny_elf import library


def machine(root: Path, files: Mapping[str, bytes], library_path: str = "") -> Machine:
    for path, data in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return Machine(root, environ={"LD_LIBRARY_PATH": library_path})


def cache(entries: Mapping[str, str]) -> bytes:
    """An ld.so.cache of the current format."""
    strings, rows, base = b"", b"", 48 + 24 * len(entries)
    for name, path in entries.items():
        key = base + len(strings)
        strings += name.encode() + b"\0"
        rows += struct.pack("<iIIIQ", 0x0303, key, base + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    return b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + bytes(20) + rows + strings


WANTED = library(soname="libw.so.1")
PLACES = {
    "RPATH": "/app/rpath/libw.so.1",
    "LD_LIBRARY_PATH": "/env/libw.so.1",
    "RUNPATH": "/app/runpath/libw.so.1",
    "ld.so.cache": "/cached/libw.so.1",
    "default": "/usr/lib/libw.so.1",
}


@pytest.mark.parametrize(("asker", "order"), [
    ({"rpath": "$ORIGIN/rpath"}, ["RPATH", "LD_LIBRARY_PATH", "ld.so.cache", "default"]),
    ({"runpath": "${ORIGIN}/runpath", "rpath": "$ORIGIN/rpath"}, ["LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache", "default"]),
])  # fmt: skip
def test_the_order_of_places(tmp_path: Path, asker: dict[str, str], order: list[str]) -> None:
    files = dict.fromkeys(PLACES.values(), WANTED) | {"/etc/ld.so.cache": cache({"libw.so.1": PLACES["ld.so.cache"]})}
    loader = Loader(machine(tmp_path, files, "/env"))
    found = list(loader.candidates("libw.so.1", "/app/asks.so", Elf(library(**asker))))  # type: ignore[arg-type]
    assert [(f.how, f.path) for f in found] == [(how, PLACES[how]) for how in order]


def test_a_library_of_another_machine_is_passed_over(tmp_path: Path) -> None:
    files = {"/env/libw.so.1": library(machine=183), "/usr/lib/libw.so.1": WANTED}
    found = Loader(machine(tmp_path, files, "/env")).resolve("libw.so.1", "/a.so", Elf(library()))
    assert found is not None and found.path == "/usr/lib/libw.so.1"


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert Loader(machine(tmp_path, {})).resolve("libw.so.1", "/a.so", Elf(library())) is None


def test_a_name_that_is_loaded_serves_all_who_ask_later(tmp_path: Path) -> None:
    files = {
        "/app/main.so": library(needed=["libfirst.so", "libsecond.so"], rpath="$ORIGIN"),
        "/app/libfirst.so": library(needed=["libw.so.1"]),  # inherits the RPATH of who loaded it
        "/app/libsecond.so": library(needed=["libw.so.1"], runpath="/other"),
        "/app/libw.so.1": WANTED,
        "/other/libw.so.1": WANTED,
    }
    loaded = closure(Loader(machine(tmp_path, files)), ["/app/main.so"])
    assert loaded["libw.so.1"].path == "/app/libw.so.1"
    assert loaded["libw.so.1"].asker == "/app/libfirst.so"


def test_exported_functions_are_found_and_others_are_not() -> None:
    names = [f"_ZN2at4op{n}Ev" for n in range(50)]
    exports = Exports(Elf(library(defines=names)))
    assert all(name in exports for name in names)
    assert "_ZN2at7missingEv" not in exports
    assert "" not in Exports(Elf(library()))


def test_undefined_functions_are_listed() -> None:
    assert list(undefined(Elf(library(asks=["_ZN3c101aEv", "free"], defines=["own"])))) == ["_ZN3c101aEv", "free"]


@settings(max_examples=150, deadline=None)
@given(place=st.integers(64, 900), byte=st.integers(0, 255), cut=st.integers(100, 1200))
def test_damaged_symbol_tables_are_told_or_survived(place: int, byte: int, cut: int) -> None:
    data = bytearray(
        library(
            defines=[f"_ZN2at4op{n}Ev" for n in range(8)], asks=["free"], needed=["libc.so.6"], versions=["GLIBC_2.17"]
        )
    )
    data[min(place, len(data) - 1)] = byte
    try:
        elf = Elf(bytes(data[:cut]))
        _ = "_ZN2at4op3Ev" in Exports(elf), list(undefined(elf)), elf.dynamic
    except BadElf as error:
        assert str(error)


def test_symbols_of_a_real_library() -> None:
    path = next(
        (p for p in map(Path, ("/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6")) if p.exists()),
        None,
    )
    if path is None:
        pytest.skip("no glibc here")
    with opened(path) as elf:
        exports = Exports(elf)
        assert "malloc" in exports and "printf" in exports and "cudaMalloc" not in exports
