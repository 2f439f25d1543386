"""The probes of the software stack on saved machines: environments, packages, GPU code, libraries, torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_python import PREFIX, SITE, FakePython
from loadpath.collect import cuda_libraries, fat_binaries, frameworks, libraries, python_packages
from loadpath.collect.probe import Machine
from loadpath.collect.pythons import environments
from tiny_elf import fat_binary, library


def told(probe: Any, machine: Machine, kind: str = "") -> list[dict[str, Any]]:
    """The records that a module's first probe wrote, of one type or all."""
    (sample,) = probe.PROBES[0].gather(machine)
    rows = [json.loads(line) for line in sample.data.splitlines()]
    return [row for row in rows if not kind or row["type"] == kind]


@pytest.fixture
def python(tmp_path: Path) -> FakePython:
    made = FakePython(tmp_path)
    made.torch()
    return made


def test_the_active_environment_is_meant(python: FakePython) -> None:
    python.put("/usr/lib/python3/dist-packages/torch/version.py", "")
    found = environments(python.machine())
    assert [(e.prefix, e.chosen) for e in found] == [(PREFIX, True), ("/usr", False)]


def test_a_running_engines_environment_comes_first(python: FakePython) -> None:
    python.put("/srv/env/lib/python3.11/site-packages/torch/version.py", "")
    python.put("/proc/71/cmdline", b"/srv/env/bin/python\0/srv/env/bin/vllm\0serve\0m\0")
    first = environments(python.machine())[0]
    assert (first.prefix, first.python, first.how, first.chosen) == ("/srv/env", "3.11", "of process 71", True)


