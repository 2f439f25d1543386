"""Out of memory: in which step, who holds the card, whether the pool is in pieces; each with its own remedies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import MemoryBreakdown, ServerReady, WeightsLoaded
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.memory import BrokenOff, ProfiledItems, SleepReport, WarmUpShortage
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_bytes, show_count
from loadpath.core.vocabulary import Certainty, FindingStep
from loadpath.diagnosis.ladder import step_at
from loadpath.diagnosis.memory import image_memory, oom_words, other_allocators, training_memory
from loadpath.diagnosis.memory import oom_remedies as fixes
from loadpath.diagnosis.memory.fits import (
    PIPELINE,
    SHARES,
    TENSOR,
    count,
    engine_of,
    fit_of,
    is_multimodal,
    named_model,
    number,
    weights_of,
)
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.planning.oom import holders, shortage

_OF_STEP = {
    "weight-load": "weights", "memory-profiling": "profiling", "kv-pool": "kv-pool", "graph-capture": "graph-capture",
    "warm-up": "sampler-warm-up", "http-server": "serving", "serving": "serving",
}  # fmt: skip
_STEPS: dict[str, FindingStep] = {
    "context": "context-creation", "weights": "weight-load", "conversion": "weight-load",
    "profiling": "memory-profiling", "kv-pool": "kv-pool", "graph-capture": "graph-capture",
    "sampler-warm-up": "warm-up", "serving": "serving", "wake-up": "serving", "training-setup": "weight-load",
    "training-forward": "serving", "training-backward": "serving", "optimizer-step": "serving",
    "image-generation": "serving",
}  # fmt: skip
MANY_ALIKE = 3  # processes that hold about as much as this one: ranks of one server
NEARLY_FULL = 0.85  # of the card in live allocations before a KV cache exists
FILLED = 0.99  # of the card in live allocations: more than any engine's share, so no share was at work yet


def judge_oom(case: Case) -> Iterator[Finding]:
    ooms = case.all(OutOfMemory)
    host = [o for o in ooms if o.kind in ("host", "pinned")]
    if host:
        yield other_allocators.host(case, host)
    ooms = [o for o in ooms if o not in host]
    if not ooms or case.has(WarmUpShortage):
        return
    # The fullest message leads; repeats by other ranks and by parent processes are evidence.
    fact = max(
        ooms,
        key=lambda o: (o.requested_bytes is not None, bool(o.phase), o.allocated_bytes is not None, -o.span.first_line),
    )
    if fact.allocator == "turbomind":
        yield other_allocators.turbomind(case, ooms)
    elif fact.allocator == "tensorrt" or (fact.requested_bytes is None and engine_of(case, fact) == "tensorrt-llm"):
        yield other_allocators.tensorrt(case, ooms)
    elif fact.allocator in other_allocators.LIBRARIES:
        yield other_allocators.library(case, fact)
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
    if case.has(ServerReady) or fact.private_pool_bytes:
        return "serving", "likely"  # graphs exist, or the engine said that it serves: the start was over
    engine = engine_of(case, fact)
    if engine in ("vllm", "sglang") and fact.total_bytes and (fact.allocated_bytes or 0) >= FILLED * fact.total_bytes:
        return "weights", "likely"
    named, share = named_model(case), number(case, *SHARES)
    ranks = (count(case, *TENSOR) or 1) * (count(case, *PIPELINE) or 1)
    if engine in ("vllm", "sglang") and named and fact.total_bytes and named.weight_bytes / ranks > fact.total_bytes:
        return "weights", "likely"  # more than the card has: it cannot have come further
    own = holders(fact).own
    if named and share and own and fact.total_bytes and own > share * fact.total_bytes > 1.3 * named.weight_bytes:
        return "serving", "likely"  # the pool must have been there: the weights alone come nowhere near
    return "", "possible"


def _judge_gpu(case: Case, fact: OutOfMemory, ooms: list[OutOfMemory]) -> Finding:
    phase, certainty = phase_in(case, fact)
    kind = shortage(fact)
    values = oom_words.values(case, fact, ooms)
    engine = engine_of(case, fact)
    step = _step(case, fact, phase, certainty)
    if kind == "other-process":
        return _other(case, fact, ooms, values, step, engine)
    if kind == "unseen-holder":
        return finding("gpu-oom-unseen-holder", ooms, case=case, values=values, step=step)
    if kind == "fragmented":
        made = finding("gpu-oom-fragmented", ooms, case=case, values=values, step=step)
        extra = fixes.smaller_step(engine, case, phase)[:1]
        return msgspec.structs.replace(made, remedies=(*made.remedies[:1], *extra, *made.remedies[1:])[:5])
    row, remedies = _by_phase(case, phase, fact, values, engine)
    evidence: list[Fact] = [*case.all(ProfiledItems)[:1], *ooms]
    title = None
    if row == "gpu-oom-serving" and engine is None and fact.free_bytes is not None and fact.requested_bytes is not None:
        title = f"Out of GPU memory while the model ran: {values['asked']} asked, {values['free']} free"
    return finding(
        row, evidence, case=case, values=values, title=title, remedies=remedies or None, step=step,
        certainty={"gpu-oom": "established", "gpu-oom-context": "likely"}.get(row, certainty),  # type: ignore[arg-type]
        figures={"requested_bytes": fact.requested_bytes, "free_bytes": fact.free_bytes, "total_bytes": fact.total_bytes},
    )  # fmt: skip


def _by_phase(
    case: Case, phase: str, fact: OutOfMemory, values: dict[str, str], engine: str | None
) -> tuple[str, tuple[Remedy, ...]]:
    """The row for a true shortage in that phase, with its remedies; fills in the row's own values."""
    fit = fit_of(case, fact)
    if phase in ("weights", "conversion"):
        values |= oom_words.weights(case, phase, fact, values, engine)
        return "gpu-oom-weights", fixes.weights(engine, fit, phase, fact)
    if phase == "profiling":
        loaded = weights_of(case, fact)
        values["heavy"] = oom_words.heavy(loaded.bytes if loaded else None, fact.total_bytes)
        if values["heavy"]:
            return "gpu-oom-profiling", fixes.weights(engine, fit, phase, fact)
        smaller = fixes.profiling(engine, case)
        if fact.total_bytes and (fact.allocated_bytes or 0) >= NEARLY_FULL * fact.total_bytes:
            # Mostly weights, whatever their size is: no KV cache exists yet.
            smaller = (*smaller[:1], *fixes.weights(engine, fit, phase, fact)[:1], *smaller[1:])[:5]
        return "gpu-oom-profiling", smaller
    if phase == "graph-capture":
        values |= oom_words.capture(case, fact, fit)
        return "gpu-oom-graph-capture", fixes.capture(engine, fit, case)
    if phase == "sampler-warm-up":
        values |= {"what": "sampler", "requests": "max_num_seqs", "sequences": "max_num_seqs sequences"}
        return "gpu-oom-sampler-warm-up", fixes.sampler(engine, fit, None)
    if phase == "context":
        return "gpu-oom-context", ()
    if phase == "kv-pool":
        return "gpu-oom-kv-pool", fixes.pool(engine, fit)
    if phase == "wake-up":
        values |= oom_words.sleep(case)
        return "gpu-oom-wake-up", ()
    if phase.startswith("training") or phase == "optimizer-step":
        values |= training_memory.words(phase, fact, values.get("asked", "it"))
        return "gpu-oom-training", training_memory.remedies(phase, fact)
    if phase == "image-generation":
        values |= image_memory.words(fact)
        return "gpu-oom-image-generation", image_memory.remedies(case, fact)
    if phase == "serving":
        values |= oom_words.serving(case, fact, engine)
        return "gpu-oom-serving", fixes.serving(engine, fit, case, fact)
    values |= oom_words.unknown(case, fact)
    return "gpu-oom", fixes.unknown(engine, fit, case, fact)


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
    values["who"] = "another process holds" if len(who.others) == 1 else f"{len(who.others)} other processes hold"
    values["pids"] = ",".join(str(pid) for pid, _ in who.others)
    largest = sorted(who.others, key=lambda entry: -entry[1])[:4]
    values["listed"] = " and ".join(f"process {pid} holds {show_bytes(size)}" for pid, size in largest)
    alike = [pid for pid, size in who.others if who.own and abs(size - who.own) < 0.25 * who.own]
    ranks = sorted({o.origin.rank for o in ooms if o.gpu == fact.gpu and o.origin.rank is not None})
    if len(alike) >= MANY_ALIKE or (alike and len(ranks) > 1):
        values["n"] = str(len(who.others) + 1)
        values["listed"] = ", ".join(f"process {pid} {show_bytes(size)}" for pid, size in largest)
        values["ranks"] = f"Ranks {' and '.join(map(str, ranks))}" if len(ranks) > 1 else ""
        values["tensor"] = flag(engine, "tensor-parallel", "<number of GPUs>")
        return finding("gpu-oom-ranks-share-gpu", ooms, case=case, values=values, step=step)
    nothing = fact.allocated_bytes == 0 and fact.own_bytes is None
    if nothing:
        values["same_server"] = (
            "PyTorch has allocated nothing in this process yet: the memory is another process's, or this one's own outside "
            "PyTorch (a TensorRT engine, a second framework)."
        )
    elif alike:
        values["same_server"] = (
            "They hold about the same: likely ranks or copies of one server (or an older copy of it) on the same GPU."
        )
    remedies = fixes.other_process(engine, fact, who, bool(alike))
    return finding(
        "gpu-oom-other-process", ooms, case=case, values=values, step=step, remedies=remedies,
        certainty="likely" if nothing else None,
    )  # fmt: skip


