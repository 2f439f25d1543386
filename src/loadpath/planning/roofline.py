"""The roofline: the most that a kernel can reach, given its work, its traffic, and a card's two peaks.

Attainable rate = min(peak, intensity x bandwidth); the ridge point is the intensity at which both are equal. It assumes
that compute and memory overlap fully and each runs at its peak: a bound, which no real kernel passes and few reach.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Bound = Literal["bandwidth-bound", "compute-bound", "balanced"]
BALANCED = 1e-9
"""Relative difference of both times below which neither bounds."""


class Roof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card's two peaks for one number format. `source`: where they come from, `confidence`: how sure they are."""

    name: str
    peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    source: str = ""
    confidence: str = ""

    @property
    def ridge_flops_per_byte(self) -> float:
        """The intensity from which on compute bounds."""
        return self.peak_flops_per_s / self.bandwidth_bytes_per_s


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Operations and bytes to and from device memory of one kernel or step; `seconds`: how long it was measured to take."""

    name: str
    flops: float
    bytes: float
    seconds: float | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where work stands under a roof. `intensity_flops_per_byte`: None where it moves no bytes.

    `floor_seconds`: no run is faster; `share_of_roof`: the measured rate over the attainable one (or, for work without
    operations, floor over measured time).
    """

    work: str
    roof: str
    flops: float
    bytes: float
    intensity_flops_per_byte: float | None
    attainable_flops_per_s: float
    bound: Bound
    share_of_peak: float
    compute_seconds: float
    memory_seconds: float
    floor_seconds: float
    measured_seconds: float | None = None
    achieved_flops_per_s: float | None = None
    achieved_bytes_per_s: float | None = None
    share_of_roof: float | None = None


def attainable(roof: Roof, intensity: float) -> float:
    """The most FLOP/s at an intensity in FLOP/byte."""
    return min(roof.peak_flops_per_s, intensity * roof.bandwidth_bytes_per_s)


def place(work: Work, roof: Roof) -> Placement:
    """The work under the roof."""
    compute = work.flops / roof.peak_flops_per_s
    memory = work.bytes / roof.bandwidth_bytes_per_s
    floor = max(compute, memory)
    intensity = work.flops / work.bytes if work.bytes else None
    reachable = roof.peak_flops_per_s if intensity is None else attainable(roof, intensity)
    measured = work.seconds
    return Placement(
        work=work.name,
        roof=roof.name,
        flops=work.flops,
        bytes=work.bytes,
        intensity_flops_per_byte=intensity,
        attainable_flops_per_s=reachable,
        bound=_bound(compute, memory),
        share_of_peak=reachable / roof.peak_flops_per_s,
        compute_seconds=compute,
        memory_seconds=memory,
        floor_seconds=floor,
        measured_seconds=measured,
        achieved_flops_per_s=work.flops / measured if measured else None,
        achieved_bytes_per_s=work.bytes / measured if measured else None,
        share_of_roof=floor / measured if measured else None,
    )


def _bound(compute: float, memory: float) -> Bound:
    if abs(compute - memory) <= BALANCED * max(compute, memory):
        return "balanced"
    return "compute-bound" if compute > memory else "bandwidth-bound"
