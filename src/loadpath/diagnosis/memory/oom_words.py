"""What an out-of-memory's figures say, as the sentences that its findings are made of. Pure: facts in, words out."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Progress, RankAssigned
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.gpu import GpuState
from loadpath.core.facts.memory import ProfiledItems, SleepReport
from loadpath.core.units import GIB, show_bytes, show_count
from loadpath.diagnosis.gpu.memory_owners import owners_beside
from loadpath.diagnosis.memory.fits import SHARES, is_multimodal, named_model, number, weights_of
from loadpath.diagnosis.memory.memory_remedies import as_printed
from loadpath.planning.kv import subtracts_graphs
from loadpath.planning.oom import holders, shortage
from loadpath.planning.remedies import Fit

ONE_PIECE = 2 << 30  # bytes: a step's buffers are smaller, unless it makes logits for all its tokens
NOT_OURS = 0.12  # of the card: more than a context takes
NEARLY_ALL = 0.82  # of the card: weights from here on leave no room that settings could share out


def values(case: Case, fact: OutOfMemory, ooms: list[OutOfMemory]) -> dict[str, str]:
    """The values that every row may use: the figures as printed, and what is to be said of them."""
    who = holders(fact)
    figures = {
        "asked": fact.requested_bytes, "free": fact.free_bytes, "total": fact.total_bytes,
        "allocated": fact.allocated_bytes, "own": who.own, "idle": fact.reserved_unallocated_bytes,
        "missing": who.unnamed,
    }  # fmt: skip
    made = {name: as_printed(size) for name, size in figures.items() if size is not None}
    gpus = sorted({o.gpu for o in ooms if o.gpu is not None})
    made["gpu"] = ", ".join(map(str, gpus)) or "0"
    if fact.free_bytes is None and fact.requested_bytes is not None:
        size = f" with {as_printed(fact.total_bytes)}" if fact.total_bytes else ""
        where = f" on GPU {fact.gpu}{size}" if fact.gpu is not None else ""
        made["asked_alone"] = f"{as_printed(fact.requested_bytes)} was asked{where} and refused."
    if len(gpus) > 1:
        made["gpu"] += " (every rank alike)"
    share = number(case, *SHARES)
    if share is not None:
        made["share"] = f"{share:g}"
        if fact.total_bytes:
            made["left_out"] = show_bytes((1 - share) * fact.total_bytes)
    weights_loaded = weights_of(case, fact)
    if weights_loaded and weights_loaded.bytes:
        made["weights"] = show_bytes(weights_loaded.bytes)
    if fact.total_bytes and fact.free_bytes is not None:
        made["full_share"] = f"{100 * (1 - fact.free_bytes / fact.total_bytes):.1f} %"
    made["one_rank"] = _one_rank(case, ooms)
    made["items"] = profiled(case)
    made["owners"] = owners_beside(case)
    made |= _oddities(case, fact)
    return made


def _one_rank(case: Case, ooms: list[OutOfMemory]) -> str:
    """Whether one rank of several ran out alone."""
    ranks = {o.origin.rank for o in ooms if o.origin.rank is not None}
    seen = {r.rank for r in case.all(RankAssigned)} | {f.origin.rank for f in case.facts if f.origin.rank is not None}
    if len(ranks) != 1 or len(seen) < 2:
        return ""
    return f"Only rank {next(iter(ranks))} of {len(seen)} reports it; the others wait for it."


def _oddities(case: Case, fact: OutOfMemory) -> dict[str, str]:
    """What the figures show beside the shortage itself: pieces, own pid, WSL, limits, slices."""
    made: dict[str, str] = {}
    idle, asked, free, total = fact.reserved_unallocated_bytes, fact.requested_bytes, fact.free_bytes, fact.total_bytes
    if idle is not None and shortage(fact) != "fragmented" and (fact.allocated_bytes or 0) > 0:
        made["idle_negligible"] = (
            f"Only {as_printed(idle)} is reserved but unallocated: fragmentation is negligible, allocator settings do "
            "not help."
        )
    if (pid := holders(fact).own_pid) is not None:
        made["own_process"] = (
            f"Process {pid} in the message is this process itself (its pid on the host), not somebody else."
        )
    if total and fact.allocated_bytes and fact.allocated_bytes > total:
        made["oddity"] = "More is allocated than the card has: the driver (WSL, Windows) had moved some to main memory."
    elif (
        fact.limit_bytes
        and total
        and fact.limit_bytes < total
        and ((free or 0) > (asked or 0) or (fact.allocated_bytes or 0) + (asked or 0) > fact.limit_bytes)
    ):
        made["oddity"] = (
            f"PyTorch is limited to {show_bytes(fact.limit_bytes)} of the card (a per-process memory fraction), and "
            "that limit was reached."
        )
    elif asked is not None and free is not None and free > asked and shortage(fact) == "true":
        made["oddity"] = (
            "More was free than was asked: a limit on the process, or memory that came free a moment later."
        )
    elif total and (unnamed := holders(fact).unnamed or 0) > max(GIB, NOT_OURS * total) and not fact.own_bytes:
        made["oddity"] = (
            f"{show_bytes(unnamed)} of the card is neither free nor PyTorch's: contexts, a display, or another process."
        )
    elif (whole := _whole(case, fact)) is not None and total:
        made["oddity"] = (
            f"The process sees {show_bytes(total)} of a card with {show_bytes(whole)}: a MIG slice or vGPU."
        )
    return made


def _whole(case: Case, fact: OutOfMemory) -> int | None:
    """The card's memory by nvidia-smi, where it is much more than what the process sees."""
    states = [s.total_bytes for s in case.all(GpuState) if s.total_bytes and (fact.gpu is None or s.index == fact.gpu)]
    return states[0] if states and fact.total_bytes and states[0] > 1.3 * fact.total_bytes else None