def _step(case: Case, fact: OutOfMemory, phase: str, certainty: Certainty) -> FindingStep:
    if certainty == "likely" and phase == "serving" and not fact.private_pool_bytes and not case.has(ServerReady):
        return "unseen"
    return _STEPS.get(phase) or step_at(case, fact)


def judge_warm_up(case: Case) -> Iterator[Finding]:
    """The sampler's (or pooler's) warm-up, with the allocator's own figures where they stand beside it."""
    facts = case.all(WarmUpShortage)
    ooms = [o for o in case.all(OutOfMemory) if o.requested_bytes is not None]
    fact = ooms[0] if ooms else None
    values = oom_words.values(case, fact, ooms) if fact else {}
    requests = facts[0].requests
    values |= {"what": facts[0].what, "requests": show_count(requests) if requests else "max_num_seqs"}
    values["sequences"] = f"{values['requests']} sequences (max_num_seqs)" if requests else "max_num_seqs sequences"
    if (share := number(case, *SHARES)) is not None:
        values["share"] = f"{share:g}"
    engine = engine_of(case, facts[0]) or "vllm"
    evidence: list[Fact] = [*ooms, *facts]
    remedies = fixes.sampler(engine, fit_of(case, facts[0]), requests)
    yield finding("gpu-oom-sampler-warm-up", evidence, case=case, values=values, remedies=remedies)


