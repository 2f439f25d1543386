"""What warps wait for, and what shortens each kind of waiting."""

from __future__ import annotations

from loadpath.core.facts.profile import KernelProfile
from loadpath.core.report import Remedy
from loadpath.diagnosis.profile.words import percent
from loadpath.readers.profile.ncu_metrics import STALL_NAMES

LEAST = 0.3
"""Share of the cycles between two instructions of a warp from which on a stall is worth a change."""
_REMEDIES = {
    "long_scoreboard": "Have more loads in flight: unroll so that several are independent, load 16 bytes a thread, or fetch "
    "ahead with cp.async / TMA into shared memory",
    "short_scoreboard": "Fewer trips to shared memory: keep values in registers, use wider accesses, take out bank conflicts",
    "barrier": "Less imbalance between barriers: smaller blocks, or warps that wait for each other only where they share data",
    "mio_throttle": "Fewer shared-memory and special-function instructions: wider accesses, values in registers",
    "lg_throttle": "Fewer, wider accesses to global and local memory (16 bytes a thread); no spilled registers",
    "math_pipe_throttle": "The math pipe is full: a narrower format, tensor cores, or fewer operations",
    "wait": "More independent instructions between dependent ones: unroll, or more warps",
    "no_instruction": "Shorter code in the hot loop: less unrolling, so that it fits the instruction cache",
}


def _greatest(launch: KernelProfile) -> tuple[str, float, float] | None:
    """The stall that takes the most cycles, those cycles, and their share of all between two instructions."""
    if not launch.stalls:
        return None
    reason = max(launch.stalls, key=lambda name: launch.stalls[name])
    total = launch.figures.get("issue_cycles") or sum(launch.stalls.values())
    return (reason, launch.stalls[reason], launch.stalls[reason] / total) if total else None


def greatest_stall(launch: KernelProfile) -> str | None:
    """ "A warp waits 8.1 of 12.4 cycles between two instructions for data from global memory (long scoreboard)." """
    found = _greatest(launch)
    if found is None:
        return None
    reason, cycles, share = found
    return f"Warps wait most for {STALL_NAMES[reason]}: {cycles:.3g} cycles between two instructions, {percent(share)}."


def stall_remedies(launch: KernelProfile) -> list[Remedy]:
    found = _greatest(launch)
    if found is None or found[2] < LEAST or found[0] not in _REMEDIES:
        return []
    return [Remedy(_REMEDIES[found[0]], "", f"shortens what takes {percent(found[2])} of a warp's cycles")]
