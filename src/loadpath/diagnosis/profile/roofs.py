"""A measured kernel under its card's roofs: the floor that device memory sets, and operations a byte."""

from __future__ import annotations

from loadpath.core.facts.profile import KernelProfile
from loadpath.core.units import show_bytes, show_time
from loadpath.diagnosis.profile.words import percent
from loadpath.knowledge.gpus import by_name
from loadpath.planning.rates import rate
from loadpath.planning.roofline import Roof, Work, place

_COUNTED = {"fadd": 1, "fmul": 1, "ffma": 2}
"""Operations of one instruction of a thread, of the float32 counters."""


def flops_of(launch: KernelProfile) -> float | None:
    """Float32 operations on the CUDA cores, where they were counted and no tensor core worked."""
    figures = launch.figures
    counted = [name for name in _COUNTED if name in figures]
    if not counted or figures.get("tensor") or figures.get("tensor_instructions"):
        return None
    return sum(figures[name] * _COUNTED[name] for name in counted) or None


def intensity_words(launch: KernelProfile) -> str | None:
    """ "2.1 FLOP/byte: 0.57 TFLOP/s in float32 on the CUDA cores, 12 MiB moved." """
    moved, seconds, flops = launch.figures.get("dram_bytes"), launch.figures.get("seconds"), flops_of(launch)
    if not moved or not seconds or not flops:
        return None
    rated = f"{flops / moved:.3g} FLOP/byte: {flops / seconds / 1e12:.3g} TFLOP/s in float32 on the CUDA cores"
    return f"{rated}, {show_bytes(moved)} moved."


def floor_words(launch: KernelProfile) -> str | None:
    """What the card's roofs allow for the bytes (and counted operations) of this launch; None for an unknown card."""
    moved, seconds = launch.figures.get("dram_bytes"), launch.figures.get("seconds")
    gpu = by_name(launch.gpu) if launch.gpu else None
    if not moved or not seconds or gpu is None:
        return None
    flops = flops_of(launch)
    peak = rate(gpu, "fp32").flops_per_s if flops else None
    bandwidth = gpu.bandwidth_gbs * 1e9
    roof = Roof(name=gpu.id, peak_flops_per_s=peak or float("inf"), bandwidth_bytes_per_s=bandwidth)
    placed = place(Work(name=launch.name, flops=flops or 0.0 if peak else 0.0, bytes=moved, seconds=seconds), roof)
    by = (
        f"{show_bytes(moved)} at {bandwidth / 1e9:,.0f} GB/s"
        if placed.bound == "bandwidth-bound"
        else "its float32 operations"
    )
    return f"The floor of {by} on {gpu.names[0]} is {show_time(placed.floor_seconds)}, {percent(placed.share_of_roof or 0)} of the time."
