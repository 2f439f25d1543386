"""Out of memory: in which step, who holds the card, whether the pool is in pieces; each with its own remedies."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import MemoryBreakdown, ServerReady, WeightsLoaded
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.memory import BrokenOff, ProfiledItems, SleepReport, WarmUpShortage
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, show_bytes, show_count
from loadpath.core.vocabulary import Certainty, FindingStep
from loadpath.diagnosis import oom_remedies as fixes
from loadpath.diagnosis.fits import SHARES, fit_of, model_name, named_model, number, weights_of
from loadpath.diagnosis.kv_cache import engine_of
from loadpath.diagnosis.ladder import step_at
from loadpath.diagnosis.memory_remedies import as_printed
from loadpath.diagnosis.rule import Rule, finding
from loadpath.planning.oom import holders, shortage

_OF_STEP = {
    "weight-load": "weights", "memory-profiling": "profiling", "kv-pool": "kv-pool", "graph-capture": "graph-capture",
    "warm-up": "sampler-warm-up", "http-server": "serving", "serving": "serving",
}  # fmt: skip
_STEPS: dict[str, FindingStep] = {
    "weights": "weight-load", "conversion": "weight-load", "profiling": "memory-profiling", "kv-pool": "kv-pool",
    "graph-capture": "graph-capture", "sampler-warm-up": "warm-up", "serving": "serving", "wake-up": "serving",
    "training-forward": "serving", "training-backward": "serving", "optimizer-step": "serving",
}  # fmt: skip
FILLED = 0.99  # of the card in live allocations, before any engine would have left so little for the rest
NEARLY = 0.8  # of the card: weights that take so much leave nothing useful


def judge_oom(case: Case) -> Iterator[Finding]:
    ooms = [o for o in case.all(OutOfMemory) if o.allocator not in ("llama.cpp", "ggml")]
    if not ooms:
        return
    host = [o for o in ooms if o.kind in ("host", "pinned")]
    if host:
        yield _host(case, host)
    ooms = [o for o in ooms if o not in host]
    if not ooms:
        return
    # The fullest message of the first event; repeats by other ranks and by parent processes are evidence.
    fact = max(
        ooms,
        key=lambda o: (o.requested_bytes is not None, bool(o.phase), o.allocated_bytes is not None, -o.span.first_line),
    )
    if case.has(WarmUpShortage):
        return
    if fact.allocator == "turbomind":
        yield _turbomind(case, ooms)
    elif fact.allocator in ("cublas", "cudnn", "cusolver", "cusparse", "cufft"):
        yield _library(case, fact)
    else:
        yield _judge_gpu(case, fact, ooms)


def phase_in(case: Case, fact: OutOfMemory) -> tuple[str, Certainty]:
    """What was going on, and how sure that is: by frames, by the ladder, by what the figures leave possible."""
    if fact.phase:
        return fact.phase, "established"
    if fact.allocator == "cumem" and case.has(SleepReport):
        return "wake-up", "likely"
    if phase := _OF_STEP.get(step_at(case, fact), ""):
        return phase, "established"
    if case.has(ServerReady):
        return "serving", "likely"
    if fact.private_pool_bytes:
        return "serving", "likely"  # graphs exist, so the start was over
    engine = engine_of(case, fact)
    if engine in ("vllm", "sglang") and fact.total_bytes and (fact.allocated_bytes or 0) >= FILLED * fact.total_bytes:
        return "weights", "likely"
    named, share = named_model(case), number(case, *SHARES)
    own = holders(fact).own
    if named and share and own and fact.total_bytes and own > share * fact.total_bytes > 1.3 * named.weight_bytes:
        return "serving", "likely"  # the pool must have been there: the weights alone come nowhere near
    return "", "possible"


def _judge_gpu(case: Case, fact: OutOfMemory, ooms: list[OutOfMemory]) -> Finding:
    phase, certainty = phase_in(case, fact)
    kind = shortage(fact)
    values = _values(case, fact, ooms)
    engine = engine_of(case, fact)
    step = _step(case, fact, phase, certainty)
    if kind == "other-process":
        return _other(case, fact, ooms, values, step, engine)
    if kind == "unseen-holder":
        return finding("gpu-oom-unseen-holder", ooms, case=case, values=values, step=step)
    if kind == "fragmented":
        extra = fixes.smaller_step(engine, case, phase)[:1]
        made = finding("gpu-oom-fragmented", ooms, case=case, values=values, step=step)
        return _with(made, (*made.remedies[:1], *extra, *made.remedies[1:]))
    row, remedies = _by_phase(case, phase, fact, values, engine)
    sure: Certainty = certainty if row != "gpu-oom" else "established"
    return finding(
        row, [*case.all(ProfiledItems)[:1], *ooms], case=case, values=values, remedies=remedies or None, certainty=sure, step=step,
        figures={"requested_bytes": fact.requested_bytes, "free_bytes": fact.free_bytes, "total_bytes": fact.total_bytes},
    )  # fmt: skip


def _by_phase(
    case: Case, phase: str, fact: OutOfMemory, values: dict[str, str], engine: str | None
) -> tuple[str, tuple[Remedy, ...]]:
    """The row for a true shortage in that phase, with its remedies; fills in the row's own values."""
    fit = fit_of(case, fact)
    if phase in ("weights", "conversion"):
        _weights_values(case, phase, fact, values, engine)
        return "gpu-oom-weights", fixes.weights(engine, fit, case, phase, fact)
    if phase == "profiling":
        return "gpu-oom-profiling", fixes.profiling(engine, case)
    if phase == "graph-capture":
        return "gpu-oom-graph-capture", fixes.capture(engine, fit)
    if phase == "sampler-warm-up":
        values |= {"what": "sampler", "requests": "max_num_seqs"}
        return "gpu-oom-sampler-warm-up", fixes.sampler(engine, fit, None)
    if phase == "kv-pool":
        return "gpu-oom-kv-pool", fixes.pool(engine, fit)
    if phase == "wake-up":
        return "gpu-oom-wake-up", ()
    if phase.startswith("training") or phase == "optimizer-step":
        _training_values(phase, fact, values)
        return "gpu-oom-training", fixes.training(phase, fact)
    if phase == "serving":
        _serving_values(case, fact, values)
        return "gpu-oom-serving", fixes.serving(engine, fit, case, fact)
    _unknown_values(fact, values)
    return "gpu-oom", fixes.unknown(engine, fit, case)


