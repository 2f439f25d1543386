"""What lies on disk, judged with the cards and the driver of the machine: which fault leads, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_python import PREFIX, SITE, FakePython
from loadpath.checking.service import gathered, saved
from loadpath.core.layers import Layer
from loadpath.core.report import Finding, Report
from loadpath.reading.service import read_bytes
from tiny_elf import fat_binary, library

LAYERS: tuple[Layer, ...] = ("cuda-runtime", "compiled-kernels", "library-set", "framework")


@pytest.fixture
def python(tmp_path: Path) -> FakePython:
    return FakePython(tmp_path)


def report(
    python: FakePython,
    gpu: str = "NVIDIA H100 80GB HBM3",
    cuda: str = "12.8",
    driver: str = "570.124.06",
    **environ: str,
) -> Report:
    """The report on an environment, on a machine with that card and driver."""
    samples = saved(gathered(python.machine(**environ), LAYERS))
    smi = f"GPU 0: {gpu} (UUID: GPU-5c1a6a3e-1111-2222-3333-444455556666)\n" if gpu else ""
    smi += f"| NVIDIA-SMI {driver}      Driver Version: {driver}      CUDA Version: {cuda}     |\n"
    return read_bytes([*samples, ("nvidia-smi.txt", smi.encode())])


def graves(made: Report) -> list[str]:
    return [f.id for f in made.findings if f.severity != "info"]


def of(made: Report, finding_id: str) -> Finding:
    return next(f for f in made.findings if f.id == finding_id)


def test_a_set_that_fits_is_no_finding(python: FakePython) -> None:
    python.torch()
    python.package("vllm", "0.11.0", {"vllm/_C.abi3.so": library(
        needed=["libtorch_cpu.so", "libcudart.so.12"], asks=["_ZN2at4addEv"], gpu_code=fat_binary("sm_90"))})  # fmt: skip
    assert graves(report(python)) == []


@pytest.mark.parametrize(
    ("gpu", "archs", "missing"),
    [
        ("NVIDIA GeForce RTX 5090", ("sm_80", "sm_90"), True),
        ("NVIDIA GeForce RTX 5090", ("sm_90", "sm_120"), False),
        ("NVIDIA GeForce RTX 5090", ("sm_100", "sm_90a"), True),  # another family of Blackwell
        ("NVIDIA GeForce RTX 4090", ("sm_80", "sm_90"), False),  # same major, higher minor
        ("Tesla V100-SXM2-32GB", ("sm_75", "sm_80"), True),
        ("NVIDIA H100 80GB HBM3", ("sm_80", "sm_90a"), False),
        ("NVIDIA B200", ("sm_90a", "compute_90a"), True),  # `a` code is for that chip alone, its PTX too
        ("NVIDIA B200", ("sm_100f",), False),
        ("NVIDIA B200", ("sm_103a",), True),
    ],
)
def test_code_for_the_card(python: FakePython, gpu: str, archs: tuple[str, ...], missing: bool) -> None:
    python.torch(archs=archs)
    made = report(python, gpu)
    assert ("gpu-code-missing" in graves(made)) is missing
    if missing:
        root = made.root
        assert root is not None and root.id == "gpu-code-missing" and root.severity == "error"
        assert "torch 2.9.0" in root.title and archs[0] in root.cause


def test_a_few_special_kernels_are_no_support_for_a_card(python: FakePython) -> None:
    python.torch(archs=("sm_80",), parts=100)
    python.put(
        f"{SITE}/torch/lib/libtorch_cuda.so", library(gpu_code=fat_binary("sm_80", parts=100) + fat_binary("sm_120a"))
    )
    made = report(python, "NVIDIA GeForce RTX 5090")
    assert made.root_cause == "gpu-code-missing"
    assert "code for sm_80: none" in of(made, "gpu-code-missing").cause
    assert "Only 1 of its 101 kernel files" in of(made, "gpu-code-missing").cause


def test_what_a_wheel_bundles_is_not_its_own_code(python: FakePython) -> None:
    python.torch(archs=("sm_80",), parts=40)
    python.put(
        f"{SITE}/torch/lib/libcusparseLt-f80c68d1.so.0", library(gpu_code=fat_binary("sm_86", "compute_52", parts=9))
    )
    python.put(f"{SITE}/torch/lib/libtorch_extra.so", library(gpu_code=fat_binary("sm_120")))
    made = report(python, "NVIDIA GeForce RTX 5090")
    assert made.root_cause == "gpu-code-missing" and states(made)["compiled-kernels"] == "broken"


def test_an_extension_without_code_is_a_warning(python: FakePython) -> None:
    python.torch(archs=("sm_90", "sm_120"))
    python.package("flash-attn", "2.7.4", {"flash_attn_2_cuda.abi3.so": library(gpu_code=fat_binary("sm_80", "sm_90"))})
    found = of(report(python, "NVIDIA GeForce RTX 5090"), "gpu-code-missing")
    assert found.severity == "warning"
    assert found.title.startswith("flash-attn 2.7.4 has no code for NVIDIA GeForce RTX 5090 (sm_120)")


def test_an_engine_that_brings_a_variant_for_each_cuda(python: FakePython) -> None:
    python.put("/usr/lib/ollama/cuda_v12/libggml-cuda.so", library(gpu_code=fat_binary("sm_70", "sm_80")))
    python.put("/usr/lib/ollama/cuda_v13/libggml-cuda.so", library(gpu_code=fat_binary("sm_80", "sm_120")))
    assert graves(report(python, "Tesla V100-SXM2-32GB")) == []
    found = of(report(python, "Tesla P100-PCIE-16GB"), "gpu-code-missing")
    assert found.severity == "error" and found.title.startswith("libggml-cuda.so has no code for")


def test_kernels_for_one_generation_by_design_are_only_noted(python: FakePython) -> None:
    python.torch(archs=("sm_80", "sm_90"))
    python.package("torchao", "0.18.0", {
        "torchao/_C_cutlass_90a.abi3.so": library(gpu_code=fat_binary("sm_90a")),
        "torchao/_C_mxfp8.abi3.so": library(gpu_code=fat_binary("sm_100")),
    })  # fmt: skip
    made = report(python, "NVIDIA A100-SXM4-80GB")
    assert graves(made) == [] and of(made, "gpu-code-missing").severity == "info"


def test_some_code_of_a_package_is_enough_for_what_is_no_engine(python: FakePython) -> None:
    python.torch(archs=("sm_80", "sm_90"))
    python.package("nixl", "1.0", {
        "nixl/big.abi3.so": library(gpu_code=fat_binary("sm_90", "sm_100", parts=40)),
        "nixl/small.abi3.so": library(gpu_code=fat_binary("sm_80", "sm_90")),
    })  # fmt: skip
    assert "gpu-code-missing" not in [f.id for f in report(python, "NVIDIA A100-SXM4-80GB").findings]


def test_kernels_that_come_in_variants_count_by_the_one_for_torchs_cuda(python: FakePython) -> None:
    python.torch(archs=("sm_120",))
    python.package("bitsandbytes", "0.46.0", {
        "bitsandbytes/libbitsandbytes_cuda121.so": library(gpu_code=fat_binary("sm_90")),
        "bitsandbytes/libbitsandbytes_cuda128.so": library(gpu_code=fat_binary("sm_120")),
    })  # fmt: skip
    assert graves(report(python, "NVIDIA GeForce RTX 5090")) == []


def test_ptx_is_used_where_the_driver_knows_its_version(python: FakePython) -> None:
    python.torch(archs=("sm_90", "compute_90:8.7"))
    assert [f.id for f in report(python, "NVIDIA B200").findings if f.id.startswith("gpu-code")] == [
        "gpu-code-only-ptx"
    ]
    old = report(python, "NVIDIA B200", cuda="12.6", driver="560.35.05")
    assert old.root_cause == "gpu-code-ptx-too-new"
    assert "12.8" in of(old, "gpu-code-ptx-too-new").cause


def test_a_damaged_library_leads(python: FakePython) -> None:
    python.torch()
    python.put(f"{SITE}/torch/lib/libtorch_cuda.so", library(gpu_code=fat_binary("sm_90"))[:-200])
    assert "gpu-library-damaged" in graves(report(python))


def test_a_cuda_major_beyond_the_drivers(python: FakePython) -> None:
    python.torch(cuda="13.0", archs=("sm_90",))
    made = report(python, cuda="12.4", driver="550.90.07")
    assert made.root_cause == "driver-too-old"
    assert "550.90.07" in of(made, "driver-too-old").cause and of(made, "driver-too-old").certainty == "established"


def test_a_compatibility_package_makes_that_less_certain(python: FakePython) -> None:
    python.torch(cuda="13.0", archs=("sm_90",))
    python.put("/usr/local/cuda-13.0/compat/libcuda.so.580.65.06", library(soname="libcuda.so.1"))
    found = of(report(python, cuda="12.4", driver="550.90.07"), "driver-too-old")
    assert found.certainty == "likely" and "580.65.06" in found.cause


def test_a_newer_minor_is_only_noted(python: FakePython) -> None:
    python.torch(cuda="12.8")
    made = report(python, cuda="12.4", driver="550.90.07")
    assert of(made, "runtime-newer-than-driver").severity == "info" and graves(made) == []


def test_a_cpu_build_beside_a_gpu(python: FakePython) -> None:
    python.torch(cuda="")
    assert report(python).root_cause == "torch-without-cuda"
    assert "torch-without-cuda" not in [f.id for f in report(python, gpu="").findings]


def test_a_kernel_package_of_another_cuda_major(python: FakePython) -> None:
    python.torch()
    python.package("sgl-kernel", "0.3.9", {"sgl_kernel/common_ops.abi3.so": library(needed=["libcudart.so.13"])})
    found = of(report(python), "cuda-library-missing")
    assert found.severity == "error" and found.certainty == "likely"
    assert "built with CUDA 12.8" in found.cause and "libcudart.so.13" in found.title


def test_an_optional_part_without_its_library_is_only_noted(python: FakePython) -> None:
    python.torch()
    parts = {f"cupy/part{letter}.cpython-312-x86_64-linux-gnu.so": library() for letter in "abcd"}
    python.package(
        "cupy-cuda12x",
        "13.6.0",
        parts | {"cupy/tensor.cpython-312-x86_64-linux-gnu.so": library(needed=["libcutensor.so.2"])},
    )
    python.package("opencv-python", "4.11", {"cv2/cv2.abi3.so": library(needed=["libGL.so.1"])})
    found = of(report(python), "system-library-missing")
    assert found.severity == "warning" and found.remedies[0].command.endswith(
        "libgl1"
    )  # cv2's leads: it has no other part
    assert "libcutensor.so.2" in found.title


def test_an_extension_of_another_torch(python: FakePython) -> None:
    python.torch()
    python.package("vllm", "0.10.2", {"vllm/_C.abi3.so": library(needed=["libc10.so"], asks=["_ZN3c104cuda3oldEv"])})
    found = of(report(python), "torch-abi-mismatch")
    assert found.severity == "error"
    assert "vllm 0.10.2" in found.title and "_ZN3c104cuda3oldEv" in found.cause


@pytest.mark.parametrize(("asks", "severity"), [("_ZN2at4addEv", "info"), ("_ZN2at4oldEv", "warning")])
def test_another_torch_than_required_weighs_less_where_all_functions_are_there(
    python: FakePython, asks: str, severity: str
) -> None:
    pytest.importorskip("packaging", reason="packaging is not installed here")
    python.torch()
    python.package(
        "vllm",
        "0.11.0",
        {"vllm/_C.abi3.so": library(needed=["libtorch_cpu.so"], asks=[asks])},
        requires=["torch==2.8.0"],
    )
    assert of(report(python), "requirement-unmet").severity == severity


def test_a_shadowed_library_names_both_copies(python: FakePython) -> None:
    python.torch()
    python.put(
        f"{SITE}/torch/lib/libtorch_global_deps.so",
        library(needed=["libcudart.so.12"], runpath="$ORIGIN/../../nvidia/cuda_runtime/lib"),
    )
    python.put("/usr/local/cuda-12.1/lib64/libcudart.so.12", library())
    found = of(report(python, LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64"), "library-shadowed")
    assert "/usr/local/cuda-12.1/lib64/libcudart.so.12" in found.title
    assert f"{SITE}/nvidia/cuda_runtime/lib" in found.remedies[1].command


def test_two_versions_of_one_package(python: FakePython) -> None:
    python.torch()
    python.package("transformers", "4.55.0")
    python.package("transformers", "4.57.1")
    found = of(report(python), "package-installed-twice")
    assert "4.55.0 and 4.57.1" in found.title and PREFIX in found.cause


def test_a_cuda_12_package_over_one_of_cuda_13(python: FakePython) -> None:
    python.torch()
    for major in ("12", "13"):
        python.package(f"nvidia-nccl-cu{major}", "2.27.5", {"nvidia/nccl/lib/libnccl.so.2": library()})
    found = of(report(python), "package-files-contested")
    assert found.severity == "warning" and found.remedies[0].command.endswith("--no-deps nvidia-nccl-cu12")


def test_a_wheel_of_a_newer_system(python: FakePython) -> None:
    python.torch()
    python.put("/usr/lib/libc.so.6", library() + b"\0GLIBC_2.31\0")
    python.package("vllm", "0.11.0", {"vllm/_C.abi3.so": library(needed=["libc.so.6"], versions=["GLIBC_2.38"])})
    found = of(report(python), "glibc-too-old")
    assert found.severity == "error" and "GLIBC_2.31 at most" in found.cause


def test_without_a_card_in_sight_nothing_is_said_of_code(python: FakePython) -> None:
    python.torch(archs=("sm_50",))
    assert not [f for f in report(python, gpu="").findings if f.id.startswith("gpu-code")]


def states(made: Report) -> dict[str, str]:
    return {layer.layer: layer.state for layer in made.layers if layer.layer in LAYERS}


def test_layers_hold_only_where_something_proves_it(python: FakePython) -> None:
    python.torch()
    made = report(python)
    assert states(made) == {
        "cuda-runtime": "holds",
        "compiled-kernels": "holds",
        "library-set": "holds",
        "framework": "not-seen",
    }
    why = {layer.layer: layer.why for layer in made.layers}
    assert "CUDA 12.8" in why["cuda-runtime"] and "sm_90" in why["compiled-kernels"]
    assert "--run-framework" in why["framework"]


def test_the_layer_of_a_fault_is_broken(python: FakePython) -> None:
    python.torch(archs=("sm_75",))
    python.package("sgl-kernel", "0.3.9", {"sgl_kernel/common_ops.abi3.so": library(needed=["libcudart.so.13"])})
    found = states(report(python))
    assert (found["compiled-kernels"], found["library-set"], found["cuda-runtime"]) == ("broken", "broken", "holds")


def test_no_environment_means_not_seen(python: FakePython) -> None:
    assert set(states(report(python)).values()) == {"not-seen"}
