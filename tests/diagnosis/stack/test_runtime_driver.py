"""Driver, libcuda and CUDA initialisation: the finding that leads, and the words that an engineer needs from it."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding

TORCH = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
TORCH += "NumCudaDevices() that might have already set an error? "


def words(root: Finding) -> str:
    advice = [w for r in root.remedies for w in (r.action, r.command, r.effect)]
    checks = [w for c in root.next_checks for w in (c.why, c.command)]
    return "\n".join([root.title, root.cause, *advice, *checks])


CASES = [
    (
        "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12020).",
        "driver-too-old",
        ["12.2", "580", "13", "cu128"],
    ),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        "driver-too-old",
        ["11.4", "525.60.13", "cu118"],
    ),
    (
        "Driver Version: 470.223.02   CUDA Version: 11.4\nPyTorch version: 2.9.1+cu128\n"
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "driver-too-old",
        ["470.223.02", "11.4", "12.8", "525.60.13"],
    ),
    (
        'msg="Unable to load nvcuda" library=/usr/lib64/libcuda.so.430.26 error="symbol lookup for cuCtxCreate_v3 failed: '
        '/usr/lib64/libcuda.so.430.26: undefined symbol: cuCtxCreate_v3"',
        "driver-too-old",
        ["430.26", "cuCtxCreate_v3", "11.4"],
    ),
    (
        "ERROR: This container was built for NVIDIA Driver Release 570.86 or later, but\n"
        "version 535.161.08 was detected and compatibility mode is UNAVAILABLE.",
        "driver-too-old",
        ["570.86", "host"],
    ),
    (TORCH + "Error 803: system has unsupported display driver / cuda driver combination", "libcuda-kernel-mismatch",
     ["compat", "image", "LD_LIBRARY_PATH"]),
    ("CUDA: Check failed: e == cudaSuccess (803 vs. 0) : system has unsupported display driver / cuda driver combination",
     "libcuda-kernel-mismatch", ["kernel"]),
    ("GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)\nDriver Version: 535.54.03\n" + TORCH
     + "Error 804: forward compatibility was attempted on non supported HW", "forward-compat-unsupported",
     ["GeForce RTX 3090", "535.54.03", "12.2", "older image"]),
    ("NVIDIA-SMI 535.104.05  Driver Version: 535.104.05  CUDA Version: 12.2\n"
     "CUDA error: the provided PTX was compiled with an unsupported toolchain.", "ptx-newer-than-driver",
     ["535.104.05", "12.2"]),
    ("ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; current version is '8.4'",
     "ptx-newer-than-driver", ["driver"]),
    ("RuntimeError: CUDA error: API call is not supported in the installed CUDA driver", "api-newer-than-driver", ["36"]),
    ("RuntimeError: CUDA error: CUDA driver is a stub library", "stub-libcuda", ["stubs"]),
    ("RuntimeError: CUDA error: PTX JIT compiler library not found", "ptx-jit-compiler-missing", ["compute"]),
    ("CUDA_VISIBLE_DEVICES=-1\nRuntimeError: CUDA error: no CUDA-capable device is detected", "no-cuda-device",
     ["CUDA_VISIBLE_DEVICES=-1"]),
    ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable",
     "cuda-init-failed", ["nvidia-uvm"]),
    ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "libcuda-missing",
     ["--gpus all"]),
    ("Driver Version: 575.64.03\nPyTorch: 2.6.0+cu124\nCUDA driver version is insufficient for CUDA runtime version",
     "insufficient-driver-despite-version", ["575.64.03", "12.4"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "root", "said"), CASES, ids=[f"{c[1]}-{i}" for i, c in enumerate(CASES)])
def test_leads_with_and_says(text: str, root: str, said: list[str]) -> None:
    report = read_text(text)
    assert report.root_cause == root
    assert report.root is not None
    missing = [word for word in said if word not in words(report.root)]
    assert not missing, words(report.root)


def test_never_says_that_versions_must_be_equal() -> None:
    report = read_text(TORCH + "Error 803: system has unsupported display driver / cuda driver combination")
    assert report.root is not None
    assert "too old" not in report.root.title


def test_data_centre_card_is_offered_the_compat_package_and_geforce_is_not() -> None:
    old = "\nThe NVIDIA driver on your system is too old (found version 11040)"
    for card, offered in (("NVIDIA A100-SXM4-80GB", True), ("NVIDIA GeForce RTX 4090", False)):
        report = read_text(f"GPU 0: {card}" + old)
        assert report.root is not None
        assert any("cuda-compat" in r.command for r in report.root.remedies) is offered


def test_versions_alone_explain_why_cuda_does_not_start() -> None:
    report = read_text(
        "PyTorch version: 2.9.0+cu130\nCUDA used to build PyTorch: 13.0\nIs CUDA available: False\n"
        "Nvidia driver version: 560.35.03\nRuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu."
    )
    assert report.root is not None
    assert report.root.id == "driver-too-old"
    assert report.root.certainty == "likely"
    for figure in ("560.35.03", "12.6", "13.0", "580"):
        assert figure in report.root.cause
