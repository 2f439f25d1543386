"""The GPU table, typed, and the ways to find a board in it: by (cut) name, PCI device id, or memory size."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from loadpath.knowledge.cache import cached

_TABLE = Path(__file__).parent / "gpus.toml"
Modules = Literal["open", "proprietary", "either"]


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One board. `bandwidth_gbs` GB/s of device memory, `nvlink_gbs` GB/s both directions together, `tflops` dense
    figures by number format (`fp16`, `bf16`, `fp8`, `fp4`, `int8` as TOPS, `fp16_fp16acc`); `memory_mib` totals that
    nvidia-smi was seen to print; `mig_profiles` as `profile:most instances`. None: not confirmed."""

    id: str
    names: tuple[str, ...]
    kind: str
    architecture: str
    chip: str
    capability: str
    memory_gb: int
    memory_type: str
    bandwidth_gbs: float
    tdp_w: int
    confidence: str
    source: tuple[str, ...]
    pci_ids: tuple[str, ...] = ()
    memory_mib: tuple[int, ...] = ()
    cuda_total_mib: int | None = None
    """What a process is told to be the total (cudaMemGetInfo)."""
    sms: int | None = None
    tdp_range_w: tuple[int, ...] = ()
    pcie_gen: int | None = None
    pcie_width: int | None = None
    nvlink_gbs: float | None = None
    nvlink_gen: int | None = None
    l2_mib: float | None = None
    tflops: dict[str, float] = {}
    mig_instances: int = 0
    mig_profiles: tuple[str, ...] = ()
    mig_min_driver: str | None = None
    min_branch: int | None = None
    max_branch: int | None = None
    ecc: str = ""
    unified_memory: bool = False
    notes: str = ""


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for every board of an architecture. `modules`: which kernel modules of the driver can run it."""

    architecture: str
    chips: tuple[str, ...]
    device_ids: tuple[tuple[str, str], ...]
    min_branch: int
    modules: Modules
    max_branch: int | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    gpu: tuple[Gpu, ...]
    generation: tuple[Generation, ...]


@cache
def _file() -> _File:
    files = (_TABLE, Path(__file__))
    return cached("gpus", files, _File, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), _File))


def gpus() -> tuple[Gpu, ...]:
    """Every board, oldest architecture first."""
    return _file().gpu


def generations() -> tuple[Generation, ...]:
    return _file().generation


def by_id(id: str) -> Gpu | None:
    return next((gpu for gpu in gpus() if gpu.id == id), None)


def by_pci_id(device_id: str) -> Gpu | None:
    """The board of a PCI device id (`2bb1`); where boards share one, the first listed."""
    wanted = device_id.lower().removeprefix("0x")
    return next((gpu for gpu in gpus() if wanted in gpu.pci_ids), None)


def by_name(name: str, memory_mib: int | None = None) -> Gpu | None:
    """The board that a tool calls `name`: whole, cut (`NVIDIA A100-SXM...`), or as lspci puts it in brackets.

    `memory_mib` (a total as nvidia-smi prints it) decides between boards that are named or cut alike; None where
    more than one remains.
    """
    wanted = _plain(name)
    if not wanted:
        return None
    if name.rstrip().endswith("..."):
        found = [gpu for gpu in gpus() if any(_plain(n).startswith(wanted) for n in gpu.names)]
    else:
        found = [gpu for gpu in gpus() if any(_plain(n) == wanted for n in gpu.names)]
    if len(found) > 1 and memory_mib is not None:
        found = [gpu for gpu in found if _has(gpu, memory_mib)]
    return found[0] if len(found) == 1 or (found and not name.rstrip().endswith("...")) else None


def generation_of(device_id: str | None = None, name: str | None = None) -> Generation | None:
    """The generation of a device id (`2bb1`), else of a chip's name at the start of `name` (`GB202GL [...]`)."""
    if device_id:
        number = int(device_id, 16)
        for row in generations():
            if any(int(low, 16) <= number <= int(high, 16) for low, high in row.device_ids):
                return row
    chip = re.match(r"([A-Z]{2})\d{2}", name or "")
    return next((row for row in generations() if chip and chip[1] in row.chips), None)


def _plain(name: str) -> str:
    words = name.lower().removesuffix("...").replace("nvidia corporation", "").replace("nvidia", "").split()
    return " ".join(word for word in words if word != "geforce")


def _has(gpu: Gpu, memory_mib: int) -> bool:
    """Does the total fit the board: one that was seen, or within 7 % below its nominal size (ECC, reserved)?"""
    nominal = gpu.memory_gb * 1024
    return memory_mib in gpu.memory_mib or 0.93 * nominal <= memory_mib <= 1.01 * nominal
