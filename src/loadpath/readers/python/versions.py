"""Loose statements of versions anywhere in a paste: drivers, toolkits, packages, GPUs, architectures, the environment.

NVIDIA-SMI 570.86.10   Driver Version: 570.86.10   CUDA Version: 12.8
Cuda compilation tools, release 12.4, V12.4.131
torch==2.8.0+cu128
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.stack import (
    ArchsCompiled,
    Basis,
    ComponentVersion,
    CudaAvailable,
    EnvironmentVariable,
    GpuModel,
)
from loadpath.core.text import Capture, Line

LONGEST = 4000  # longer lines are not versions

_DRIVER = r"\d{3}\.\d{2,3}(?:\.\d{2,3})?"
_PACKAGES = (
    r"torch|torchvision|torchaudio|triton|vllm|sglang|sgl[-_]kernel|flash[-_]attn|flashinfer(?:[-_]\w+)?|xformers"
    r"|transformers|tokenizers|numpy|numba|bitsandbytes|deepspeed|accelerate|peft|tensorrt(?:[-_]llm)?|ray|cupy-cuda\d+x"
    r"|huggingface[-_]hub|compressed[-_]tensors|xgrammar|outlines|lmdeploy|gptqmodel|auto[-_]gptq|autoawq|setuptools"
    r"|nvidia-[a-z]+(?:-[a-z]+)*(?:-cu\d+)?|pydantic|protobuf|fastapi|mistral[-_]common|timm|opencv-python(?:-headless)?"
)
_VERSION = r"\d+\.\d+(?:\.\d+)*(?:[-.]?(?:a|b|rc|dev|post)\d*)*(?:\.dev\d+)?(?:\+[\w.]+)?"
_VARIABLES = (
    r"LD_LIBRARY_PATH|LD_PRELOAD|CUDA_HOME|CUDA_PATH|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|CUDA_DISABLE_PTX_JIT"
    r"|NVIDIA_DRIVER_CAPABILITIES|TRITON_PTXAS_PATH|TORCH_CUDA_ARCH_LIST|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING"
    r"|CUDA_MPS_\w+|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|VLLM_ENABLE_CUDA_COMPATIBILITY"
)
# One of these is in every line that a pattern below can match: the cheap test before the dear ones.
_WORTH = (
    "driver|cuda|nvcc|torch|==|triton|vllm|sglang|sgl|flash|xformers|transformers|numpy|nvidia|glibc|libc|gpu|capabilit"
    "|sm_|archs|python|ld_|dist-info|kmd|^os"
)


def read(capture: Capture) -> Iterator[Fact]:
    worth = _worth()
    for line in capture.lines:
        if line.text and len(line.text) <= LONGEST and worth.search(line.text):
            yield from facts_of(capture, line)


def facts_of(capture: Capture, line: Line) -> Iterator[Fact]:
    """What one line states."""
    common = at(capture, line)
    for name, basis, pattern in _versions():
        for hit in pattern.finditer(line.text):
            yield ComponentVersion(**common, name=name, version=hit["v"], basis=basis)
    for hit in _package().finditer(line.text):
        yield from package(common, hit["name"] or "torch", hit["v"] or hit["torch"])
    for make, pattern in _others():
        if found := pattern.search(line.text):
            yield make(common, found)


def package(common: dict[str, object], name: str, version: str) -> Iterator[ComponentVersion]:
    """A package's version; `+cu128` at its end also says what torch was built with."""
    plain = name.lower().replace("_", "-")
    yield ComponentVersion(**common, name=plain, version=version, basis="package")  # type: ignore[arg-type]
    if plain == "torch" and (tag := re.search(r"\+cu(\d{2})(\d)$", version)):
        yield ComponentVersion(**common, name="torch-cuda", version=f"{tag[1]}.{tag[2]}", basis="package")  # type: ignore[arg-type]


@cache
def _worth() -> re.Pattern[str]:
    return re.compile(_WORTH, re.IGNORECASE)


@cache
def _versions() -> tuple[tuple[str, Basis, re.Pattern[str]], ...]:
    rows: tuple[tuple[str, Basis, str], ...] = (
        ("driver", "driver", rf"(?:Driver|KMD) Version\s*:\s*(?P<v>{_DRIVER})"),
        ("driver", "dump", rf"(?i)nvidia driver(?: version)?\s*[:=]?\s+(?P<v>{_DRIVER})"),
        ("driver", "driver", rf"NVRM version: [^\n]*?Kernel Module[^\n]*?\s(?P<v>{_DRIVER})"),
        ("driver", "path", rf"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so\.(?P<v>{_DRIVER})"),
        ("driver", "dump", rf"\bdriver(?:_version)?[=: ]+[\"']?(?P<v>{_DRIVER})\b"),
        ("driver-cuda", "driver", r"CUDA (?:UMD )?Version\s*:\s*(?P<v>\d+\.\d+)\s*\|?\s*$"),
        ("driver-cuda", "driver", r"CUDA (?:UMD )?Version\s*:\s*(?P<v>\d+\.\d+)(?=[^\n]*\|)"),
        ("driver-cuda", "dump", r"library=cuda\b[^\n]*\bdriver=(?P<v>\d+\.\d+)\b"),
        ("cuda-toolkit", "dump", r"Cuda compilation tools, release (?P<v>\d+\.\d+)"),
        ("cuda-toolkit", "path", r"/usr/local/cuda-(?P<v>\d+\.\d+)\b"),
        ("cuda-libraries", "path", r"site-packages/nvidia/cu(?P<v>1[1-9])/"),
        ("cuda-runtime", "dump", r"CUDA runtime version\s*:\s*(?P<v>\d+\.\d+(?:\.\d+)?)"),
        ("torch-cuda", "dump", r"CUDA used to build PyTorch\s*:\s*(?P<v>\d+\.\d+)"),
        ("torch-cuda", "dump", r"torch\.version\.cuda\W+(?P<v>\d+\.\d+)"),
        ("cudnn", "dump", r"cuDNN version\s*:\s*[^\n]*?(?P<v>\d+\.\d+\.\d+|\d{4,6})"),
        ("glibc", "dump", r"(?:Libc version\s*:\s*glibc-|GLIBC )(?P<v>2\.\d+)"),
        ("gcc", "dump", r"GCC version\s*:\s*\([^)]*\) (?P<v>\d+\.\d+(?:\.\d+)?)"),
        ("python", "dump", r"Python version\s*:\s*(?P<v>3\.\d+(?:\.\d+)?)"),
        ("os", "dump", r"^OS\s*:\s*(?P<v>\S[^\n]*)"),
    )
    return tuple((name, basis, re.compile(pattern)) for name, basis, pattern in rows)


