"""ELF headers and dynamic sections, against a general library where it is installed."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from loadpath.collect.binaries.elf import BadElf, Elf, opened
from tiny_elf import DATA, library


def system_libraries() -> list[Path]:
    """Some libraries and modules of this machine, the small ones first."""
    places = (Path("/usr/lib/x86_64-linux-gnu"), Path("/lib/aarch64-linux-gnu"), Path(sysconfig.get_path("platlib")))
    found = [
        p for place in places if place.is_dir() for p in place.rglob("*.so*") if p.is_file() and not p.is_symlink()
    ]
    return sorted((p for p in found if p.read_bytes()[:4] == b"\x7fELF"), key=lambda p: p.stat().st_size)[:60:2]


def test_what_the_loader_is_told() -> None:
    told = Elf(library(soname="liba.so.1", needed=["libb.so.2", "libc.so.6"], runpath="$ORIGIN:/opt/lib")).dynamic
    assert (told.soname, told.needed) == ("liba.so.1", ("libb.so.2", "libc.so.6"))
    assert (told.rpath, told.runpath) == ((), ("$ORIGIN", "/opt/lib"))


def test_sections_by_name_and_the_machine() -> None:
    elf = Elf(library(machine=183, gpu_code=b"code"))
    section = elf.section(".nv_fatbin")
    assert elf.machine_name == "aarch64"
    assert section is not None and elf.data[section.offset : section.end] == b"code"


def test_a_table_that_points_beyond_the_file_is_told() -> None:
    whole = library(needed=["libx.so"], gpu_code=b"1234")
    with pytest.raises(BadElf, match="ends before"):
        _ = Elf(whole[:-80]).sections


def test_agrees_with_pyelftools_on_this_machines_libraries() -> None:
    elffile = pytest.importorskip("elftools.elf.elffile", reason="pyelftools is not installed here")
    dynamic = pytest.importorskip("elftools.elf.dynamic")

    for path in (DATA / "library.so", *system_libraries()):
        with path.open("rb") as file, opened(path) as ours:
            theirs = elffile.ELFFile(file)
            named = [
                (s.name, s["sh_offset"], s["sh_size"])
                for s in theirs.iter_sections()
                if s["sh_type"] not in ("SHT_NULL", "SHT_NOBITS")
            ]
            assert [(s.name, s.offset, s.size) for s in ours.sections] == named, path
            tags = [
                t for seg in theirs.iter_segments() if isinstance(seg, dynamic.DynamicSegment) for t in seg.iter_tags()
            ]
            assert ours.dynamic.needed == tuple(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"), path
            assert ours.dynamic.soname == next((t.soname for t in tags if t.entry.d_tag == "DT_SONAME"), ""), path
