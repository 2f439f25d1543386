"""Out of memory that PyTorch's allocator did not report: TurboMind, TensorRT-LLM, CUDA's libraries, the host."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.engine import KvPool
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.gpu import GpuState
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, show_bytes
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.memory import oom_remedies as fixes
from loadpath.diagnosis.memory import oom_words
from loadpath.diagnosis.memory.fits import SHARES, TENSOR, engine_of, fit_of, named_model, number
from loadpath.diagnosis.rule import finding, row_remedies
from loadpath.knowledge.tables import findings

LIBRARIES = {"cublas": "cuBLAS", "cudnn": "cuDNN", "cusolver": "cuSOLVER", "cusparse": "cuSPARSE", "cufft": "cuFFT"}
LOW_RATIO = 0.3  # of the free memory: a pool so small leaves room enough
LARGE = 30 * GIB  # weights from here on are more than a card of 40 GB leaves room beside


def host(case: Case, ooms: list[OutOfMemory]) -> Finding:
    fact = ooms[0]
    pinned = fact.kind == "pinned"
    size = show_bytes(fact.requested_bytes) if fact.requested_bytes else ""
    values = {"what": f"a pinned (locked) buffer of {size}".removesuffix(" of ") if pinned else size or "a buffer"}
    if pinned:
        values["pinned"] = (
            "Pinned memory cannot be swapped and counts against the locked-memory limit; CUDA reports its want of host "
            "memory as its own out of memory."
        )
        values["memlock"] = "--ulimit memlock=-1"
    return finding("host-memory-refused", ooms, case=case, values=values, certainty="likely" if pinned else None)


def turbomind(case: Case, ooms: list[OutOfMemory]) -> Finding:
    """LMDeploy's C++ engine prints no figures; the model's name tells whether the weights alone explain it."""
    named = named_model(case)
    values: dict[str, str] = {}
    step: FindingStep | None = None
    loading = any(o.phase == "weights" for o in ooms)
    large = loading or (named is not None and named.weight_bytes > LARGE)
    ratio = number(case, "cache-max-entry-count")
    if named is not None:
        values["model"] = (
            f"By the model's name, {named.parameters / 1e9:g}B parameters at {named.stored_bits} bits take about "
            f"{named.weight_bytes / GIB:.0f} GiB of weights"
        )
    if any(o.phase == "kv-pool" for o in ooms):
        step = "kv-pool"
    if large:
        step = "weight-load"
        values["pool"] = (
            "That fills most of a single card before the KV cache; cache_max_entry_count is only a share of what is "
            "left, so changing it alone cannot create the room."
        )
    elif ratio is not None and ratio <= LOW_RATIO:
        values["pool"] = (
            f"cache_max_entry_count is {ratio:g} already, so the pool is not what fills the card: run-time buffers "
            "(batch x session length) or another process are."
        )
    else:
        values["pool"] = (
            "The KV pool takes cache_max_entry_count (default 0.8) of the memory that is free after loading, which "
            "leaves little for a batch's run-time buffers."
        )
    cards = _unused_cards(case)
    if cards:
        values["tensor"] = (
            f"{cards} GPUs are visible and no --tp is given: the default is 1, so everything goes to one card."
        )
    quantised = named is not None and named.stored_bits <= 4
    remedies = _turbomind_remedies(large, ratio, cards or 2, quantised)
    return finding("turbomind-oom", ooms, case=case, values=values, step=step, remedies=remedies)


def _unused_cards(case: Case) -> int:
    """GPUs that are visible beside the one that an engine without tensor parallelism uses; 0 where it is set."""
    if case.setting(*TENSOR) is not None:
        return 0
    listed = case.setting("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") or ""
    visible = len([entry for entry in listed.split(",") if entry.strip()])
    indices = {s.index for s in case.all(GpuState) if s.index is not None}
    cards = visible if visible > 1 else len(indices) if not listed else 0
    return 1 << (cards.bit_length() - 1) if cards > 1 else 0


def _turbomind_remedies(large: bool, ratio: float | None, ranks: int, quantised: bool) -> tuple[Remedy, ...]:
    tensor = Remedy(
        f"Split the model over {ranks} GPUs", f"--tp {ranks} / TurbomindEngineConfig(tp={ranks})",
        f"each holds 1/{ranks} of the weights",
    )  # fmt: skip
    awq = Remedy(
        "Serve the 4-bit (AWQ) checkpoint, or a smaller model", "model_format='awq'", "weights about 0.28 of 16 bits"
    )
    if quantised:
        awq = Remedy("Serve a smaller model: this one is stored in 4 bits already")
    now = 0.8 if ratio is None else ratio
    to = round(now / 2, 2)
    share = Remedy(
        f"Lower cache_max_entry_count from {now:g} to {to:g}", f"--cache-max-entry-count {to:g}",
        f"leaves {100 * (1 - to):.0f} % of the free memory for run-time buffers instead of {100 * (1 - now):.0f} %",
    )  # fmt: skip
    batch = Remedy(
        "Smaller batches and sessions", "--max-batch-size 4 --session-len 4096", "fewer run-time buffers at once"
    )
    if large:
        return (tensor, awq, batch)
    return (batch, awq, tensor) if ratio is not None and ratio <= LOW_RATIO else (share, batch, awq, tensor)


def tensorrt(case: Case, ooms: list[OutOfMemory]) -> Finding:
    fact = ooms[0]
    values = {
        "asked": show_bytes(fact.requested_bytes) if fact.requested_bytes else "",
        "model": "", "fraction": case.setting("kv-cache-free-gpu-memory-fraction") or "",
    }  # fmt: skip
    row = findings()["tensorrt-oom"]
    buffers, serving, loading = row_remedies(row, values)
    if oom_words.says(case, ooms[-1], "executioncontext"):
        values["doing"] = (
            "It was the execution context's activation memory, which grows with the engine's maximum batch and length."
        )
        return finding("tensorrt-oom", ooms, case=case, values=values, remedies=(buffers, loading, serving))
    pools = [p.bytes for p in case.all(KvPool) if p.bytes and p.span.first_line < fact.span.first_line]
    if pools:
        values["doing"] = (
            f"The KV cache ({show_bytes(pools[-1])}) had been allocated; what its fraction leaves was too little for the rest."
        )
        return finding(
            "tensorrt-oom", ooms, case=case, values=values, step="kv-pool", remedies=(serving, buffers, loading)
        )
    if oom_words.says(case, fact, "forwardasync", "error in forward", "process_request", "enqueue"):
        values["doing"] = "It failed while requests were running, after the start."
        return finding(
            "tensorrt-oom", ooms, case=case, values=values, step="serving", remedies=(serving, buffers, loading)
        )
    if oom_words.says(
        case, fact, "failed to initialize executor", "failed to create instance", "deserializ", "loaded engine size"
    ):
        values["doing"] = "It failed while the engine was being created."
        return finding("tensorrt-oom", ooms, case=case, values=values, remedies=(loading, buffers, serving))
    return finding("tensorrt-oom", ooms, case=case, values=values)


def library(case: Case, fact: OutOfMemory) -> Finding:
    share = number(case, *SHARES)
    values = {"library": LIBRARIES.get(fact.allocator, fact.allocator), "share": f"{share:g}" if share else ""}
    remedies = fixes.serving(engine_of(case, fact), fit_of(case, fact), case, fact)[:3]
    return finding("gpu-oom-library", [fact], case=case, values=values, remedies=remedies)