def judge_broken_off(case: Case) -> Iterator[Finding]:
    """A start that broke off in the profiling pass, pasted without its exception."""
    fact = case.all(BrokenOff)[0]
    weights = weights_of(case)
    profiling = fact.phase == "profiling"
    if case.has(OutOfMemory) or case.has(WarmUpShortage):
        return
    if fact.phase in ("conversion", "sampler-warm-up") or (
        fact.allocating and fact.phase in ("weights", "kv-pool", "graph-capture")
    ):
        yield _allocation_broke_off(case, fact)
        return
    if not profiling and not (weights and fact.phase == ""):
        return
    after = step_at(case, fact) not in ("weight-load", "memory-profiling", "unseen")
    if not profiling and (case.has(MemoryBreakdown) or case.has(ServerReady) or after):
        return
    items = oom_words.profiled(case)
    loaded = weights is not None and weights.bytes is not None
    values = {
        "weights": show_bytes(weights.bytes) if weights and weights.bytes else "",
        "pass": f"profiling pass (the dummy run of the largest step, {fact.function})"
        if profiling and fact.function else "profiling pass (the dummy run of the largest step)",
        "bare": "" if loaded else "It broke off in the profiling pass, the dummy run of the engine's largest step.",
        "items": items,
    }  # fmt: skip
    multimodal = is_multimodal(case) or oom_words.says(case, fact, "multi-modal")
    if not items and multimodal:
        values["multimodal"] = "With images the pass holds as many of them as sequences, so max_num_seqs decides."
    yield finding(
        "profiling-broke-off", [*case.all(ProfiledItems)[:1], *([weights] if weights else []), fact], case=case,
        values=values, certainty="likely" if profiling else "possible",
        remedies=fixes.profiling(engine_of(case, fact) or "vllm", case, multimodal),
    )  # fmt: skip


