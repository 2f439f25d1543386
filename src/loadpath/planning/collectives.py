"""The floor of an all-reduce between GPUs: bytes over a link, and a latency that is assumed."""

from __future__ import annotations

import msgspec

from loadpath.knowledge.gpus import Gpu

NVLINK_LATENCY_S, PCIE_LATENCY_S = 3e-6, 5e-6
"""Start-up of one small all-reduce, assumed: the low end of what one-shot kernels take, so that the bound stays one."""
PCIE_BYTES_PER_LANE_S = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One direction, after line coding (PCI Express base specification)."""
SWITCHED_GBS = 900
"""NVLink bandwidth from which on a board sits on an NVSwitch baseboard; bridged boards have less."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What joins the GPUs. `bytes_per_s`: one GPU, one direction; `latency_s`: start-up of one all-reduce, assumed.

    `adds`: the switch itself can add (NVLS on NVSwitch of the fourth NVLink generation on), which halves the traffic.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    adds: bool = False


class AllReduce(msgspec.Struct, frozen=True, kw_only=True):
    """Floor of one all-reduce: `transfer_seconds` follows from the link, `latency_seconds` is assumed."""

    transfer_seconds: float
    latency_seconds: float

    @property
    def seconds(self) -> float:
        return self.transfer_seconds + self.latency_seconds


def link_of(gpu: Gpu, *, nvlink: bool = True) -> Link | None:
    """NVLink where the board has it and it is used, else PCI Express; None where the table holds neither."""
    if nvlink and gpu.nvlink_gbs:
        adds = (gpu.nvlink_gen or 0) >= 4 and gpu.nvlink_gbs >= SWITCHED_GBS
        return Link(name="NVLink", bytes_per_s=gpu.nvlink_gbs * 1e9 / 2, latency_s=NVLINK_LATENCY_S, adds=adds)
    lane = PCIE_BYTES_PER_LANE_S.get(gpu.pcie_gen or 0)
    if lane is None or not gpu.pcie_width:
        return None
    return Link(
        name=f"PCIe {gpu.pcie_gen} x{gpu.pcie_width}", bytes_per_s=lane * gpu.pcie_width, latency_s=PCIE_LATENCY_S
    )


def all_reduce(size: float, gpus: int, link: Link) -> AllReduce:
    """Each GPU sends and receives 2 (n - 1) / n of the bytes; where the switch adds, each sends its bytes once."""
    if gpus < 2:
        return AllReduce(transfer_seconds=0.0, latency_seconds=0.0)
    factor = 2 * (gpus - 1) / gpus
    if link.adds:
        factor = min(factor, 1.0)
    return AllReduce(transfer_seconds=factor * size / link.bytes_per_s, latency_seconds=link.latency_s)
