"""Metrics of Nsight Compute, by their names in the details and in the raw page → figures in plain units.

Percentages become shares of one, times seconds, sizes bytes (the tool's K, M and G are powers of ten), rates per second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

_DETAILS = {
    "duration": "seconds", "compute (sm) throughput": "compute", "sm [%]": "compute", "dram throughput": "dram",
    "l1/tex cache throughput": "l1", "l2 cache throughput": "l2", "l1/tex hit rate": "l1_hit", "l2 hit rate": "l2_hit",
    "theoretical occupancy": "occupancy_theoretical", "achieved occupancy": "occupancy_achieved",
    "block limit sm": "limit_blocks", "block limit registers": "limit_registers", "block limit shared mem": "limit_shared",
    "block limit warps": "limit_warps", "block limit barriers": "limit_barriers", "registers per thread": "registers",
    "static shared memory per block": "shared_static", "dynamic shared memory per block": "shared_dynamic",
    "driver shared memory per block": "shared_driver", "waves per sm": "waves", "# sms": "sms",
    "no eligible": "no_eligible", "warp cycles per issued instruction": "issue_cycles",
    "avg. active threads per warp": "threads_per_warp", "mem busy": "mem_busy", "max bandwidth": "mem_bandwidth",
    "local memory spilling requests": "spills", "block size": "threads", "grid size": "blocks",
}  # fmt: skip
_RAW = {
    "gpu__time_duration.sum": "seconds",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "dram__bytes.sum": "dram_bytes",
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_written",
    "dram__bytes.sum.per_second": "dram_rate",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "l1",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2",
    "l1tex__t_sector_hit_rate.pct": "l1_hit",
    "lts__t_sector_hit_rate.pct": "l2_hit",
    "sm__maximum_warps_per_active_cycle_pct": "occupancy_theoretical",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_achieved",
    "launch__occupancy_limit_blocks": "limit_blocks",
    "launch__occupancy_limit_registers": "limit_registers",
    "launch__occupancy_limit_shared_mem": "limit_shared",
    "launch__occupancy_limit_warps": "limit_warps",
    "launch__occupancy_limit_barriers": "limit_barriers",
    "launch__registers_per_thread": "registers",
    "launch__shared_mem_per_block_static": "shared_static",
    "launch__shared_mem_per_block_dynamic": "shared_dynamic",
    "launch__shared_mem_per_block_driver": "shared_driver",
    "launch__waves_per_multiprocessor": "waves",
    "launch__block_size": "threads",
    "launch__grid_size": "blocks",
    "device__attribute_multiprocessor_count": "sms",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads_per_warp",
    "smsp__issue_inst0.avg.pct_of_peak_sustained_active": "no_eligible",
    "smsp__average_warp_latency_per_inst_issued.ratio": "issue_cycles",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": "load_efficiency",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": "store_efficiency",
    "sm__inst_executed_pipe_tensor.sum": "tensor_instructions",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": "tensor",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor",
}
_SECTORS = re.compile(r"^l1tex__t_(sectors|requests)_pipe_lsu_mem_global_op_(ld|st)\.sum$")
_RATIO = re.compile(r"^l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_(ld|st)\.ratio$")
_BANKS = re.compile(r"^l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_(ld|st)\.sum$")
_WAVES = re.compile(r"^l1tex__data_pipe_lsu_wavefronts_mem_shared_op_(ld|st)\.sum$")
_TENSOR = re.compile(
    r"^sms?p?__(?:inst_executed_pipe_tensor_op_\w+|ops_path_tensor_\w+|inst_executed_pipe_\w*[hi]mma\w*)\.sum$"
)
_TENSOR_SHARE = re.compile(r"^sms?p?__pipe_tensor_op_\w+_cycles_active\.avg\.pct_of_peak_sustained_(?:active|elapsed)$")
_STALL = re.compile(r"^smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio$"
                    r"|^smsp__average_warp_latency_issue_stalled_(\w+)\.ratio$")  # fmt: skip
_FLOPS = re.compile(r"^sms?p?__sass_thread_inst_executed_op_([fdh])(add|mul|fma)_pred_on\.sum$")
_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNIT = re.compile(r"^([numkKMGTP]?)(byte|hz|second|s|inst|sector|request)(?![a-z])(.*)$")
_DECIMAL_COMMA = re.compile(r"^-?\d{1,3}(?:\.\d{3})*,\d{1,2}$|^-?\d+,\d{1,2}$")
_TIMES = re.compile(r"^([num]?)s(?:econd)?$")
STALL_NAMES = {
    "long_scoreboard": "data from global or local memory (long scoreboard)",
    "short_scoreboard": "data from shared memory or special functions (short scoreboard)",
    "barrier": "other warps of its block at a barrier",
    "membar": "a memory barrier",
    "math_pipe_throttle": "a busy math pipe",
    "mio_throttle": "the queue to shared memory and special functions (MIO)",
    "lg_throttle": "the queue to global and local memory (LG)",
    "tex_throttle": "the texture queue",
    "drain": "its stores to leave at the end",
    "imc_miss": "constants that were not cached",
    "no_instruction": "instructions that were not cached",
    "no_instructions": "instructions that were not cached",
    "wait": "a fixed latency of its last instruction",
    "dispatch_stall": "the dispatcher",
    "branch_resolving": "the target of a branch",
    "sleeping": "its own sleep",
    "gmma": "an asynchronous tensor-core product",
}
"""What a warp waits for, by the tool's name of the stall. `selected` and `not_selected` are no stalls."""