def _values(case: Case, fact: OutOfMemory, ooms: list[OutOfMemory]) -> dict[str, str]:
    who = holders(fact)
    figures = {
        "asked": fact.requested_bytes, "free": fact.free_bytes, "total": fact.total_bytes, "allocated": fact.allocated_bytes,
        "own": who.own, "idle": fact.reserved_unallocated_bytes, "missing": who.unnamed,
    }  # fmt: skip
    values = {name: as_printed(size) for name, size in figures.items() if size is not None}
    gpus = sorted({o.gpu for o in ooms if o.gpu is not None})
    values["gpu"] = ", ".join(map(str, gpus)) or "0"
    if len(ooms) > 1 and len(gpus) > 1:
        values["gpu"] += " (every rank alike)"
    idle, asked = fact.reserved_unallocated_bytes, fact.requested_bytes
    if idle is not None and (asked is None or idle < asked or shortage(fact) == "true"):
        values["idle_negligible"] = (
            f"Only {as_printed(idle)} is reserved but unallocated: fragmentation is negligible, allocator settings do not help."
        )
    share = number(case, *SHARES)
    if share is not None and fact.total_bytes:
        values["left_out"] = as_printed((1 - share) * fact.total_bytes)
    if share is not None:
        values["share"] = f"{share:g}"
    weights = weights_of(case, fact)
    if weights and weights.bytes:
        values["weights"] = as_printed(weights.bytes)
    values["items"] = profiled(case)
    values["step"] = f"this step ({fact.operation})" if fact.operation else "this step"
    if fact.total_bytes and fact.free_bytes is not None:
        values["full_share"] = f"{100 * (1 - fact.free_bytes / fact.total_bytes):.1f} %"
    return values


def profiled(case: Case) -> str:
    """What the profiling pass holds of images and the like, in a sentence."""
    items = case.last(ProfiledItems)
    if items is None or items.tokens is None:
        return ""
    parts = ", ".join(f"{show_count(n)} {name}" for name, n in items.items)
    counts = ", ".join(f"{n} {name} items" for name, n in items.counts)
    detail = f" ({parts})" if parts else f" ({counts} of greatest size)" if counts else ""
    return f"The profiling pass holds {show_count(items.tokens)} multimodal tokens at once{detail}: the encoder's activations for them come on top."


def _weights_values(case: Case, phase: str, fact: OutOfMemory, values: dict[str, str], engine: str | None) -> None:
    values["doing"] = "converting the weights" if phase == "conversion" or fact.operation in ("FP8 conversion", "weight repacking") else (
        "the layers were being created, before any weight was read" if fact.operation == "layer creation" or "make_layers" in fact.text
        else "loading the weights"
    )  # fmt: skip
    if values.get("doing") == "loading the weights" and fact.cut and fact.operation == "feed-forward layer":
        values["doing"] = "creating the model's layers, before any weight was read"
    if "idle" not in values:
        values["allocated_alone"] = values.get("allocated", "")
    if fact.operation == "FP8 conversion":
        values["conversion"] = (
            "An FP8 conversion was running: where the checkpoint is 16-bit and quantised at load, its 16-bit weights are on the GPU first."
        )
    if named := named_model(case):
        values["model"] = (
            f"{named.parameters / 1e9:g}B parameters at {named.stored_bits} bits take about {named.weight_bytes / GIB:.0f} GiB"
        )
    values["useless"] = (
        "Memory share and context do not help at this step: neither bounds the weights, and no KV cache exists yet."
    )