def profiled(case: Case) -> str:
    """What the profiling pass holds of images and the like, in a sentence."""
    items = case.last(ProfiledItems)
    if items is None or items.tokens is None:
        return ""
    parts = ", ".join(f"{show_count(n)} {name}" for name, n in items.items)
    counts = ", ".join(f"{n} {name} items" for name, n in items.counts)
    detail = f" ({parts})" if parts else f" ({counts} of greatest size)" if counts else ""
    return (
        f"The profiling pass holds {show_count(items.tokens)} multimodal tokens at once{detail}: the encoder's "
        "activations for them come on top."
    )


def says(case: Case, fact: Fact, *words: str, back: int = 40) -> bool:
    """Whether one of the lines up to `fact` (in its capture) contains one of `words` (lower case)."""
    capture = case.capture_of(fact)
    lines = capture.lines if capture else ()
    first, last = fact.span.first_line - back, fact.span.last_line
    return any(word in line.text.lower() for word in words for line in lines if first <= line.number <= last)


def weights(case: Case, phase: str, fact: OutOfMemory, known: dict[str, str], engine: str | None) -> dict[str, str]:
    """Loading: what was being done, and why nothing but smaller weights helps."""
    converting = phase == "conversion" or fact.operation in ("FP8 conversion", "weight repacking")
    creating = "layer" in fact.operation
    made = {
        "doing": "converting the weights" if converting
        else "creating the model's layers, before any weight was read" if creating else "loading the weights",
        "useless": "Memory share and context do not help at this step: neither bounds the weights, and no KV cache "
        "exists yet." if engine else "A shorter context or a smaller batch does not help at this step.",
    }  # fmt: skip
    if "idle" not in known:
        made["allocated_alone"] = known.get("allocated", "")
    if fact.operation == "FP8 conversion":
        made["conversion"] = (
            "An FP8 conversion was running: where the checkpoint is 16-bit and quantised at load, its 16-bit weights "
            "are on the GPU first."
        )
    if named := named_model(case):
        size = f"{named.weight_bytes / GIB:.0f} GiB"
        made["model"] = f"{named.parameters / 1e9:g}B parameters at {named.stored_bits} bits take about {size}"
    return made


def capture(case: Case, fact: OutOfMemory, fit: Fit) -> dict[str, str]:
    """How far it came, and where graphs live: outside the budget, or estimated in it (vLLM from 0.20)."""
    made = {"place": _graphs_place(case, fit)}
    bars = [p for p in case.all(Progress) if p.step == "graph-capture" and p.span.first_line <= fact.span.first_line]
    same = [p for p in bars if p.what == bars[-1].what]
    if same and (done := max(p.done for p in same)) < same[-1].total:
        made["reached"] = f"{done} of {same[-1].total} graphs had been captured."
    return made


