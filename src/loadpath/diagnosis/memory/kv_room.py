"""Engines that refused because nothing, or not enough for one sequence, was left for their KV pool."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadpath.core.case import Case, version_numbers
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import EngineStarted, KvPool, KvShortfall, MemoryBreakdown, ServerReady, WeightsLoaded
from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.facts.memory import NoRoomForKv
from loadpath.core.facts.placement import FreeMemory
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, show_bytes, show_count
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.memory.fits import SEQUENCES, count, engine_of, fit_of, is_v1, named_size, number
from loadpath.diagnosis.memory.kv_cache import CHUNK, budget_words, profile_facts
from loadpath.diagnosis.memory.kv_graphs import LIKELY_MOST, graph_remedies, graph_words
from loadpath.diagnosis.memory.memory_remedies import made, more_gpus, smaller_weights
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.engines.sglang.memory import least_fraction, static_pool_bytes
from loadpath.planning import remedies as plan
from loadpath.planning.remedies import Fit

_ROWS = {
    ("tensorrt-llm", "kv"): "kv-cache-below-one-sequence",
    ("sglang", "kv"): "kv-no-room-static-share",
    ("sglang", "state"): "state-cache-no-room",
    ("tgi", "prefill"): "tgi-warm-up-refused",
    ("tgi", "kv"): "tgi-kv-no-room",
    ("lmdeploy", "kv"): "kv-no-room-lmdeploy",
}
HIGHEST_STATIC = 0.94  # a greater static share leaves graphs and activations too little
_FRACTIONS = (
    "mem-fraction-static", "gpu-memory-utilization", "kv-cache-free-gpu-memory-fraction", "cache-max-entry-count"
)  # fmt: skip


def judge(case: Case) -> Iterator[Finding]:
    """Refused: nothing, or not enough for one sequence, is left for the pool."""
    facts = case.all(NoRoomForKv)
    fact = next(
        (f for f in facts if f.fraction or f.least_fraction or f.prefill_tokens or f.available_bytes is not None),
        facts[0],
    )
    row = _ROWS.get((fact.engine or "", fact.pool), "kv-no-room")
    if row in ("tgi-warm-up-refused", "tgi-kv-no-room") and case.has(OutOfMemory):
        return  # the allocator itself said so: judged with its figures
    if row == "kv-cache-below-one-sequence" and not fact.one_sequence:
        row = "kv-no-room-tensorrt"
    engine = fact.engine or engine_of(case, fact)
    fit = fit_of(case, fact)
    values = {**budget_words(case, fact, engine), **_values(case, fact, fit)}
    remedies = _remedies(engine, fit, case) if row == "kv-no-room" else _component_remedies(case, fact, row)
    step: FindingStep | None = "weight-load" if fact.component == "Model" else None
    implausible = (
        row == "kv-no-room" and fit.graph_bytes is not None and fit.graph_bytes > LIKELY_MOST and values["graphs"]
    )
    title = f"An estimate of {show_bytes(fit.graph_bytes or 0)} for CUDA graphs leaves no memory for the KV cache"
    yield finding(
        row, [*profile_facts(case, fact), *facts], case=case, values=values, remedies=remedies,
        title=title if implausible else None, step=step,
        certainty="likely" if implausible else None, figures={"kv_bytes": fit.kv_bytes, "graph_bytes": fit.graph_bytes},
    )  # fmt: skip


def judge_empty(case: Case) -> Iterator[Finding]:
    """A pool of nothing in the profile's own figures, where the refusal itself was not pasted: such a start fails."""
    if case.has(NoRoomForKv) or case.has(KvShortfall) or case.has(ServerReady):
        return
    if not (facts := empty_pool(case)):
        return
    fact = NoRoomForKv(span=facts[-1].span, origin=facts[-1].origin, text=facts[-1].text, run=facts[-1].run)
    engine = engine_of(case, facts[-1]) or "vllm"
    fit = fit_of(case, fact)
    values = {**budget_words(case, fact, engine), **_values(case, fact, fit)}
    pools = [p for p in case.all(KvPool) if p.blocks == 0]
    values["unseen"] = (
        f"{'With 0 blocks' if pools else 'With nothing left for it'} the engine refuses to start; its refusal is not in this input."
    )
    yield finding(
        "kv-no-room", [*profile_facts(case, fact), *facts], case=case, values=values,
        remedies=_remedies(engine, fit, case), figures={"kv_bytes": fit.kv_bytes},
    )  # fmt: skip


