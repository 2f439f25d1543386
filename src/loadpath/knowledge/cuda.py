"""CUDA's own rules as data: toolkits, driver branches, architectures, PyTorch wheels, error codes, libraries.

Compatibility in three sentences. A driver runs every program of an older CUDA. Within one major, a program of a
newer minor also runs from that major's floor on (12.x from 525.60.13), save PTX and calls that the driver does not
know. Across majors only the forward-compatibility package helps, on data-centre GPUs. Nowhere must versions be equal.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from loadpath.core.vocabulary import Boundary
from loadpath.knowledge.cache import cached

_TABLE = Path(__file__).parent / "cuda.toml"


class Toolkit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One CUDA minor: the branch whose drivers offer it, the driver it came with, its major's floor, ptxas targets, and
    the PTX version that it writes."""

    cuda: str
    branch: str
    min_driver: str = ""
    minor_floor: str = ""
    ptx: str = ""
    releases: dict[str, str] = {}
    sm: tuple[str, ...] = ()
    notes: str = ""


class DriverBranch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A driver branch: the CUDA that its nvidia-smi prints, and the architectures it drives."""

    branch: str
    cuda: str
    architectures: tuple[str, ...]
    kind: str = ""
    end_of_life: str = ""
    notes: str = ""


class Architecture(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU generation: its compute capabilities (`8.0, 8.6`, `5.0-5.3`) and the window in which it is supported."""

    name: str
    capability: str
    first_branch: str = ""
    last_branch: str = ""
    last_toolkit: str = ""
    notes: str = ""

    def has(self, capability: str) -> bool:
        wanted = float(capability)
        for part in self.capability.split(","):
            low, _, high = part.strip().partition("-")
            if float(low) <= wanted <= float(high or low):
                return True
        return False


class TorchWheel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PyTorch wheel: the architectures it has code for. `default`: what plain `pip install torch` brings."""

    torch: str
    tag: str
    sm: tuple[str, ...]
    platform: str = "x86_64"
    ptx: tuple[str, ...] = ()
    default: bool = False
    min_driver: str = ""
    confidence: str = "medium"

    @property
    def cuda(self) -> str:
        """`cu128` → `12.8`."""
        return f"{self.tag[2:-1]}.{self.tag[-1]}"


class ForwardCompatibility(msgspec.Struct, frozen=True):
    topic: str
    fact: str
    confidence: str = ""


class CudaError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A code of the CUDA runtime and driver: names in both, cudaGetErrorString's text, the boundary that it shows."""

    code: int
    boundary: Boundary
    meaning: str
    runtime: str = ""
    driver: str = ""
    text: str = ""


class DriverSymbol(msgspec.Struct, frozen=True):
    """A function of libcuda, and the CUDA version whose drivers first have it."""

    symbol: str
    since: str


class Library(msgspec.Struct, frozen=True):
    """A CUDA library: its pip package (without `-cu12`), its folder below site-packages/nvidia, its system package."""

    name: str
    package: str
    folder: str
    system_package: str


class CudaTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    toolkit: tuple[Toolkit, ...]
    driver_branch: tuple[DriverBranch, ...]
    architecture: tuple[Architecture, ...]
    torch_wheel: tuple[TorchWheel, ...]
    forward_compat: tuple[ForwardCompatibility, ...]
    error: tuple[CudaError, ...]
    driver_symbol: tuple[DriverSymbol, ...]
    library: tuple[Library, ...]


@cache
def table() -> CudaTable:
    """The whole table; its parsed form is kept in the user's cache."""
    return cached(
        "cuda", [_TABLE], CudaTable, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), CudaTable)
    )


def numbers(version: str) -> tuple[int, ...]:
    """`"535.104.05"` → (535, 104, 5); parts that are no numbers end it."""
    out: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        out.append(int(part))
    return tuple(out)


def branch_of(driver: str) -> DriverBranch | None:
    """The branch of a driver version, `535.104.05` → R535; the next older one where that very branch is not listed."""
    major = numbers(driver)[:1]
    fitting = [b for b in table().driver_branch if numbers(b.branch) <= major]
    return max(fitting, key=lambda b: numbers(b.branch), default=None)


def toolkit(cuda: str) -> Toolkit | None:
    """The toolkit of a CUDA version (`12.4`, `12.4.1`)."""
    minor = numbers(cuda)[:2]
    return next((t for t in table().toolkit if numbers(t.cuda) == minor), None)