def _graphs_place(case: Case, fit: Fit) -> str:
    outside = f" ({show_bytes((1 - fit.share) * fit.total_bytes)})" if fit.share and fit.total_bytes else ""
    if subtracts_graphs(case.version):
        return (
            "This version takes an estimate of the graphs out of the KV share; it was too low, and what the share "
            f"leaves free{outside} had to do."
        )
    if case.engine == "sglang":
        return (
            "Weights and KV pool had taken the static share (--mem-fraction-static); graphs live outside it, in what it "
            f"leaves free{outside}."
        )
    return f"The KV cache had taken its share; graphs live outside it, in what the share leaves free{outside}."


def heavy(loaded: int | None, total: int | None) -> str:
    """Weights that fill the card so far that no setting leaves a pass enough; "" where they do not."""
    if not loaded or not total or loaded < NEARLY_ALL * total:
        return ""
    return (
        f"The weights take {show_bytes(loaded)} of {show_bytes(total)} ({100 * loaded / total:.0f} %): what they leave "
        "is too little for the pass. The memory share does not limit weights, and a shorter context does not help."
    )


def sleep(case: Case) -> dict[str, str]:
    report = case.last(SleepReport)
    if report is None or report.still_bytes is None:
        return {}
    return {"freed": show_bytes(report.freed_bytes), "still": show_bytes(report.still_bytes)}


def serving(case: Case, fact: OutOfMemory, engine: str | None) -> dict[str, str]:
    """What made the step larger than the profiled one, as far as settings and frames tell."""
    step = f"this step ({fact.operation})" if fact.operation else "this step"
    made = {"uncovered": f"What {step} needs lies outside the memory that was shared out at the start."}
    if engine is None:
        made["uncovered"] = f"The weights were on the card already; the buffers of {step} come beside them."
        if "logits" in fact.operation or fact.operation == "log-softmax":
            made["spike"] = (
                "Logits take batch x tokens x vocabulary x 4 bytes in one piece: a long prompt or a batch makes them large."
            )
    if engine == "vllm":
        made["uncovered"] = f"The profiled peak did not cover {step}."
    elif engine == "sglang":
        made["uncovered"] = f"SGLang profiles no pass: what --mem-fraction-static leaves over has to cover {step}."
    unchunked = case.setting("no-enable-chunked-prefill") is not None
    if unchunked or (case.setting("enable-chunked-prefill") or "").lower() == "false":
        made["prefill"] = (
            "Chunked prefill is off, so a long prompt runs in one step and needs buffers for all its tokens."
        )
    if fact.operation == "prompt logprobs":
        made["spike"] = (
            "Prompt log-probabilities need a row over the whole vocabulary for every prompt token of the step."
        )
    elif fact.operation == "vision encoder" or is_multimodal(case):
        made["spike"] = "Images add the vision encoder's own spikes, which grow with their size."
    elif engine in ("vllm", "sglang") and (fact.requested_bytes or 0) >= ONE_PIECE:
        made["spike"] = (
            "So much in one piece is typical of logits over the whole vocabulary for every prompt token (prompt_logprobs, "
            "echo) or of a long prompt in one step."
        )
    return made


def unknown(case: Case, fact: OutOfMemory) -> dict[str, str]:
    made = {}
    if fact.cut:
        made["cut"] = "The message is cut off: its rest tells how much was free and who holds the card."
    made |= {"unknown_step": "Nothing here tells in which step it happened, and that decides what helps."}
    if fact.allocator == "nccl":
        made["unknown_step"] = ""
        made["no_figures"] = (
            "NCCL asked CUDA for its buffers (some hundred MiB on each GPU) and got none: the card was full before, by another "
            "process, by several ranks on one GPU, or by a memory share that leaves nothing outside."
        )
    elif fact.requested_bytes is None and fact.allocator == "cuda":
        made["no_figures"] = (
            "This is CUDA's own error and carries no figures: something outside PyTorch's pool asked (a context, a library, a graph), "
            "which fails when the card is full already, by this process or by another."
        )
    elif fact.requested_bytes is None:
        made["no_figures"] = (
            "The message carries no figures, so whether the card was full, or shared with others, is not known."
        )
    share, own = number(case, *SHARES), holders(fact).own
    if share and own and fact.total_bytes and own > share * fact.total_bytes:
        made["budget_spent"] = (
            f"That is more than the memory share of {share:g} allows ({show_bytes(share * fact.total_bytes)}): the "
            "share leaves too little for what runs outside the budget."
        )
    return made