def empty_pool(case: Case) -> list[Fact]:
    """What shows a pool of nothing: a share at or below zero, or no block."""
    empty: list[Fact] = [b for b in case.all(MemoryBreakdown) if b.kv_bytes is not None and b.kv_bytes <= 0]
    return [*empty, *[p for p in case.all(KvPool) if p.blocks == 0]]


def _values(case: Case, fact: NoRoomForKv, fit: Fit) -> dict[str, str]:
    fraction = fact.fraction or (fit.share if fact.engine == "vllm" else None) or number(case, *_FRACTIONS)
    draft = case.setting("speculative-draft-model-path", "speculative-algorithm", "speculative-config")
    values = {
        "fraction": f"{fraction:g}" if fraction else "",
        "static": _static(
            case, fraction, "and the draft model's " if draft else "(and a draft model's, if there is one) "
        ),
        "least": f"{fact.least_fraction:g}" if fact.least_fraction else "",
        "least_up": f"{min(0.99, int(least * 100 + 2) / 100):g}" if (least := _least_static(case, fact)) else "",
        "tokens": show_count(fact.tokens) if fact.tokens else "",
        "model": named_size(case),
        "charged": _charged(case),
        "component": fact.component,
        "context": _context(case, fit),
        "kv_left": show_bytes(fact.available_bytes) if fact.available_bytes is not None else "",
        "total": show_bytes(fact.total_bytes) if fact.total_bytes else "",
        "took": show_bytes(fact.model_bytes) if fact.model_bytes else "",
        "prefill": show_count(fact.prefill_tokens) if fact.prefill_tokens is not None else "",
        "graphs": graph_words(case, fit),
        "bare": ""
        if fraction or fit.kv_bytes is not None or graph_words(case, fit)
        else "After the weights and the activation peak of the profiling pass nothing of the memory share is left; how much is "
        "missing these lines do not show.",
    }
    if fact.engine == "tgi" and fact.tokens:
        values |= _tgi_figures(case, fact.tokens)
    if fit.kv_bytes is not None and fit.kv_bytes <= 0:
        values["short"] = show_bytes(-fit.kv_bytes)
    return values