def test_debians_folder_is_of_the_interpreters_version(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.put("/usr/lib/python3/dist-packages/torch/_C.cpython-313-x86_64-linux-gnu.so", library())
    assert [e.python for e in environments(made.machine())] == ["3"]
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/python3").symlink_to("python3.13")
    assert [e.python for e in environments(made.machine())] == ["3.13"]
    assert told(libraries, made.machine(), "BuiltForOther") == []


def test_more_environments_than_are_read_are_counted(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    for n in range(8):
        made.put(f"/opt/conda/envs/e{n}/lib/python3.11/site-packages/torch/version.py", "__version__ = '2.9.0'")
    (sample,) = frameworks.installed(made.machine())
    assert sample.data.count(b"PythonEnvironment") == 6 and sample.note == "2 further Python environments were left out"


def test_a_running_engine_that_is_a_program(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.put("/srv/llm/llama-server", library(gpu_code=fat_binary("sm_86")))
    made.put("/proc/9/cmdline", "/srv/llm/llama-server")
    (tmp_path / "proc/9/exe").symlink_to("/srv/llm/llama-server")
    (found,) = told(fat_binaries, made.machine())
    assert found["library"] == "/srv/llm/llama-server"


def test_gpu_code_by_package(python: FakePython) -> None:
    python.package(
        "flash-attn",
        "2.8.1",
        {"flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so": library(gpu_code=fat_binary("sm_80", "sm_90a"))},
    )
    found = {row["package"]: row for row in told(fat_binaries, python.machine())}
    assert found["torch"]["native"] == {"sm_80": 3, "sm_90": 3} and found["torch"]["parts"] == 3
    assert found["flash-attn"]["native"] == {"sm_80": 1, "sm_90a": 1} and found["flash-attn"]["version"] == "2.8.1"


def test_a_folder_of_cubins_is_one_record(python: FakePython) -> None:
    cubin = (Path(__file__).parents[1] / "data" / "gpu_code" / "sm_90a.cubin").read_bytes()
    python.package("kernels", "1.0", {f"kernels/{n}.cubin": cubin for n in range(5)})
    (found,) = [row for row in told(fat_binaries, python.machine()) if row["package"] == "kernels"]
    assert (found["files"], found["native"]) == (5, {"sm_90a": 5})


def test_an_engine_that_is_a_program(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.put("/app/llama-server", library())
    made.put("/app/libggml-cuda.so", library(gpu_code=fat_binary("sm_75", "compute_80:8.4")))
    (found,) = told(fat_binaries, made.machine())
    assert (found["library"], found["ptx"], found["isa"]) == ("/app/libggml-cuda.so", {"compute_80": 1}, "8.4")


def test_a_damaged_library_is_told(python: FakePython) -> None:
    python.package("vllm", "0.11.0", {"vllm/_C.abi3.so": library(gpu_code=fat_binary("sm_90", parts=4))[:-300]})
    problems = [row["problem"] for row in told(fat_binaries, python.machine()) if row.get("problem")]
    assert len(problems) == 1


def test_cuda_libraries_with_their_versions(python: FakePython) -> None:
    python.put("/usr/local/cuda-12.6/version.json", '{"cuda_nvcc": {"version": "12.6.85"}}')
    python.put("/usr/local/cuda-12.6/lib64/libcudart.so.12.6.77", library(soname="libcudart.so.12"))
    python.put("/usr/local/cuda-12.6/compat/libcuda.so.560.35.05", library(soname="libcuda.so.1"))
    found = {(row["place"], row["name"]): row["version"] for row in told(cuda_libraries, python.machine())}
    assert found == {
        ("pip", "libcudart"): "12.8.90", ("toolkit", "cuda-toolkit"): "12.6.85", ("toolkit", "libcudart"): "12.6.77",
        ("compat", "libcuda"): "560.35.05",
    }  # fmt: skip


def test_a_library_of_another_cuda_major_is_found_nowhere(python: FakePython) -> None:
    python.package("sgl-kernel", "0.3.9", {
        "sgl_kernel/common_ops.abi3.so": library(needed=["libcudart.so.13", "libtorch_cpu.so", "libcuda.so.1", "libcudart.so.12"]),
    })  # fmt: skip
    found = told(libraries, python.machine(), "LibraryUnfound")
    assert [(row["package"], row["needed"]) for row in found] == [("sgl-kernel", "libcudart.so.13")]


def test_the_copy_that_lies_where_the_loader_does_not_look_is_named(python: FakePython) -> None:
    python.package("x", "1", {"x/_C.abi3.so": library(needed=["libcudart.so.13"])})
    python.put("/usr/local/cuda-13.0/lib64/libcudart.so.13", library())
    (found,) = told(libraries, python.machine(), "LibraryUnfound")
    assert found["elsewhere"] == "/usr/local/cuda-13.0/lib64/libcudart.so.13"


def test_functions_that_torch_does_not_define(python: FakePython) -> None:
    asks = ["_ZN2at4addEv", "_ZNR5torch7Library4_defEv", "_ZN3c105ErrorC2ENS_14SourceLocationESs", "cudaMalloc"]
    python.package(
        "flash-attn", "2.6.3", {"flash_attn.abi3.so": library(needed=["libtorch_cpu.so", "libc10.so"], asks=asks)}
    )
    (found,) = told(libraries, python.machine(), "SymbolsUnfound")
    assert found["names"] == ["_ZNR5torch7Library4_defEv", "_ZN3c105ErrorC2ENS_14SourceLocationESs"]
    assert found["old_abi"]


def test_one_variant_that_fits_is_enough(python: FakePython) -> None:
    python.package("ep", "1.0", {
        "ep/pg_2_8_0.cpython-312-x86_64-linux-gnu.so": library(needed=["libtorch_cpu.so"], asks=["_ZN2at4oldEv"]),
        "ep/pg_2_9_0.cpython-312-x86_64-linux-gnu.so": library(needed=["libtorch_cpu.so"], asks=["_ZN2at4addEv"]),
    })  # fmt: skip
    assert told(libraries, python.machine(), "SymbolsUnfound") == []


def test_variants_none_of_which_finds_its_library_are_told(python: FakePython) -> None:
    def core(number: int) -> bytes:
        return library(needed=["libtorch_cpu.so", f"libavutil.so.{50 + number}"])

    python.package("torchcodec", "0.9", {f"torchcodec/libtorchcodec_core{n}.so": core(n) for n in (6, 7)})
    assert [row["needed"] for row in told(libraries, python.machine(), "LibraryUnfound")] == [
        "libavutil.so.56",
        "libavutil.so.57",
    ]
    python.put("/usr/lib/libavutil.so.57", library())
    assert told(libraries, python.machine(), "LibraryUnfound") == []


def test_a_folder_in_ld_library_path_shadows_torchs_own(python: FakePython) -> None:
    python.package(
        "nvidia-nvjitlink", "12.8.93", {"nvidia/nvjitlink/lib/libnvJitLink.so.12": library(soname="libnvJitLink.so.12")}
    )
    python.package("nvidia-cusparse", "12.5.8.93", {
        "nvidia/cusparse/lib/libcusparse.so.12": library(needed=["libnvJitLink.so.12"], runpath="$ORIGIN/../../nvjitlink/lib"),
    })  # fmt: skip
    python.put(
        f"{SITE}/torch/lib/libtorch_global_deps.so",
        library(needed=["libcusparse.so.12"], rpath="$ORIGIN/../../nvidia/cusparse/lib"),
    )
    python.put("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", library())
    assert told(libraries, python.machine(), "LibraryShadowed") == []
    (found,) = told(libraries, python.machine(LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64"), "LibraryShadowed")
    assert (found["taken"], found["how"]) == ("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", "LD_LIBRARY_PATH")


def test_a_running_engines_own_ld_library_path_counts(python: FakePython) -> None:
    python.put(f"{SITE}/torch/lib/libtorch_global_deps.so", library(needed=["libcudart.so.12"]))
    python.put("/usr/local/cuda-12.1/lib64/libcudart.so.12", library())
    python.put("/proc/71/cmdline", f"{PREFIX}/bin/python\0-m\0vllm.entrypoints\0")
    python.put("/proc/71/environ", "HOME=/root\0LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64\0")
    (found,) = told(libraries, python.machine(), "LibraryShadowed")
    assert found["how"] == "LD_LIBRARY_PATH"


def test_a_module_of_a_newer_system(python: FakePython) -> None:
    python.put("/usr/lib/libc.so.6", library(soname="libc.so.6") + b"\0GLIBC_2.9\0GLIBC_2.31\0")
    python.package(
        "new", "1.0", {"new/_C.abi3.so": library(needed=["libc.so.6"], versions=["GLIBC_2.17", "GLIBC_2.38"])}
    )
    python.package("fits", "1.0", {"fits/_C.abi3.so": library(needed=["libc.so.6"], versions=["GLIBC_2.31"])})
    (found,) = told(libraries, python.machine(), "SystemVersionUnmet")
    assert (found["package"], found["wants"], found["has"]) == ("new", "GLIBC_2.38", "2.31")


def test_two_packages_that_brought_the_same_library(python: FakePython) -> None:
    for major in ("12", "13"):
        python.package(f"nvidia-nccl-cu{major}", "2.27.5", {"nvidia/nccl/lib/libnccl.so.2": library()})
    (found,) = told(libraries, python.machine(), "FileOwnedTwice")
    assert found["packages"] == ["nvidia-nccl-cu12", "nvidia-nccl-cu13"]


def test_modules_for_another_python(python: FakePython) -> None:
    python.package("old", "1.0", {"old/_C.cpython-310-x86_64-linux-gnu.so": library()})
    python.package(
        "mixed",
        "1.0",
        {"m/_C.cpython-310-x86_64-linux-gnu.so": library(), "m/_C.cpython-312-x86_64-linux-gnu.so": library()},
    )
    (found,) = told(libraries, python.machine(), "BuiltForOther")
    assert (found["package"], found["what"], found["here"]) == ("old", "Python 3.10", "Python 3.12")


def test_requirements_as_the_metadata_declare_them(python: FakePython) -> None:
    pytest.importorskip("packaging", reason="packaging is not installed here")
    python.package(
        "vllm",
        "0.11.0",
        requires=["torch==2.8.0", "numpy", 'flashinfer-python==0.4; extra == "flashinfer"', "torch>=2.0"],
    )
    found = told(python_packages, python.machine(), "RequirementUnmet")
    assert [(row["wants"], row.get("has", "")) for row in found] == [("torch==2.8.0", "2.9.0+cu128"), ("numpy", "")]


@pytest.mark.parametrize(("cuda", "version"), [("12.8", "2.9.0+cu128"), ("", "2.9.0+cpu")])
def test_torch_is_described_by_its_own_files(tmp_path: Path, cuda: str, version: str) -> None:
    made = FakePython(tmp_path)
    made.torch(cuda=cuda)
    (found,) = told(frameworks, made.machine(), "TorchInstalled")
    assert (found["version"], found.get("cuda", ""), found["cxx11_abi"]) == (version, cuda, True)


def test_nothing_installed_is_an_empty_sample(tmp_path: Path) -> None:
    for probe in (fat_binaries, cuda_libraries, libraries, python_packages, frameworks):
        (sample,) = probe.PROBES[0].gather(Machine(tmp_path))
        assert (sample.outcome, sample.data) == ("missing", b"")
