"""GPU memory that was not free when the engine needed it: another process, an earlier stage, the wrong GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import FreeBelowDesired, MemoryChangedWhileProfiling, OutOfMemory
from loadpath.core.facts.gpu import GpuState
from loadpath.core.facts.memory import BrokenOff, MemoryUnbalanced
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, show_bytes
from loadpath.diagnosis.gpu.memory_owners import free_beside, owners_beside
from loadpath.diagnosis.memory.fits import engine_of
from loadpath.diagnosis.memory.oom_words import says
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.planning.oom import shortage

CONTEXTS_OF_OTHERS = 3 * GIB  # contexts and communication buffers of other ranks explain up to so much
NEARLY = 0.03  # of the GPU: so little missing is easier given up than freed
WORTH_SHARING = 0.15  # of the GPU: less free than this is no place for a server
GB10 = (117 * GIB, 124 * GIB)  # total memory of DGX Spark and its kin; no card of its own has that size
# Frames of a draft model's worker: the target model and its pools are on the cards by then.
DRAFT = (
    "eagleworker",
    "eagle_worker",
    "draft_worker",
    "draft_model_runner",
    "nextn",
    "multi_layer_eagle",
    "speculative/",
)
FULL, EMPTY = 0.85, 0.05  # used share of a GPU that counts as full, as empty


def judge_free(case: Case) -> Iterator[Finding]:
    facts = case.all(FreeBelowDesired)
    fact = min(facts, key=lambda f: f.free_bytes)
    engine = engine_of(case, fact) or "vllm"
    total, want = fact.total_bytes, fact.desired_bytes
    held = total - fact.free_bytes if total else None
    small = held is not None and held <= CONTEXTS_OF_OTHERS
    values = {
        "free": show_gib(fact.free_bytes),
        "total": show_gib(total) if total else "",
        "want": show_gib(want) if want else "its share",
        "share": f"{fact.utilisation:g}" if fact.utilisation else "",
        "short": show_gib(want - fact.free_bytes) if want else "",
        "held": show_gib(held) if held else "",
        "owners": owners_beside(case),
        "who": (
            "contexts of other processes or ranks on this GPU, or a display" if small
            else "another process, an engine that has not ended, or an earlier stage of the same launcher"
        ),
        "unified": _unified(case, total),
        "siblings": (
            "The launcher starts several engines (stages) on the same visible GPUs: each needs its own device or its own share."
            if case.setting("omni") is not None else ""
        ),
    }  # fmt: skip
    remedies = _free_remedies(
        engine, fact, held, small, bool(values["siblings"]), free_beside(case), bool(values["unified"])
    )
    yield finding(
        "gpu-memory-not-free", facts, case=case, values=values, remedies=remedies,
        figures={"free_bytes": fact.free_bytes, "total_bytes": total, "wanted_bytes": want},
    )  # fmt: skip


def _unified(case: Case, total: int | None) -> str:
    """On boards whose GPU and host share memory, the page cache and every program count as used."""
    shared = any(s.memory == "unified" for s in case.all(GpuState)) or (total is not None and GB10[0] < total < GB10[1])
    if not shared:
        return ""
    return "On this board (by its memory size a GB10) GPU and host share memory: page cache and other programs count as used."


def _free_remedies(
    engine: str, fact: FreeBelowDesired, held: int | None, small: bool, stages: bool, empty: str, unified: bool
) -> tuple[Remedy, ...]:
    free_up = Remedy(
        f"Stop the process that holds {show_bytes(held)} on this GPU (or wait until it has ended), then start again" if held
        else "Stop the process that holds memory on this GPU, then start again",
        effect="the share asked for is then free",
    )  # fmt: skip
    elsewhere = Remedy("Start on a GPU that is empty", f"CUDA_VISIBLE_DEVICES={empty or '<empty GPU>'}")
    stage = Remedy(
        "Give each stage its own device, or shares that add up to less than 1, in the stage configuration",
        "devices: \"0\" / \"1\", gpu_memory_utilization: 0.4 per stage",
    )  # fmt: skip
    lower = None
    if fact.total_bytes and fact.free_bytes / fact.total_bytes >= WORTH_SHARING:
        share = math.floor(100 * fact.free_bytes / fact.total_bytes) / 100
        budget = share * fact.total_bytes
        lower = Remedy(
            f"Ask for no more than what is free: a memory share of {share:g}", flag(engine, "memory-share", share),
            f"budget {show_bytes(budget)}; weights and KV cache must fit in it", {"budget_bytes": int(budget)},
        )  # fmt: skip
    if unified:
        cache = Remedy("Give the page cache back to the system first", "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
                       "file pages of the download or of an earlier load are then free")  # fmt: skip
        return tuple(r for r in (lower, cache, free_up) if r is not None)
    nearly = (
        fact.desired_bytes is not None
        and fact.total_bytes is not None
        and (fact.desired_bytes - fact.free_bytes <= NEARLY * fact.total_bytes)
    )
    listed = [lower, free_up, elsewhere] if small or nearly else [stage if stages else None, free_up, elsewhere, lower]
    return tuple(r for r in listed if r is not None)


def judge_changed(case: Case) -> Iterator[Finding]:
    facts = case.all(MemoryChangedWhileProfiling)
    fact = next((f for f in facts if f.current_bytes is not None), facts[0])
    values = {"measure": fact.measure.capitalize(), "moved": "released"}
    if fact.initial_bytes is not None and fact.current_bytes is not None:
        grew = fact.current_bytes > fact.initial_bytes
        released = grew == (fact.measure == "free")
        values |= {
            "first": show_bytes(fact.initial_bytes), "now": show_bytes(fact.current_bytes),
            "difference": show_bytes(abs(fact.current_bytes - fact.initial_bytes)),
            "direction": "more" if grew else "less", "moved": "released" if released else "took",
        }  # fmt: skip
    yield finding("gpu-memory-changed-while-profiling", facts, case=case, values=values)


def judge_unbalanced(case: Case) -> Iterator[Finding]:
    facts = case.all(MemoryUnbalanced)
    fact = facts[0]
    values = {
        "least": show_bytes(fact.least_bytes) if fact.least_bytes is not None else "",
        "local": show_bytes(fact.local_bytes) if fact.local_bytes is not None else "",
    }
    draft = says(case, fact, *DRAFT)
    values["why"] = (
        "It is raised while the draft (speculative) worker starts: by then the target model and its pools are on the cards "
        "and fill them unevenly. That another process is there, as the message suspects, is not shown."
        if draft else
        "The message only compares figures: likely another process (an older server that has not ended) holds memory on "
        "that GPU; contexts that all ranks opened on one card look the same."
    )  # fmt: skip
    warned = "warn" in fact.text.lower()
    yield finding(
        "gpu-memory-unbalanced", facts, case=case, values=values, severity="warning" if warned else None,
        certainty=None if draft else "likely", boundary="framework-engine" if draft else "memory-fit",
        remedies=_unbalanced_remedies(draft),
    )  # fmt: skip


def _unbalanced_remedies(draft: bool) -> tuple[Remedy, ...]:
    skip = Remedy(
        "Skip the check, if nvidia-smi shows no other process on the fuller GPU",
        "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1 (from 0.5.7: SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0)",
        "the start goes on with the smallest pool of the group",
    )
    leave = "CUDA_VISIBLE_DEVICES=<free GPUs>"
    if draft:
        return (
            skip,
            Remedy("Update SGLang: later releases do not stop here for a draft worker", "pip install -U sglang"),
            Remedy("If nvidia-smi does show another process there: end it if it is a left-over, or leave the GPU out", leave),
        )  # fmt: skip
    return (
        Remedy("End the process that holds memory on that GPU if it is a left-over, or leave the GPU out", leave),
        skip,
    )


def judge_wrong_gpu(case: Case) -> Iterator[Finding]:
    """A model that was being loaded, a full default GPU and an empty one beside it."""
    states = {
        s.index: s for s in case.all(GpuState) if s.index is not None and s.used_bytes is not None and s.total_bytes
    }
    first = states.get(0)
    ooms = [o for o in case.all(OutOfMemory) if o.gpu in (0, None)]
    if ooms and not any(shortage(o) in ("other-process", "unseen-holder") for o in ooms):
        return  # what fills the GPU is the engine itself
    loading = [b for b in case.all(BrokenOff) if b.phase in ("weights", "context", "")]
    if first is None or not (ooms or loading) or _used(first) < FULL:
        return
    empty = next((s for i, s in sorted(states.items(), key=lambda e: e[0] or 0) if i and _used(s) <= EMPTY), None)
    if empty is None or case.setting("CUDA_VISIBLE_DEVICES") not in (None, "0", "0,1"):
        return
    values = {
        "full": "0", "empty": str(empty.index), "used": show_mib(first.used_bytes), "total": show_mib(first.total_bytes),
        "idle": show_mib(empty.used_bytes),
        "message": "" if ooms else "The exception itself is not in this input; out of memory is what to expect there.",
    }  # fmt: skip
    yield finding("engine-on-occupied-gpu", [*(ooms or loading)[:2], first, empty], case=case, values=values)


def _used(state: GpuState) -> float:
    return (state.used_bytes or 0) / (state.total_bytes or 1)


def show_gib(size: float) -> str:
    """GiB with two decimals whatever the size, as the message prints them: `0.49 GiB`."""
    return f"{size / GIB:.2f} GiB"


def show_mib(size: int | None) -> str:
    """nvidia-smi's own unit: `89,079 MiB`."""
    return f"{(size or 0) / (1 << 20):,.0f} MiB"


RULES = (
    Rule(judge_free, (FreeBelowDesired,), ("gpu-memory-not-free",)),
    Rule(judge_changed, (MemoryChangedWhileProfiling,), ("gpu-memory-changed-while-profiling",)),
    Rule(judge_unbalanced, (MemoryUnbalanced,), ("gpu-memory-unbalanced",)),
    Rule(judge_wrong_gpu, (GpuState,), ("engine-on-occupied-gpu",), (OutOfMemory, BrokenOff)),
)
