"""Versions, GPUs, architectures and environment dumps: what each line states."""

from __future__ import annotations

import pytest

from loadpath.core.facts.base import Fact
from loadpath.core.facts.stack import ArchsCompiled, ComponentVersion, CudaAvailable, EnvironmentVariable, GpuModel
from loadpath.core.text import Capture, Line
from loadpath.readers.python import collect_env, versions


def capture(text: str) -> Capture:
    return Capture("log", "t", tuple(Line(i + 1, raw.strip(), raw) for i, raw in enumerate(text.split("\n"))))


def facts(text: str) -> list[Fact]:
    return list(versions.read(capture(text)))


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("| NVIDIA-SMI 570.86.10   Driver Version: 570.86.10   CUDA Version: 12.8     |", "driver", "570.86.10"),
        ("| NVIDIA-SMI 570.86.10   Driver Version: 570.86.10   CUDA Version: 12.8     |", "driver-cuda", "12.8"),
        ("| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3   |", "driver-cuda", "13.3"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  545.23.08  Release Build", "driver", "545.23.08"),
        ("Nvidia driver version        : 580.95.05", "driver", "580.95.05"),
        ("library=/usr/lib/libcuda.so.418.74 error", "driver", "418.74"),
        ("NVCC: Cuda compilation tools, release 11.8, V11.8.89", "cuda-toolkit", "11.8"),
        ("PyTorch: 2.8.0+cu128", "torch-cuda", "12.8"),
        ("[pip3] torch==2.9.1+cu130", "torch", "2.9.1+cu130"),
        ("torch                     2.7.1+cu126", "torch", "2.7.1+cu126"),
        ("CUDA used to build PyTorch   : 12.9", "torch-cuda", "12.9"),
        ("flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl flash-attn==2.7.4.post1",
         "flash-attn", "2.7.4.post1"),
        ("Libc version                 : glibc-2.35", "glibc", "2.35"),
        ("./.venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "cuda-libraries", "13"),
    ],
)  # fmt: skip
def test_component(text: str, name: str, version: str) -> None:
    found = [f.version for f in facts(text) if isinstance(f, ComponentVersion) and f.name == name]
    assert version in found


def test_card_capability_and_architectures() -> None:
    found = facts(
        "NVIDIA L4 with CUDA capability sm_89 is not compatible\nThe current PyTorch install supports CUDA capabilities "
        "sm_50 sm_60 compute_90.\nDevice 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes"
    )
    assert [(g.name, g.capability) for g in found if isinstance(g, GpuModel)] == [
        ("NVIDIA L4", "8.9"),
        ("NVIDIA GeForce RTX 3090", "8.6"),
    ]
    assert [f.archs for f in found if isinstance(f, ArchsCompiled)] == [("sm_50", "sm_60", "compute_90")]


def test_build_words_are_no_torch_version() -> None:
    found = facts("CUDA used to build PyTorch: 12.8")
    assert [f.name for f in found if isinstance(f, ComponentVersion)] == ["torch-cuda"]


def test_environment_and_availability() -> None:
    found = facts("docker run -e CUDA_VISIBLE_DEVICES=-1 x\nIs CUDA available: False")
    assert [(f.name, f.value) for f in found if isinstance(f, EnvironmentVariable)] == [("CUDA_VISIBLE_DEVICES", "-1")]
    assert [f.available for f in found if isinstance(f, CudaAvailable)] == [False]


DUMP = """==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
GCC version                  : (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Libc version                 : glibc-2.35

==============================
       PyTorch Info
==============================
PyTorch version              : 2.8.0+cu128
GPU models and configuration :
GPU 0: NVIDIA H100 80GB HBM3

[pip3] triton==3.4.0
vLLM Version                 : 0.10.2
VLLM_USE_V1=1

INFO 10-01 the server's own log begins here
and goes on
for a while"""


def test_a_dump_is_one_block_and_ends_where_the_log_begins() -> None:
    lines = capture(DUMP).lines
    assert collect_env.extent(lines, 0) == 17
    assert collect_env.extent(lines, 18) == 18
    variables = [f for f in collect_env.read(capture(DUMP)) if isinstance(f, EnvironmentVariable)]
    assert [(v.name, v.value) for v in variables] == [("VLLM_USE_V1", "1")]