def _serving_values(case: Case, fact: OutOfMemory, values: dict[str, str]) -> None:
    if case.setting("no-enable-chunked-prefill") is not None or case.setting("enable-chunked-prefill") in (
        "False",
        "false",
    ):
        values["prefill"] = (
            "Chunked prefill is off, so a long prompt runs in one step and needs buffers for all its tokens at once."
        )
    name = (model_name(case) or "").lower()
    if fact.operation == "vision encoder" or "-vl" in name or "vision" in name:
        values["eager"] = "Images add the vision encoder's own spikes, which grow with their size."
    if fact.operation == "prompt logprobs":
        values["eager"] = (
            "Prompt log-probabilities need a row over the whole vocabulary for every prompt token of the step."
        )


def _training_values(phase: str, fact: OutOfMemory, values: dict[str, str]) -> None:
    where = {
        "training-forward": "the forward pass",
        "training-backward": "the backward pass",
        "optimizer-step": "the optimizer step",
    }
    place = where.get(phase, "the step")
    values["where"] = f"{place} ({fact.operation})" if fact.operation else place
    if phase == "optimizer-step":
        values["share_of_what"] = (
            "The optimizer's states are made at the first step (8 bytes a parameter for Adam in fp32, beside weights and gradients): model states, not activations."
        )
    elif "softmax" in fact.operation and "log" not in fact.operation:
        values["share_of_what"] = (
            f"A softmax over attention scores asked for {values.get('asked', 'it')}: activations dominate, not the parameters; "
            "scores grow with batch x heads x sequence squared, whatever the number of nodes."
        )
    elif "loss" in fact.operation or fact.operation == "logits":
        values["share_of_what"] = (
            "Logits in fp32 over the whole vocabulary (batch x sequence x vocabulary x 4 bytes) are the peak here: activations, not parameters."
        )
    else:
        values["share_of_what"] = (
            "Activations grow with micro-batch x sequence; weights, gradients and optimizer states do not."
        )


def _unknown_values(fact: OutOfMemory, values: dict[str, str]) -> None:
    if fact.requested_bytes is None:
        values["no_figures"] = (
            "The message carries no figures, so whether the card was full, or shared with others, is not known."
        )
    values["unknown_step"] = "Nothing here tells in which step it happened, and that decides what helps."


def _other(
    case: Case,
    fact: OutOfMemory,
    ooms: list[OutOfMemory],
    values: dict[str, str],
    step: FindingStep,
    engine: str | None,
) -> Finding:
    who = holders(fact)
    values["others"] = show_bytes(who.other_bytes)
    values["pids"] = ",".join(str(pid) for pid, _ in who.others)
    values["listed"] = " and ".join(f"process {pid} holds {show_bytes(size)}" for pid, size in who.others[:4])
    alike = [size for _, size in who.others if who.own and abs(size - who.own) < 0.25 * who.own]
    if alike:
        values["same_server"] = (
            "The processes hold about the same: likely ranks or copies of one server that were all placed on this GPU (check CUDA_VISIBLE_DEVICES and the device map)."
        )
    return finding("gpu-oom-other-process", ooms, case=case, values=values, step=step,
                   remedies=fixes.other_process(engine, fact, who))  # fmt: skip


def _step(case: Case, fact: OutOfMemory, phase: str, certainty: Certainty) -> FindingStep:
    if certainty == "likely" and phase == "serving" and not fact.private_pool_bytes:
        return "unseen"
    return _STEPS.get(phase) or step_at(case, fact)


def _with(made: Finding, remedies: tuple[Remedy, ...]) -> Finding:
    import msgspec

    return msgspec.structs.replace(made, remedies=remedies[:5])


def _host(case: Case, ooms: list[OutOfMemory]) -> Finding:
    fact = ooms[0]
    values = {
        "asked": show_bytes(fact.requested_bytes) if fact.requested_bytes else "that much",
        "kind": "pinned (locked) host" if fact.kind == "pinned" else "main",
        "pinned": "Pinned memory cannot be swapped and counts against the locked-memory limit."
        if fact.kind == "pinned"
        else "",
    }
    return finding("host-memory-refused", ooms, case=case, values=values)