def _tgi_figures(case: Case, tokens: int) -> dict[str, str]:
    """How far down the total may go: one request of full length must still fit."""
    least = count(case, "max-total-tokens") or 0
    to = max(tokens // 2 // 256 * 256, least)
    shown = case.setting("max-batch-total-tokens") is not None  # the launcher's arguments are in this input
    quantised = case.setting("quantize") or ("" if shown else "unknown")
    return {
        "lower_to": str(to) if to < tokens and least else "",
        "half": "" if least else str(to),
        "more_shards": str(2 * (count(case, "num-shard") or 1)) if (count(case, "num-shard") or 1) < 8 else "",
        "least_total": show_count(least) if least else "",
        "unquantised": "" if quantised else "The weights are not quantised.",
    }


def _component_remedies(case: Case, fact: NoRoomForKv, row: str) -> tuple[Remedy, ...] | None:
    """TensorRT-LLM names the part that failed; only for the KV pool is its own size what decides."""
    if row != "kv-no-room-tensorrt" or not fact.component or "kv" in fact.component.lower():
        return None
    tokens, tensor = flag("tensorrt-llm", "batched-tokens", 4096), flag("tensorrt-llm", "tensor-parallel", 2)
    if fact.component == "Model":
        return (
            Remedy("Split the model over more GPUs", tensor, "each holds its share of the weights"),
            Remedy("Serve a checkpoint quantised to 8 or 4 bits (FP8, NVFP4, AWQ), or a smaller model",
                   effect="half or about 0.28 of 16-bit weights"),
        )  # fmt: skip
    return (
        Remedy("Plan for fewer requests and tokens at once", f"--max_batch_size 64 {tokens} --max_seq_len 16384",
               "the model engine's buffers and graphs shrink in proportion"),
        Remedy("Split the model over more GPUs, or serve a quantised checkpoint", tensor),
        Remedy("Do without CUDA graphs", flag("tensorrt-llm", "eager", True)),
    )  # fmt: skip


def _static(case: Case, fraction: float | None, draft: str) -> str:
    """SGLang's share is one of the memory that was free before the weights: what the log shows of it."""
    share = f"the static share (--mem-fraction-static {fraction:g})" if fraction else "the static share"
    said = (
        f"The weights {draft}take more than {share} of the memory that was free before loading: zero or less is left "
        "for the KV pool."
    )
    if (figures := _static_figures(case)) is None:
        return said
    before, after = figures
    least = least_fraction(before, after)
    if fraction and least < fraction:
        return said  # something that these lines do not show took memory as well
    words = f"{said} {show_bytes(before)} was free before the weights and {show_bytes(after)} after: above {least:.3f} it starts."
    if fraction and (left := static_pool_bytes(before, after, fraction)) <= 0:
        words += f" At {fraction:g} the pool is {show_bytes(-left)} short."
    return words


def _static_figures(case: Case) -> tuple[int, int] | None:
    """Free memory before and after the weights; before them by what they took, where that line was not pasted."""
    before = [m.bytes for m in case.all(FreeMemory) if m.when == "before-weights" and not m.what.startswith("draft")]
    after = [m.bytes for m in case.all(FreeMemory) if m.when == "after-weights"]
    loaded = [w.bytes for w in case.all(WeightsLoaded) if w.bytes and w.what != "draft"]
    if not before and after and loaded:
        before = [min(after) + max(loaded)]
    if not before or not after or min(after) >= min(before):
        return None
    return min(before), min(after)


def _least_static(case: Case, fact: NoRoomForKv) -> float | None:
    """The smallest static share that starts, by the message or by the log's figures; None where it is out of reach."""
    if fact.least_fraction:
        return fact.least_fraction
    figures = _static_figures(case) if fact.engine == "sglang" else None
    least = least_fraction(*figures) if figures else None
    return least if least is not None and least < HIGHEST_STATIC else None


def _context(case: Case, fit: Fit) -> str:
    """Whether a shorter context helps: only where a whole prompt is profiled at once (vLLM's first engine)."""
    if is_v1(case):
        return "A shorter context does not help by itself: the pool is empty at any length."
    if (
        case.engine == "vllm"
        and case.version is not None
        and fit.activation_bytes
        and not case.setting("max-num-batched-tokens")
    ):
        return (
            f"Without chunked prefill the pass runs a whole prompt of full length (peak {show_bytes(fit.activation_bytes)}): "
            "a shorter context or chunked prefill gives part of it back."
        )
    return ""


def _charged(case: Case) -> str:
    """Versions of vLLM that take the memory of other processes out of their own share (shared facts, vllm.md C.1)."""
    started = case.last(EngineStarted)
    if started is None or started.engine != "vllm" or not started.version:
        return ""
    version = version_numbers(started.version)
    old = started.generation != "V1" and (0, 6, 4) <= version < (0, 6, 5)
    if not old and not (started.generation == "V1" and version < (0, 9, 1)):
        return ""
    return (
        "This version charges memory of other processes to the share: beside another server, the share must cover both."
    )


def _remedies(engine: str | None, fit: Fit, case: Case) -> tuple[Remedy, ...]:
    """For a KV share at or below zero: more share where it reaches, smaller weights, more GPUs, a smaller pass."""
    sequences = count(case, *SEQUENCES)
    tensor = more_gpus(engine, fit) or made(
        "Split the model over 2 GPUs (tensor parallel)", None, flag(engine, "tensor-parallel", fit.tensor_parallel * 2),
        "each holds about half of the weights",
    )  # fmt: skip
    narrower = Remedy(
        "Make the profiling pass smaller: fewer tokens in one step, fewer sequences, fewer images per prompt",
        " ".join(t for t in (flag(engine, "batched-tokens", CHUNK), flag(engine, "sequences", min(64, sequences or 64))) if t),
        "the activation peak shrinks about in proportion",
    )  # fmt: skip
    graphs = graph_remedies(engine, fit, case)
    share, weights = _share(engine, fit) if len(graphs) < 2 else None, smaller_weights(engine, fit)[:1]
    order = (
        [*weights, share]
        if fit.kv_bytes is not None and fit.weights_bytes and not fit.total_bytes
        else [share, *weights]
    )
    listed = [*graphs, *order, tensor, narrower, _offloaded(engine, fit)]
    return tuple(r for r in listed if r is not None)[:5]


def _offloaded(engine: str | None, fit: Fit) -> Remedy | None:
    """So much of the weights in host memory that a gibibyte of cache is left: slow, but it starts."""
    if fit.kv_bytes is None or fit.weights_bytes is None:
        return None
    size = math.ceil((GIB - fit.kv_bytes) / GIB)
    command = flag(engine, "cpu-offload", size)
    if not command or not 0 < size * GIB < fit.weights_bytes:
        return None
    return Remedy(
        f"Keep {size} GiB of the weights in host memory", command,
        f"leaves {show_bytes(fit.kv_bytes + size * GIB)} for the KV cache; every step reads them over PCIe, so it is slow",
    )  # fmt: skip


def _share(engine: str | None, fit: Fit) -> Remedy | None:
    effect = plan.raise_share(fit)
    if fit.share is not None and fit.share >= plan.HIGHEST_SHARE:
        return None
    if fit.kv_bytes is None:
        return Remedy(
            "Raise the memory share, if nothing else uses the GPU", flag(engine, "memory-share", plan.HIGHEST_SHARE),
            f"each hundredth adds {show_bytes(fit.total_bytes / 100)}" if fit.total_bytes else "helps where little is missing",
        )  # fmt: skip
    if fit.share is None or not fit.total_bytes:
        return Remedy(
            f"Raise the memory share, where it is below {plan.HIGHEST_SHARE} and nothing else uses the GPU",
            flag(engine, "memory-share", plan.HIGHEST_SHARE),
            f"each 0.01 adds 1 % of the card; {show_bytes(max(0, -fit.kv_bytes))} and the cache itself are missing",
        )
    if effect is None or effect.added_bytes is None or fit.kv_bytes + effect.added_bytes <= 0:
        return None
    left = fit.kv_bytes + effect.added_bytes
    return Remedy(
        f"Raise the memory share from {fit.share:g} to {plan.HIGHEST_SHARE}, if nothing else uses the GPU",
        flag(engine, "memory-share", plan.HIGHEST_SHARE),
        f"adds {show_bytes(effect.added_bytes)}, which leaves {show_bytes(left)} for the KV cache",
        {"added_bytes": int(effect.added_bytes), "kv_bytes": int(left)},
    )


RULES = (
    Rule(judge, (NoRoomForKv,), (
        "kv-no-room", "kv-cache-below-one-sequence", "kv-no-room-static-share", "state-cache-no-room",
        "tgi-warm-up-refused", "tgi-kv-no-room", "kv-no-room-lmdeploy", "kv-no-room-tensorrt",
    ), (MemoryBreakdown, WeightsLoaded)),
    Rule(judge_empty, (MemoryBreakdown,), ("kv-no-room",), (KvPool, WeightsLoaded)),
)  # fmt: skip
