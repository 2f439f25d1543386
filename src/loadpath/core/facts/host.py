"""Facts about the host's limits: file systems, shared memory, resource limits, memory. Sizes in bytes."""

from __future__ import annotations

from loadpath.core.facts.base import Fact


class FilesystemUse(Fact, frozen=True, kw_only=True):
    """One row of `df`: what is mounted where and how full it is."""

    mount: str
    filesystem: str
    size_bytes: int
    used_bytes: int
    free_bytes: int


class ResourceLimit(Fact, frozen=True, kw_only=True):
    """One limit of `ulimit` or /proc/PID/limits (soft). `value` in bytes or a count; None is unlimited.

    `name` is the rlimit in lower case: `memlock`, `nofile`, `nproc`, `as`, `core`, `stack`, `data`.
    """

    name: str
    value: int | None


class HostMemory(Fact, frozen=True, kw_only=True):
    """The host's memory at one moment, as `free`, DeepSpeed's `CPU Virtual Memory` or Ray print it.

    `used_share` is 0..1. DeepSpeed prints no total: it is `used_bytes / used_share`.
    """

    used_bytes: int | None = None
    total_bytes: int | None = None
    available_bytes: int | None = None
    used_share: float | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None


class TrainingGpuMemory(Fact, frozen=True, kw_only=True):
    """DeepSpeed's `MA … Max_MA … CA … Max_CA`: PyTorch's memory on one GPU, allocated and reserved."""

    allocated_bytes: int
    reserved_bytes: int


class OptimizerPartition(Fact, frozen=True, kw_only=True):
    """DeepSpeed ZeRO: how many parameters one rank's optimizer holds, and over how many ranks they are split."""

    parameters: int
    ranks: int