def _turbomind(case: Case, ooms: list[OutOfMemory]) -> Finding:
    named = named_model(case)
    values: dict[str, str] = {}
    step: FindingStep | None = None
    large = named is not None and named.weight_bytes > 30 * GIB
    if named is not None:
        values["model"] = (
            f"By the model's name, {named.parameters / 1e9:g}B parameters at {named.stored_bits} bits take about "
            f"{named.weight_bytes / GIB:.0f} GiB of weights"
        )
    if large:
        step = "weight-load"
        values["pool"] = (
            "On an 80 GB card that fills it before the KV cache; cache_max_entry_count is only a share of what is left, so lowering it alone cannot create the room."
        )
    else:
        values["pool"] = (
            "The KV pool takes cache_max_entry_count (default 0.8) of the memory that is free after loading, which leaves little for a batch's run-time buffers."
        )
    return finding("turbomind-oom", ooms, case=case, values=values, step=step, remedies=fixes.turbomind(large))


def _library(case: Case, fact: OutOfMemory) -> Finding:
    share = number(case, *SHARES)
    values = {
        "library": {"cublas": "cuBLAS", "cudnn": "cuDNN"}.get(fact.allocator, fact.allocator),
        "share": f"{share:g}" if share else "",
    }
    engine = engine_of(case, fact)
    return finding(
        "gpu-oom-library",
        [fact],
        case=case,
        values=values,
        remedies=fixes.serving(engine, fit_of(case, fact), case, fact)[:3],
    )


def judge_warm_up(case: Case) -> Iterator[Finding]:
    """The sampler's (or pooler's) warm-up, with the allocator's own figures where they stand beside it."""
    facts = case.all(WarmUpShortage)
    ooms = [o for o in case.all(OutOfMemory) if o.requested_bytes is not None]
    fact = ooms[0] if ooms else None
    values = _values(case, fact, ooms) if fact else {}
    requests = facts[0].requests
    values |= {"what": facts[0].what, "requests": show_count(requests) if requests else "max_num_seqs"}
    share = number(case, *SHARES)
    if share is not None:
        values["share"] = f"{share:g}"
    engine = engine_of(case, facts[0]) or "vllm"
    evidence: list[Fact] = [*ooms, *facts]
    yield finding(
        "gpu-oom-sampler-warm-up",
        evidence,
        case=case,
        values=values,
        remedies=fixes.sampler(engine, fit_of(case, facts[0]), requests),
    )


def judge_broken_off(case: Case) -> Iterator[Finding]:
    """A start that broke off in the profiling pass, pasted without its exception."""
    facts = case.all(BrokenOff)
    fact = facts[0]
    weights = weights_of(case)
    profiling = fact.phase == "profiling"
    if case.has(OutOfMemory) or case.has(WarmUpShortage) or not (profiling or (weights and fact.phase == "")):
        return
    if not profiling and (
        case.has(MemoryBreakdown)
        or case.has(ServerReady)
        or step_at(case, fact) not in ("weight-load", "memory-profiling", "unseen")
    ):
        return
    items = profiled(case)
    engine = engine_of(case, fact)
    multimodal = bool(items) or "multi-modal" in " ".join(f.text.lower() for f in case.facts[-40:])
    values = {
        "weights": show_bytes(weights.bytes) if weights and weights.bytes else "",
        "pass": f"profiling pass (the dummy run of the largest step, {fact.function})"
        if profiling and fact.function
        else "profiling pass (the dummy run of the largest step)",
        "bare": ""
        if weights and weights.bytes
        else "It broke off in the profiling pass, the dummy run of the engine's largest step.",
        "items": items,
    }
    if profiling and not items:
        values["multimodal"] = (
            "For a model with images the pass also holds as many images as sequences, so max_num_seqs decides."
        )
    yield finding(
        "profiling-broke-off", [*case.all(ProfiledItems)[:1], *([weights] if weights else []), *facts], case=case, values=values,
        certainty="likely" if profiling else "possible", remedies=fixes.profiling(engine or "vllm", case, multimodal or profiling),
    )  # fmt: skip


RULES = (
    Rule(judge_oom, (OutOfMemory,), (
        "gpu-oom-weights", "gpu-oom-profiling", "gpu-oom-graph-capture", "gpu-oom-kv-pool", "gpu-oom-serving", "gpu-oom-wake-up",
        "gpu-oom-training", "gpu-oom-other-process", "gpu-oom-unseen-holder", "gpu-oom-fragmented", "gpu-oom", "gpu-oom-library",
        "turbomind-oom", "host-memory-refused",
    ), (WeightsLoaded, ProfiledItems)),
    Rule(judge_warm_up, (WarmUpShortage,), ("gpu-oom-sampler-warm-up",), (OutOfMemory,)),
    Rule(judge_broken_off, (BrokenOff,), ("profiling-broke-off",), (WeightsLoaded, ProfiledItems)),
)  # fmt: skip
