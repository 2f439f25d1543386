"""GPU code read from files: what nvcc wrote, what wheels hold, and what damage leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.collect.binaries.elf import BadElf, Elf
from loadpath.collect.binaries.fatbin import GpuCode, gpu_code, gpu_code_of, in_section
from tiny_elf import DATA, fat_binary, library

NVCC = shutil.which("nvcc")
TARGETS = ("-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90a,code=sm_90a", "-gencode",
           "arch=compute_90,code=[sm_90,compute_90]", "-gencode", "arch=compute_120,code=sm_120")  # fmt: skip


def shown(found: GpuCode) -> set[str]:
    return {f"{code.kind} {code.arch}" for code in found.code}


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("mixed.fatbin", {"cubin sm_80", "cubin sm_90a", "cubin sm_100f", "cubin sm_120", "ptx compute_120"}),
        ("lz4.fatbin", {"cubin sm_80", "ptx compute_90"}),
        ("library.so", {"cubin sm_80", "cubin sm_90", "ptx compute_90"}),
        ("relocatable.o", {"cubin sm_80", "ir compute_90", "ptx compute_90"}),
        ("sm_90a.cubin", {"cubin sm_90a"}),
    ],
)
def test_what_nvcc_wrote_is_read_back(file: str, code: set[str]) -> None:
    found = gpu_code_of(DATA / file)
    assert shown(found) == code
    assert found.problem == ""


def test_the_ptx_version_tells_which_driver_compiles_it() -> None:
    assert {c.isa for c in gpu_code_of(DATA / "library.so").code if c.kind == "ptx"} == {"9.0"}


def test_entries_are_counted_over_all_containers() -> None:
    found = gpu_code(Elf(library(gpu_code=fat_binary("sm_80", "sm_90a", "compute_90", parts=7))))
    assert found.containers == 7
    assert {(c.kind, c.arch): c.entries for c in found.code} == {
        ("cubin", "sm_80"): 7, ("cubin", "sm_90a"): 7, ("ptx", "compute_90"): 7,
    }  # fmt: skip


@pytest.mark.parametrize(("flags", "arch"), [(0x5A055A, "sm_90"), (0x5A0D5A, "sm_90a"), (0x500550, "sm_80")])
def test_a_cubin_of_the_older_layout(flags: int, arch: str, tmp_path: Path) -> None:
    data = bytearray((DATA / "sm_90a.cubin").read_bytes())
    data[7:9] = (51, 7)  # the OS ABI and its version up to CUDA 12
    data[48:52] = flags.to_bytes(4, "little")
    path = tmp_path / "k.cubin"
    path.write_bytes(data.replace(b"-arch sm_90a", b"-arch sm_xxx"))
    assert [c.arch for c in gpu_code_of(path).code] == [arch]


def test_a_library_without_gpu_code_has_none() -> None:
    assert gpu_code(Elf(library(soname="libplain.so"))) == GpuCode()


def test_a_cut_off_library_says_where_and_keeps_what_was_read() -> None:
    whole = fat_binary("sm_80", "sm_90", parts=3)
    found = in_section(whole[:-40], 0, len(whole))
    assert "cut off" in found.problem
    assert {c.arch for c in found.code} == {"sm_80", "sm_90"}


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "empty"), (b"\x7fELF\x02\x01", "cut off"), (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
     (b"GROUP ( /lib/libm.so.6 )  # GNU ld script", "linker script"), (b"\0" * 100, "no ELF file")],
)  # fmt: skip
def test_what_is_no_library_is_told_in_words(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(data)
    with pytest.raises(BadElf, match=says):
        gpu_code_of(path)


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, 10_100), place=st.integers(0, 10_060), byte=st.integers(0, 255))
def test_damage_never_breaks_the_reader(cut: int, place: int, byte: int) -> None:
    data = bytearray((DATA / "library.so").read_bytes())
    data[place] = byte
    try:
        elf = Elf(bytes(data[:cut]))
        assert all(c.entries > 0 for c in gpu_code(elf).code)
        assert elf.dynamic is not None
    except BadElf as error:
        assert str(error)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=600))
def test_garbage_between_containers_is_passed_over(garbage: bytes) -> None:
    data = garbage.replace(b"\xba", b"") + fat_binary("sm_86")
    assert "cubin sm_86" in shown(in_section(data, 0, len(data)))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One library for each way of compression, by the nvcc of this machine."""
    if NVCC is None:
        pytest.skip("nvcc is not installed here")
    folder = tmp_path_factory.mktemp("compiled")
    made = {}
    for mode in ("none", "size", "speed"):
        made[mode] = folder / f"scale_{mode}.so"
        command = [NVCC, "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", f"-compress-mode={mode}", *TARGETS, "-o",
                   str(made[mode]), str(DATA / "scale.cu")]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            pytest.skip(f"this nvcc does not compile for these targets: {done.stderr[-200:]}")
    return made


@pytest.mark.parametrize("mode", ["none", "size", "speed"])
def test_libraries_compiled_here(compiled: dict[str, Path], mode: str) -> None:
    assert shown(gpu_code_of(compiled[mode])) == {
        "cubin sm_80", "cubin sm_90", "cubin sm_90a", "cubin sm_120", "ptx compute_90",
    }  # fmt: skip


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    """NVIDIA's own lister: of a toolkit, or of its package for Python."""
    packaged = next(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/cuobjdump"), None)
    found = shutil.which("cuobjdump") or packaged
    if found is None:
        pytest.skip("cuobjdump is not installed here")
    return Path(found)


def listed(tool: Path, library: Path) -> Counter[tuple[str, str]]:
    command = [str(tool), "-all", "--list-elf", "--list-ptx", str(library)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return Counter(re.findall(r"\.(sm_\d+[af]?)\.(cubin|ptx)$", told, re.MULTILINE))


def ours(library: Path) -> dict[tuple[str, str], int]:
    """Our list in cuobjdump's names, which leave the `f` of machine code out."""
    return {
        (c.arch.replace("compute", "sm").removesuffix("f" if c.kind == "cubin" else ""), c.kind): c.entries
        for c in gpu_code_of(library).code
        if c.kind in ("cubin", "ptx")
    }


@pytest.mark.parametrize("file", ["mixed.fatbin", "lz4.fatbin", "library.so"])
def test_the_list_is_that_of_cuobjdump(file: str, cuobjdump: Path) -> None:
    assert ours(DATA / file) == dict(listed(cuobjdump, DATA / file))


def test_the_list_of_libraries_compiled_here_is_that_of_cuobjdump(compiled: dict[str, Path], cuobjdump: Path) -> None:
    for path in compiled.values():
        assert ours(path) == dict(listed(cuobjdump, path))
