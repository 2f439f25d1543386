"""Facts about the software stack that a paste states: which version of what, on which GPU, with which environment."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Basis = Literal["driver", "dump", "package", "path", "banner"]


class ComponentVersion(Fact, frozen=True, kw_only=True):
    """One component and its version, as printed.

    `name`: `driver`, `driver-cuda` (the highest CUDA that the driver offers, as nvidia-smi's header shows),
    `cuda-toolkit` (nvcc), `cuda-runtime` (what collect_env calls so), `torch-cuda` (what PyTorch was built with),
    `cudnn`, `glibc`, `gcc`, `python`, `os`, or a package as pip names it (`torch`, `flash-attn`; lower case, dashes).
    `basis`: where that was said; `path` is a file name that carries a version.
    """

    name: str
    version: str
    basis: Basis = "dump"


class GpuModel(Fact, frozen=True, kw_only=True):
    """A GPU by its product name, with its compute capability (`12.0`) where the line prints it."""

    name: str
    index: int | None = None
    capability: str | None = None


class ArchsCompiled(Fact, frozen=True, kw_only=True):
    """The architectures that a binary has code for, as printed (`sm_80`, `compute_90`); `who`: whose binary it is."""

    archs: tuple[str, ...]
    who: str = "torch"


class CudaAvailable(Fact, frozen=True, kw_only=True):
    """Whether PyTorch says that it can use CUDA at all."""

    available: bool


class PythonHome(Fact, frozen=True, kw_only=True):
    """An environment (prefix folder) that a path names: by its interpreter, or by its site-packages."""

    prefix: str
    interpreter: str | None = None


class EnvironmentVariable(Fact, frozen=True, kw_only=True):
    """An environment variable of the process, as a dump or a command line shows it."""

    name: str
    value: str
