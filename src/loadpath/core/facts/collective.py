"""Facts about collectives: what NCCL chose and measured. Bandwidths in GB/s (decimal, as NCCL prints them)."""

from __future__ import annotations

from loadpath.core.facts.base import Fact


class NcclStarted(Fact, frozen=True, kw_only=True):
    """NCCL's version and the network it uses (`IB`, `Socket`, `OFI`, …), where printed."""

    version: str | None = None
    network: str | None = None


class CommunicatorMade(Fact, frozen=True, kw_only=True):
    """A communicator of `nranks` ranks; `complete` once its start is over."""

    rank: int
    nranks: int
    bus_id: str | None = None
    complete: bool = False


class ChannelVia(Fact, frozen=True, kw_only=True):
    """The transport that NCCL chose between two ranks: `P2P/IPC`, `P2P/CUMEM`, `SHM/direct`, `NET/IB/0/GDRDMA`, …"""

    source: int
    target: int
    via: str


class TopologyFile(Fact, frozen=True, kw_only=True):
    """NCCL was told to take the machine's topology from a file."""

    path: str


class LinkBandwidth(Fact, frozen=True, kw_only=True):
    """A link in NCCL's own picture of the machine: `kind` (`NVL`, `PCI`, `SYS`, …), `gbps` GB/s, and its two ends."""

    kind: str
    gbps: float
    source: str | None = None
    target: str


class CollectiveBandwidth(Fact, frozen=True, kw_only=True):
    """The average bus bandwidth that nccl-tests prints, GB/s."""

    gbps: float


class Throughput(Fact, frozen=True, kw_only=True):
    """A measured rate in tokens/s with what a person's or a benchmark's line says about the set-up."""

    label: str
    tokens_per_second: float
    tensor_parallel: bool | None = None


class NcclStartUnfinished(Fact, frozen=True, kw_only=True):
    """A log whose last words are those of NCCL's initialisation, without its end. `stage`: `loaded` (its version is
    printed), `unique-id`, `bootstrap` (interfaces and plug-ins chosen), `communicator` (ranks being connected)."""

    stage: str
    interface: str | None = None


class RdmaPort(Fact, frozen=True, kw_only=True):
    """One port of an InfiniBand/RoCE card as ibstat or ibstatus print it. `state` Active, Down, Initialize, Armed;
    `physical` LinkUp, Polling, Disabled, …; `gbps` Gb/s (bits)."""

    device: str
    port: int
    state: str
    physical: str
    gbps: float | None = None
    layer: str | None = None