@cache
def _package() -> re.Pattern[str]:
    return re.compile(
        rf"(?:^|[\s\"'(\[/,])(?P<name>{_PACKAGES})(?:\s*(?:===?|@)\s*|(?:[_ ]version)?\s*:\s*|-(?=\d)| {{1,60}}v?)"
        rf"(?P<v>{_VERSION})(?=$|[\s\"'),;|\]]|\.dist-info|\.tar|-cp\d|-py3)"
        rf"|(?<!build )PyTorch(?: version)?\s*:\s*(?P<torch>{_VERSION})",
        re.IGNORECASE,
    )


def _gpu(common: dict[str, object], hit: re.Match[str]) -> Fact:
    groups = hit.groupdict()
    index, capability = groups.get("index"), groups.get("cc")
    return GpuModel(
        **common,  # type: ignore[arg-type]
        name=(groups.get("gpu") or "").strip(),
        index=int(index) if index else None,
        capability=_capability(capability) if capability else None,
    )


def _capability(text: str) -> str:
    """`8.6` stays; `sm_120`, `120` → `12.0`."""
    digits = text.rpartition("_")[2].rstrip("af")
    return digits if "." in digits else f"{digits[:-1]}.{digits[-1]}"


def _archs(common: dict[str, object], hit: re.Match[str]) -> Fact:
    archs = tuple(re.findall(r"(?:sm|compute)_\d+[af]?", hit["archs"]))
    return ArchsCompiled(**common, archs=archs)  # type: ignore[arg-type]


def _ggml_archs(common: dict[str, object], hit: re.Match[str]) -> Fact:
    archs = tuple(f"sm_{int(a) // 10}" for a in re.findall(r"\d{3,4}", hit["archs"]))
    return ArchsCompiled(**common, archs=archs, who="llama.cpp")  # type: ignore[arg-type]


def _available(common: dict[str, object], hit: re.Match[str]) -> Fact:
    return CudaAvailable(**common, available=hit["b"] in ("True", "Yes"))  # type: ignore[arg-type]


def _variable(common: dict[str, object], hit: re.Match[str]) -> Fact:
    return EnvironmentVariable(**common, name=hit["name"], value=hit["value"].strip("\"'"))  # type: ignore[arg-type]


@cache
def _others() -> tuple[tuple[Callable[[dict[str, object], re.Match[str]], Fact], re.Pattern[str]], ...]:
    named = r"(?P<gpu>(?:NVIDIA|Tesla|GeForce|Quadro|RTX) ?[^\n(,]*?)"
    return (
        (_gpu, re.compile(rf"\bGPU ?(?P<index>\d+)\s*:\s*{named}\s*(?:\(|$)")),
        (_gpu, re.compile(rf"Device (?P<index>\d+): {named}, compute capability (?P<cc>\d+\.\d+)")),
        (_gpu, re.compile(rf"{named} with CUDA capability (?P<cc>sm_\d+)")),
        (
            _gpu,
            re.compile(rf"Found GPU(?P<index>\d+) {named} which is of (?:cuda|compute) capability \(?(?P<cc>\d+\.\d+)"),
        ),
        (_gpu, re.compile(rf"Your {named} GPU has compute capability (?P<cc>\d+\.\d+)")),
        (_gpu, re.compile(r"GPU models and configuration\s*:\s*(?P<gpu>(?!GPU \d)\S[^\n]*)")),
        (_gpu, re.compile(r"[Cc]ompute [Cc]apability\s*[:=]\s*\(?(?P<cc>\d+(?:\.\d)?)(?![\d.])")),
        (_archs, re.compile(r"supports CUDA capabilities (?P<archs>(?:(?:sm|compute)_\d+[af]? ?)+)")),
        (_archs, re.compile(r"\[(?P<archs>(?:'(?:sm|compute)_\d+[af]?'(?:, )?){2,})\]")),
        (_ggml_archs, re.compile(r"CUDA\s*:\s*ARCHS = (?P<archs>\d{3,4}(?:,\d{3,4})*)")),
        (_available, re.compile(r"Is CUDA available\s*:\s*(?P<b>True|False|Yes|No)")),
        (_variable, re.compile(rf"(?:^|[\s\"'])(?P<name>{_VARIABLES})=(?P<value>\"[^\"]*\"|'[^']*'|\S*)")),
    )
