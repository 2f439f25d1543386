"""Kernels measured by Nsight Compute: near a roof or waiting, the grid, occupancy, memory access, divergence, tensor cores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from loadpath.core.case import Case
from loadpath.core.facts.profile import KernelProfile
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_bytes, show_time
from loadpath.diagnosis.profile.roofs import floor_words, intensity_words
from loadpath.diagnosis.profile.stalls import greatest_stall, stall_remedies
from loadpath.diagnosis.profile.words import percent
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.sm import WARP, sm_of
from loadpath.planning.occupancy import Kernel, changes, occupancy

NEAR, FAR = 0.8, 0.6
"""Shares of the peak: from the first on a roof is reached, below the second in both the kernel waits (the tool's own bound)."""
LOW_OCCUPANCY, WASTED, CONFLICTS, THREADS = 0.5, 0.6, 0.2, 24.0
MOST_SECTORS = 16.0
"""Sectors of a request with 16 bytes a thread, the widest access: more is never coalesced."""
_PRODUCT = re.compile(r"gemm(?!v)|matmul|conv\w*_fprop|implicit_convolve", re.I)
_BY_NAME = re.compile(r"sm(?:90|10\d|12\d)|[wg]gmma|[xhi]mma|tcgen05|tensorop|[a-z]\d{3,5}gemm|16816|1688|884", re.I)
"""Names of kernels that are made for tensor cores: a counter of 0 is then one that does not count their kind."""
COUNTED_UP_TO = 9.0
"""Compute capability up to (not including) which the counter of the tensor pipe holds every kind of tensor instruction."""
_LIMITS = {
    "limit_registers": "registers", "limit_shared": "shared memory", "limit_warps": "warps", "limit_blocks": "blocks an SM",
    "limit_barriers": "barriers",
}  # fmt: skip
Judge = Callable[[Case, KernelProfile, dict[str, Any]], Finding | None]


def judge(case: Case) -> Iterator[Finding]:
    """The findings on the longest launch of each kernel, the kernels that took the most time first."""
    spent: dict[str, float] = {}
    longest: dict[str, KernelProfile] = {}
    for launch in case.all(KernelProfile):
        seconds = launch.figures.get("seconds", 0.0)
        spent[launch.name] = spent.get(launch.name, 0.0) + seconds
        if launch.name not in longest or seconds > longest[launch.name].figures.get("seconds", 0.0):
            longest[launch.name] = launch
    for name in sorted(longest, key=lambda name: -spent[name]):
        launch = longest[name]
        values = _values(launch)
        for one in _JUDGES:
            if (made := one(case, launch, values)) is not None:
                yield made


def _values(launch: KernelProfile) -> dict[str, Any]:
    figures = launch.figures
    shares = ("memory", "compute", "dram")
    return {
        "kernel": launch.name,
        "took": show_time(figures["seconds"]) if figures.get("seconds") else "one launch",
        **{name: percent(figures[name]) if name in figures else "?" for name in shares},
    }


def _memory(launch: KernelProfile) -> float | None:
    return launch.figures.get("memory", launch.figures.get("dram"))


def _roof(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    memory, compute = _memory(launch), launch.figures.get("compute")
    if memory is None or compute is None or max(memory, compute) < NEAR:
        return None
    dram = launch.figures.get("dram", 0.0)
    of_memory = memory >= compute
    what = ("device memory" if dram >= NEAR else "the caches or shared memory") if of_memory else "the compute units"
    then = {
        "device memory": "Only fewer bytes make it faster: a narrower format, fusion with its neighbours, or more work a byte.",
        "the caches or shared memory": "The path inside the chip is full, not device memory: reuse in registers, wider accesses.",
        "the compute units": "Only fewer or cheaper operations make it faster: a narrower format, or tensor cores if none are used.",
    }[what]
    rate = launch.figures.get("dram_rate")
    told = {
        "what": what, "share": percent(max(memory, compute)), "next": then,
        "rate": f"Device memory moves {rate / 1e9:,.4g} GB/s ({percent(dram)} of the peak)." if rate and dram else None,
        "floor": floor_words(launch), "intensity": intensity_words(launch),
    }  # fmt: skip
    return finding("ncu-near-roof", [launch], case=case, values=values | told, figures=_figures(launch))


def _figures(launch: KernelProfile) -> dict[str, Any]:
    return {"kernel": launch.name, "launch": launch.number, **{k: round(v, 9) for k, v in launch.figures.items()}}


def _waits(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    memory, compute = _memory(launch), launch.figures.get("compute")
    if memory is None or compute is None or max(memory, compute) >= FAR or _grid_is_small(launch):
        return None
    achieved = launch.figures.get("occupancy_achieved")
    told = {
        "stall": greatest_stall(launch),
        "occupancy": None if achieved is None else f"Occupancy is {percent(achieved)}.",
        "grid": _grid_words(launch),
        "floor": floor_words(launch),
    }
    remedies = [*stall_remedies(launch), *_occupancy_remedies(launch)[:2]]
    return finding(
        "ncu-latency-bound", [launch], case=case, values=values | told, remedies=remedies, figures=_figures(launch)
    )


def _grid_words(launch: KernelProfile) -> str | None:
    waves = launch.figures.get("waves")
    if waves is None or launch.blocks is None:
        return None
    tail = f": the last wave is {percent(waves % 1)} full" if 1 < waves < 4 and waves % 1 else ""
    return f"{launch.blocks:,} blocks make {waves:.3g} waves{tail}."


def _grid_is_small(launch: KernelProfile) -> bool:
    """Whether some SMs get no block: what the others do is second to that."""
    return launch.blocks is not None and launch.blocks < launch.figures.get("sms", 0)


def _small_grid(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    if not _grid_is_small(launch) or launch.blocks is None:
        return None
    sms, waves = launch.figures["sms"], launch.figures.get("waves")
    told = {
        "blocks": f"{launch.blocks:,}", "sms": f"{sms:.0f}", "idle": percent(1 - launch.blocks / sms),
        "waves": f"{waves:.2g}" if waves else None, "gain": f"{sms / launch.blocks:.2g}",
    }  # fmt: skip
    return finding("ncu-small-grid", [launch], case=case, values=values | told, figures=_figures(launch))


def _occupied(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    figures = launch.figures
    theoretical, achieved = figures.get("occupancy_theoretical"), figures.get("occupancy_achieved")
    limits = {name: figures[name] for name in _LIMITS if name in figures}
    filled = (_memory(launch) or 0.0) >= NEAR or _grid_is_small(launch)
    if theoretical is None or theoretical > LOW_OCCUPANCY or not limits or filled:
        return None
    least = min(limits.values())
    limiter = " and ".join(_LIMITS[name] for name in limits if limits[name] == least)
    parts = [f"{launch.threads:,} threads" if launch.threads else "", f"{figures['registers']:.0f} registers a thread"
             if "registers" in figures else "", _shared_words(launch)]  # fmt: skip
    told = {
        "theoretical": percent(theoretical), "achieved": percent(achieved) if achieved is not None else None,
        "limiter": limiter, "block": "blocks with " + ", ".join(part for part in parts if part),
        "stall": greatest_stall(launch),
    }  # fmt: skip
    return finding(
        "ncu-occupancy", [launch], case=case, values=values | told, remedies=_occupancy_remedies(launch),
        figures=_figures(launch),
    )  # fmt: skip


def _shared_words(launch: KernelProfile) -> str:
    size = launch.figures.get("shared_static", 0.0) + launch.figures.get("shared_dynamic", 0.0)
    return f"{show_bytes(size)} of shared memory" if size else ""


def _occupancy_remedies(launch: KernelProfile) -> list[Remedy]:
    """What the occupancy calculator says would let in more warps."""
    sm = sm_of(launch.capability) if launch.capability else None
    if sm is None or not launch.threads or "registers" not in launch.figures:
        return []
    kernel = Kernel(
        threads=launch.threads, registers=int(launch.figures["registers"]),
        static_shared_bytes=int(launch.figures.get("shared_static", 0)),
        dynamic_shared_bytes=int(launch.figures.get("shared_dynamic", 0)),
    )  # fmt: skip
    now = occupancy(kernel, sm)
    if now.refused or now.occupancy > LOW_OCCUPANCY:
        return []
    return [
        Remedy(change.action, change.command, f"{change.warps} warps an SM, not {now.warps_per_sm} (computed), if nothing spills",
               figures={"occupancy": change.occupancy})
        for change in changes(kernel, sm)[:3]
    ]  # fmt: skip


def _uncoalesced(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    """By the bytes used of each sector; without that counter only where no access can need so many sectors."""
    for way, words, name in (("ld", "loads", "load_efficiency"), ("st", "stores", "store_efficiency")):
        sectors, used = launch.figures.get(f"sectors_per_request_{way}"), launch.figures.get(name)
        if used is None and sectors is not None and sectors > MOST_SECTORS:
            used = MOST_SECTORS / sectors
            told = "at most " + percent(used)
        elif used is not None and 0 < used < WASTED:
            told = percent(used)
        else:
            continue
        ratio = f"{sectors:.3g} sectors a request (32 threads of 4 bytes need 4)." if sectors else None
        more = {"used": told, "way": words, "ratio": ratio, "gain": f"{1 / used:.2g}"}
        return finding("ncu-uncoalesced", [launch], case=case, values=values | more, figures=_figures(launch))
    return None


def _conflicts(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    for way, words in (("ld", "loads"), ("st", "stores")):
        conflicts, waves = launch.figures.get(f"bank_conflicts_{way}"), launch.figures.get(f"wavefronts_{way}")
        if conflicts and waves and conflicts >= CONFLICTS * waves:
            told = {
                "share": percent(min(1.0, conflicts / waves)), "conflicts": f"{conflicts:,.0f}", "waves": f"{waves:,.0f}",
                "way": words,
            }  # fmt: skip
            return finding("ncu-bank-conflicts", [launch], case=case, values=values | told, figures=_figures(launch))
    return None


def _diverges(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    threads = launch.figures.get("threads_per_warp")
    if threads is None or not 0 < threads < THREADS:
        return None
    told = {"threads": f"{threads:.3g}", "lost": percent(1 - threads / WARP)}
    return finding("ncu-divergence", [launch], case=case, values=values | told, figures=_figures(launch))


def _no_tensor(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    counted = [launch.figures[name] for name in ("tensor_instructions", "tensor") if name in launch.figures]
    if not counted or any(counted) or not _PRODUCT.search(launch.name) or _BY_NAME.search(launch.name):
        return None
    sure = launch.capability and 7.0 <= float(launch.capability) < COUNTED_UP_TO
    return finding(
        "ncu-no-tensor-cores", [launch], case=case, values=values, certainty="established" if sure else "likely",
        figures=_figures(launch),
    )  # fmt: skip


def _spills(case: Case, launch: KernelProfile, values: dict[str, Any]) -> Finding | None:
    spills = launch.figures.get("spills")
    if not spills:
        return None
    registers = launch.figures.get("registers")
    told = {"spills": f"{spills:,.0f}", "registers": f"{registers:.0f}" if registers else None}
    return finding("ncu-spills", [launch], case=case, values=values | told, figures=_figures(launch))


_JUDGES: tuple[Judge, ...] = (
    _roof, _no_tensor, _small_grid, _uncoalesced, _waits, _conflicts, _diverges, _spills, _occupied,
)  # fmt: skip
RULES = (
    Rule(judge, needs=(KernelProfile,), makes=(
        "ncu-near-roof", "ncu-latency-bound", "ncu-small-grid", "ncu-occupancy", "ncu-uncoalesced", "ncu-bank-conflicts",
        "ncu-divergence", "ncu-no-tensor-cores", "ncu-spills",
    )),
)  # fmt: skip
