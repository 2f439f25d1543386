"""What profilers recorded: when a GPU worked and waited (Nsight Systems, torch profiler), and what one kernel did inside
(Nsight Compute). Times are recorded times, in seconds; a profiler itself slows the host's side of a run.
"""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Profiler = Literal["nsys", "torch"]
Cause = Literal["sync", "allocation", "host", "queued", "unknown"]
"""Why a GPU had nothing to do: the host waited for it and launched only then (`sync`), allocated, launched late (`host`);
the work was `queued` before the gap began and waited on the device's side; or the launch was not recorded."""
Role = Literal["launch", "graph-launch", "sync", "allocation", "copy", "other"]


class TimelineRead(Fact, frozen=True, kw_only=True):
    """A recorded timeline as a whole. `calls`: whether calls of the CUDA API were recorded beside the GPU's work."""

    tool: Profiler
    version: str = ""
    gpus: int = 0
    calls: bool = True
    cpu_events: int = 0
    window: str = ""


class GpuTimeline(Fact, frozen=True, kw_only=True):
    """One GPU between its first and its last recorded work. Unions over all streams: two kernels at once count once.

    `kernel_seconds`: kernels and graph launches; `busy_seconds`: those and copies and memory sets. `graph_launches` are
    recorded whole (the kernels in them are not seen); `graph_kernels` are kernels of graphs that were recorded one by one.
    `gap_seconds` by cause; `small_gap_seconds`: of gaps whose cause is the host and that are no longer than `SMALL_GAP`.
    """

    gpu: int
    span_seconds: float
    busy_seconds: float
    kernel_seconds: float
    name: str = ""
    capability: str = ""
    kernels: int = 0
    graph_launches: int = 0
    graph_kernels: int = 0
    streams: int = 0
    gaps: int = 0
    gap_seconds: dict[str, float] = {}
    small_gaps: int = 0
    small_gap_seconds: float = 0.0
    longest_gap_seconds: float = 0.0

    @property
    def idle_seconds(self) -> float:
        return self.span_seconds - self.busy_seconds

    @property
    def idle_share(self) -> float:
        return self.idle_seconds / self.span_seconds if self.span_seconds else 0.0


SMALL_GAP = 200e-6
"""Seconds: a launch or two on the host's side; longer gaps are other work of the host."""


class LongGap(Fact, frozen=True, kw_only=True):
    """One of the longest gaps of a GPU: when it began (from the first work), the work around it, and the longest call of
    the CUDA API that ran in it."""

    gpu: int
    at_seconds: float
    seconds: float
    cause: Cause
    before: str = ""
    after: str = ""
    call: str = ""
    call_seconds: float = 0.0


class KernelTime(Fact, frozen=True, kw_only=True):
    """All launches of one kernel. `share`: of the time of all kernels. `gpu`: None where the table does not tell it."""

    name: str
    count: int
    seconds: float
    share: float
    gpu: int | None = None
    median_seconds: float | None = None
    longest_seconds: float | None = None
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None

    @property
    def mean_seconds(self) -> float:
        return self.seconds / self.count if self.count else 0.0


class CopyTime(Fact, frozen=True, kw_only=True):
    """Copies of one direction and kind of host memory. `exposed_seconds`: while no kernel ran on that GPU.

    `direction`: `host-to-device`, …; `memory`: `pageable`, `pinned`, `device`, … of the host's side; "" not recorded.
    """

    direction: str
    count: int
    seconds: float
    bytes: int | None = None
    gpu: int | None = None
    memory: str = ""
    exposed_seconds: float | None = None

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes / self.seconds if self.bytes and self.seconds else None


class ApiTime(Fact, frozen=True, kw_only=True):
    """Calls of one function of the CUDA API, over all threads of the host."""

    name: str
    role: Role
    count: int
    seconds: float
    median_seconds: float | None = None
    longest_seconds: float | None = None


class LaunchCost(Fact, frozen=True, kw_only=True):
    """Kernels that the host launched one by one on a GPU, beside the calls that launched them (medians).

    `outrun`: kernels that ran for less time than the call took that launched them.
    """

    gpu: int
    launches: int
    call_seconds: float
    kernel_seconds: float
    outrun: int
    early: int = 0
    """Kernels that begin before their call does: the recording's clocks of host and GPU are apart."""
    delay_seconds: float | None = None


class KernelProfile(Fact, frozen=True, kw_only=True):
    """One launch as Nsight Compute measured it: `figures` by our names, in plain units (seconds, bytes, shares of one).

    Under the profiler a kernel runs alone, replayed, with caches flushed and (by default) clocks held at their base.
    """

    number: int
    name: str
    capability: str = ""
    gpu: str = ""
    blocks: int | None = None
    threads: int | None = None
    figures: dict[str, float] = {}
    stalls: dict[str, float] = {}
    """Cycles between two issued instructions of a warp, by what it waited for."""
    said: dict[str, str] = {}
    """What the profiler's own rules said, by rule."""
