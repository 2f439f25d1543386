"""What the lines of drivers, packages and model loaders mean: the right finding, and nothing that the line does not say."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding


def _root(text: str) -> Finding:
    report = read_text(text)
    return next(f for f in report.findings if f.id == report.root_cause)


@pytest.mark.parametrize(
    ("text", "finding", "says"),
    [
        (
            "ValueError: Weight input_size_per_partition = 320 is not divisible by weight quantization block_k = 128.",
            "quantised-shard-not-aligned",
            "At half of that size the share would be 640 (5 × 128)",
        ),
        (
            "ImportError: /srv/x/vllm/_C.abi3.so: undefined symbol: _Z12fancy_kernelRN2at6TensorES1_",
            "extension-incomplete",
            "fancy_kernel",
        ),
        (
            "AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'",
            "extension-not-loaded",
            "compiled operators are missing",
        ),
        (
            "AttributeError: '_OpNamespace' '_C' object has no attribute 'fancy_fp4_mm'",
            "kernel-not-in-this-build",
            "not compiled into this build",
        ),
        (
            "llama-cli: error while loading shared libraries: libcublas.so.13: cannot open shared object file: No such file",
            "cuda-library-missing",
            "linked against CUDA 13",
        ),
        (
            "NotImplementedError: No compiled fancy_mm for a compute capability less than CUDA device capability: 75",
            "kernel-needs-other-arch",
            "no `fancy_mm` for this card's compute capability, 7.5",
        ),
        (
            "AssertionError: Engine world size (4 * 1) != Runtime world size (1)",
            "trtllm-world-size",
            "1 process(es) run, and the engine was built for 4 * 1",
        ),
    ],
)
def test_says_what_the_line_says(text: str, finding: str, says: str) -> None:
    root = _root(text)
    assert root.id == finding
    assert says in root.cause


def test_an_undefined_symbol_is_no_missing_file() -> None:
    root = _root("Could not load library libcublasLt.so.12. Error: libcublasLt.so.12: undefined symbol: cublasLtFancy")
    assert root.id == "undefined-symbol"


def test_pip_is_not_offered_to_an_executable() -> None:
    root = _root("./server: error while loading shared libraries: libcudart.so.12: cannot open shared object file")
    assert not any("pip install" in remedy.command for remedy in root.remedies)


def test_forward_compatibility_is_not_offered_where_it_was_refused() -> None:
    root = _root(
        "ERROR: This container was built for NVIDIA Driver Release 580.65 or later, but\n"
        "         version 470.57.02 was detected and compatibility mode is UNAVAILABLE.\n"
        "   [[Forward compatibility was attempted on non supported HW (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) cuInit()=804]]"
    )
    assert root.id == "driver-too-old"
    assert "470.57.02" in root.cause
    assert not any("cuda-compat" in remedy.command for remedy in root.remedies)


def test_triton_that_found_the_driver_file_is_not_told_to_install_a_driver() -> None:
    root = _root(
        "AssertionError: libcuda.so cannot found!\n"
        "Possible files are located at ['/usr/lib/x86_64-linux-gnu/libcuda.so.1'].Please create a symlink of libcuda.so"
    )
    assert root.id == "libcuda-link-missing"


def test_lmdeploy_without_turbomind_says_nothing_of_the_model() -> None:
    report = read_text(
        "lmdeploy - WARNING - Fallback to pytorch engine because turbomind engine is not installed correctly."
    )
    assert [f.id for f in report.findings] == ["lmdeploy-turbomind-not-installed"]
    assert report.verdict.state == "degraded"