def _allocation_broke_off(case: Case, fact: BrokenOff) -> Finding:
    """A traceback without its exception that ends where memory is asked for (or weights are repacked)."""
    engine, fit = engine_of(case, fact), fit_of(case, fact)
    oom = OutOfMemory(span=fact.span, cut=True, phase=fact.phase)
    made = {
        "kv-pool": fixes.pool(engine, fit),
        "sampler-warm-up": fixes.sampler(engine, fit, None),
        "graph-capture": fixes.capture(engine, fit, case),
    }
    remedies = made.get(fact.phase) or fixes.weights(engine, fit, fact.phase, oom)
    doing = {"conversion": "converting the weights", "kv-pool": "allocating the KV cache", "sampler-warm-up": "warming up the sampler",
             "graph-capture": "capturing CUDA graphs"}.get(fact.phase, "creating or loading the weights")  # fmt: skip
    values = {"doing": doing, "function": fact.function}
    if fact.phase in ("weights", "conversion"):
        values["useless"] = "If it is that, memory share and context do not help: neither bounds the weights."
    return finding(
        "allocation-broke-off", [fact], case=case, values=values, step=_STEPS.get(fact.phase), remedies=remedies
    )


def judge_worst_case(case: Case) -> Iterator[Finding]:
    """The notice that a prompt of the largest images and videos would not fit the context: no fault by itself."""
    fact = next((f for f in case.all(ProfiledItems) if f.context_tokens and f.tokens), None)
    if fact is None or fact.tokens is None or fact.context_tokens is None:
        return
    detail = ", ".join(f"{show_count(n)} {name}" for name, n in fact.items)
    values = {
        "worst": show_count(fact.tokens),
        "context": show_count(fact.context_tokens),
        "detail": detail or "all items",
    }
    yield finding("multimodal-worst-case-over-context", [fact], case=case, values=values)


RULES = (
    Rule(judge_worst_case, (ProfiledItems,), ("multimodal-worst-case-over-context",)),
    Rule(judge_oom, (OutOfMemory,), (
        "gpu-oom-weights", "gpu-oom-profiling", "gpu-oom-graph-capture", "gpu-oom-kv-pool", "gpu-oom-serving",
        "gpu-oom-wake-up", "gpu-oom-image-generation", "gpu-oom-context", "gpu-oom-training", "gpu-oom-other-process",
        "gpu-oom-ranks-share-gpu", "gpu-oom-unseen-holder", "gpu-oom-fragmented",
        "gpu-oom", "gpu-oom-library", "turbomind-oom", "tensorrt-oom", "host-memory-refused",
    ), (WeightsLoaded, ProfiledItems)),
    Rule(judge_warm_up, (WarmUpShortage,), ("gpu-oom-sampler-warm-up",), (OutOfMemory,)),
    Rule(judge_broken_off, (BrokenOff,), ("profiling-broke-off", "allocation-broke-off"), (WeightsLoaded, ProfiledItems)),
)  # fmt: skip