def number(text: str) -> float | None:
    """`"13,548,923.25"`, `"12.4"`, and as some locales print it `"9,00"` and `"1.024,50"`; None for `n/a` and text."""
    if _DECIMAL_COMMA.match(text):
        text = text.replace(".", "").replace(",", ".")
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def scale(unit: str) -> float:
    """The factor to plain units: `Gbyte/s` 1e9, `us` and `usecond` 1e-6, `%` 0.01, `byte/block` 1, `cycle/nsecond` 1e9."""
    if unit == "%":
        return 0.01
    top, _, bottom = unit.partition("/")
    over = _TIMES.match(bottom)
    factor = 1.0 / _PREFIX[over[1]] if over else 1.0
    found = _UNIT.match(top) or (_UNIT.match(top[:1] + top[1:].lower()) if top else None)
    return factor * _PREFIX[found[1]] if found else factor


@cache
def figure(name: str, unit: str) -> tuple[str, float] | None:
    """Our name of a metric of either page, and the factor to plain units; None for one that is not looked at."""
    low = name.strip().lower()
    factor = scale(unit.strip())
    if low == "memory throughput":  # the same words for a share of the peak and for a rate
        return ("memory", 0.01) if unit.strip() == "%" else ("dram_rate", factor)
    if ours := _DETAILS.get(low) or _RAW.get(low):
        share = low.endswith((".pct", "_pct")) or "pct_of_peak" in low
        return ours, 0.01 if share else factor
    return _by_pattern(low, factor)


def _by_pattern(name: str, factor: float) -> tuple[str, float] | None:
    if found := _SECTORS.match(name):
        return f"{found[1]}_{found[2]}", factor
    if found := _RATIO.match(name):
        return f"sectors_per_request_{found[1]}", 1.0
    if found := _BANKS.match(name):
        return f"bank_conflicts_{found[1]}", factor
    if found := _WAVES.match(name):
        return f"wavefronts_{found[1]}", factor
    if found := _FLOPS.match(name):
        return f"{found[1]}{found[2]}", factor
    if _TENSOR.match(name):
        return "tensor_some", factor
    return ("tensor_some", 0.01) if _TENSOR_SHARE.match(name) else None


@cache
def stall(name: str) -> str | None:
    """What a warp-state metric counts the waiting for: `long_scoreboard`."""
    found = _STALL.match(name.strip().lower())
    reason = (found[1] or found[2]) if found else None
    return reason if reason in STALL_NAMES else None


def derived(figures: Mapping[str, float]) -> dict[str, float]:
    """`figures` with what follows from them: sectors per request, bytes from rate and time.

    A kind of tensor instruction that ran counts as tensor work; one that did not proves nothing of the other kinds.
    """
    made = dict(figures)
    if some := made.pop("tensor_some", None):
        made["tensor_instructions"] = max(some, made.get("tensor_instructions", 0.0))
    for way in ("ld", "st"):
        sectors, requests = made.pop(f"sectors_{way}", None), made.pop(f"requests_{way}", None)
        if sectors is not None and requests:
            made.setdefault(f"sectors_per_request_{way}", sectors / requests)
    read, written = made.pop("dram_read", None), made.pop("dram_written", None)
    if read is not None and written is not None:
        made.setdefault("dram_bytes", read + written)
    if "dram_bytes" not in made and "dram_rate" in made and "seconds" in made:
        made["dram_bytes"] = made["dram_rate"] * made["seconds"]
    if "dram_rate" not in made and "dram_bytes" in made and made.get("seconds"):
        made["dram_rate"] = made["dram_bytes"] / made["seconds"]
    return made
