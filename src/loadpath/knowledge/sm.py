"""What one streaming multiprocessor holds, by compute capability. Sizes in bytes; sources stand in `sm.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from loadpath.core.units import KIB
from loadpath.knowledge.cache import cached

_TABLE = Path(__file__).parent / "sm.toml"

WARP = 32
BLOCK_THREADS = 1024
REGISTERS = 65_536
"""32-bit registers of an SM, and the most of one block."""
THREAD_REGISTERS = 255
WARP_REGISTER_UNIT = 256
PARTITIONS = 4
"""Sub-partitions of an SM: each has a quarter of the registers and runs its own warps."""
DEFAULT_BLOCK_SHARED = 48 * KIB
"""Shared memory that a block gets without opting in."""


class Sm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One compute capability's SM. `threads` and `blocks`: most that are resident at once."""

    capability: str
    threads: int
    blocks: int
    shared_kib: int
    block_shared_kib: int
    reserved_bytes: int
    shared_unit_bytes: int

    @property
    def warps(self) -> int:
        return self.threads // WARP

    @property
    def shared_bytes(self) -> int:
        return self.shared_kib * KIB

    @property
    def block_shared_bytes(self) -> int:
        """The most that one block may ask for, static and dynamic together."""
        return self.block_shared_kib * KIB


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sm: tuple[Sm, ...]


@cache
def sms() -> tuple[Sm, ...]:
    """Every capability's SM, oldest first."""
    files = (_TABLE, Path(__file__))
    return cached("sm", files, _File, lambda: msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), _File)).sm


def sm_of(capability: str) -> Sm | None:
    """The SM of `8.6`, `sm_86`, `86`, `sm_90a` or `compute_120`; None where the table does not hold it."""
    digits = capability.lower().removeprefix("sm_").removeprefix("compute_").rstrip("af")
    dotted = digits if "." in digits else f"{digits[:-1]}.{digits[-1:]}"
    return next((sm for sm in sms() if sm.capability == dotted), None)
