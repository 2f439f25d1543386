"""Settings that a server feels, and figures that are taken for something else."""

from __future__ import annotations

from conftest import read_text
from smi_text import HEAD, NONE, found, gpu, ids, table


def test_persistence_and_compute_mode() -> None:
    report = table(gpu(on="Off", mode="E. Process"), NONE)
    assert "nvidia-persistenced" in found(report, "gpu-persistence-off").remedies[0].command
    assert "error 46" in found(report, "gpu-compute-exclusive").cause
    assert report.verdict.state == "healthy"


def test_prohibited_and_a_pending_mig_change() -> None:
    assert table(gpu(mode="Prohibited"), NONE).root_cause == "gpu-compute-prohibited"
    assert table(gpu(mig="Disabled*"), NONE).root_cause == "gpu-mig-change-pending"


def test_cuda_above_the_drivers_own_is_a_compat_library() -> None:
    compat = found(read_text(HEAD.replace("580.95.05", "570.195.03") + gpu() + NONE), "cuda-compat-in-sight")
    assert "CUDA Version 13.0 beside driver 570.195.03" in compat.title and "12.8" in compat.cause
    assert "cuda-compat-in-sight" not in ids(table(gpu(), NONE))


def test_jetson_branches_are_not_measured_by_desktop_ones() -> None:
    text = (
        HEAD.replace("580.95.05", "540.4.0 ").replace("13.0", "12.6")
        + "|   0  Orin (nvgpu)   N/A  | N/A   N/A |   N/A |\n"
    )
    assert "cuda-compat-in-sight" not in ids(
        read_text(text + "| N/A   N/A  N/A   N/A /  N/A | Not Supported  |  N/A    N/A |\n")
    )


def test_a_list_and_a_version_alone() -> None:
    listed = read_text(
        "".join(f"GPU {n}: NVIDIA L4 (UUID: GPU-0000000{n}-0000-4000-8000-000000000001)\n" for n in range(2))
    )
    assert "nvidia-smi lists 2 GPUs: 2 × NVIDIA L4" in listed.verdict.sentence
    version = read_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)  Tue\nGCC version:  gcc 13\n"
    )
    assert "open flavour" in found(version, "driver-version-seen").cause


def test_cuda_version_na_is_a_missing_libcuda() -> None:
    missing = found(read_text(HEAD.replace("13.0", "N/A ") + gpu() + NONE), "cuda-library-not-in-sight")
    assert "libcuda.so.1" in missing.title and "compute,utility" in missing.remedies[0].command


def test_a_name_that_counts_more_than_the_gpus_memory() -> None:
    report = table(gpu(name="NVIDIA GH200 480GB", total=97871), NONE)
    assert "97,871 MiB on the GPU" in found(report, "gpu-name-counts-host-memory").title
    assert "gpu-name-counts-host-memory" not in ids(table(gpu(name="NVIDIA H100 80GB HBM3", total=81559), NONE))


def test_a_first_index_above_zero_is_noted_only_where_the_head_is_there() -> None:
    assert "gpu-index-not-from-zero" in ids(table(gpu(3), NONE))
    assert "gpu-index-not-from-zero" not in ids(read_text(gpu(3)))