def branch_for(cuda: str) -> str | None:
    """The driver branch whose drivers offer all of `cuda`: `12.8` → `570`."""
    found = toolkit(cuda)
    return found.branch if found else None


def floor_of(cuda_major: int) -> str | None:
    """The driver from which any program of that CUDA major runs (minor-version compatibility), `12` → `525.60.13`."""
    return next(
        (t.minor_floor for t in table().toolkit if numbers(t.cuda)[:1] == (cuda_major,) and t.minor_floor), None
    )


def decoded(found_version: int) -> str:
    """CUDA's integer form, `12020` → `12.2`."""
    return f"{found_version // 1000}.{found_version % 1000 // 10}"


Verdict = Literal["full", "minor", "older-driver", "unknown"]


def runs(cuda: str, driver_cuda: str) -> Verdict:
    """Whether a program of toolkit `cuda` runs on a driver that offers `driver_cuda`.

    `full`: everything; `minor`: runs, save PTX from the newer toolkit and newer calls; `older-driver`: not at all.
    """
    program, driver = numbers(cuda)[:2], numbers(driver_cuda)[:2]
    if not program or not driver:
        return "unknown"
    if program <= driver:
        return "full"
    return "minor" if program[0] == driver[0] and program[0] >= 11 else "older-driver"


def architecture(capability: str) -> Architecture | None:
    """The generation of a compute capability (`8.6`)."""
    try:
        return next((a for a in table().architecture if a.has(capability)), None)
    except ValueError:
        return None


def capability_of(sm: str) -> str | None:
    """`sm_120`, `sm_90a`, `compute_75`, `120` → `12.0`, `9.0`, `7.5`, `12.0`."""
    digits = sm.rpartition("_")[2].rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() and len(digits) >= 2 else None


def covered(capability: str, archs: tuple[str, ...]) -> bool:
    """Whether code for `archs` runs on `capability`: a cubin of the same major and no higher minor; PTX of any lower.

    Targets that end in `a` run on exactly that chip, those in `f` within the family, PTX of either kind included.
    """
    have = numbers(capability)
    for arch in archs:
        own = numbers(capability_of(arch) or "")
        if not own:
            continue
        if arch.endswith("a"):
            fits = own == have
        elif arch.startswith("compute_") and not arch.endswith("f"):
            fits = own <= have
        else:
            fits = own[:1] == have[:1] and own <= have
        if fits:
            return True
    return False


def toolkits_with(sm: str) -> tuple[str, ...]:
    """The CUDA versions, oldest first, whose ptxas knows the target `sm` (`sm_121a`)."""
    found = [t.cuda for t in table().toolkit if sm in t.sm]
    return tuple(sorted(found, key=numbers))


def cuda_of_ptx(isa: str) -> str | None:
    """The oldest CUDA whose drivers compile PTX of version `isa`: `8.7` → `12.8`; None for one that is not listed."""
    found = [t.cuda for t in table().toolkit if t.ptx and numbers(t.ptx) >= numbers(isa)]
    return min(found, key=numbers, default=None)


def wheels_for(capability: str, platform: str = "x86_64") -> tuple[TorchWheel, ...]:
    """The PyTorch wheels with code for `capability`, newest torch first."""
    fitting = [w for w in table().torch_wheel if w.platform == platform and covered(capability, w.sm + w.ptx)]
    return tuple(sorted(fitting, key=lambda w: numbers(w.torch), reverse=True))


def error(code: int) -> CudaError | None:
    return next((e for e in table().error if e.code == code), None)


def library(soname: str) -> Library | None:
    """The library of a file name: `libcudnn_cnn.so.9` → cuDNN's row."""
    stem = soname.partition(".so")[0]
    rows = [r for r in table().library if stem == r.name or stem.startswith((f"{r.name}_", f"{r.name}-"))]
    return max(rows, key=lambda r: len(r.name), default=None)


def package_for(row: Library, major: str) -> str:
    """The pip package of a library for one CUDA major. From 13 on most names have no `-cu13`."""
    plain = major == "13" and row.name not in ("libcudnn", "libnccl", "libcusparseLt", "libnvshmem_host", "libnvinfer")
    return row.package if plain else f"{row.package}-cu{major}"
