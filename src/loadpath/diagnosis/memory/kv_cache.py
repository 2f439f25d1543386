"""Does the KV cache hold one full-length request, and how many at once? Refused, or started all the same: same words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    Concurrency,
    GraphsCaptured,
    KvPool,
    KvShortfall,
    MemoryBreakdown,
    ServerReady,
    ServingStats,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.facts.memory import NoRoomForKv
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import GIB, KIB, show_bytes, show_count
from loadpath.diagnosis.memory.figures import start_of, too_dear
from loadpath.diagnosis.memory.fits import (
    CONTEXTS,
    PIPELINE,
    breakdown_of,
    count,
    engine_of,
    fit_of,
    named_size,
    of_run,
    on_cpu,
    pool_of,
    weights_of,
)
from loadpath.diagnosis.memory.memory_remedies import (
    eight_bit_kv,
    graphless,
    greater_share,
    more_gpus,
    moved_to_host,
    ranked,
    share_refused,
    share_unknown,
    shorter_context,
    show_ratio,
    smaller_pass,
    smaller_weights,
)
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.planning import remedies as plan
from loadpath.planning.kv import BLOCK, concurrency_class, share_of
from loadpath.planning.remedies import Fit

DEFAULT_LOOKING = 32 * KIB  # tokens: contexts from here on in whole KiB are what models declare, not what people set
LARGE_PEAK = 0.06  # of the GPU: an activation peak from here on is worth shrinking
CHUNK = 2048


def judge_shortfall(case: Case) -> Iterator[Finding]:
    """Refused: the pool is smaller than one request of full length."""
    shortfalls = case.all(KvShortfall)
    yield _refused(case, next((s for s in shortfalls if s.held_tokens or s.needed_bytes), shortfalls[0]), shortfalls)


def _refused(case: Case, fact: KvShortfall, shortfalls: list[KvShortfall], unseen: bool = False) -> Finding:
    engine = engine_of(case, fact)
    fit = fit_of(case, fact, fact)
    budget = budget_words(case, fact, engine)
    values = {
        **_figures(fit, fact, budget.get("blocks", "")),
        **budget,
        "default": _default_context(case, fact),
        "unchunked": _unchunked(case, fact, fit),
        "earlier": _earlier_start(case, fact),
        "stage": _tightest(case),
        "share_refused": share_refused(fit),
        "quantise_only": "" if _unchunked(case, fact, fit) else _only_quantising(fit),
        "dear": too_dear(start_of(case)),
        "model": "" if fit.weights_bytes else named_size(case),
    }
    if unseen:
        values["unseen"] = "This engine refuses to start with such a pool; its refusal is not in this input."
    evidence = [*profile_facts(case, fact), *shortfalls]
    return finding(
        "kv-cache-below-one-request", evidence, case=case, certainty="likely" if unseen else None,
        values=values, remedies=_remedies(engine, fit, case, values),
        figures={"ratio": fit.held, "asked_tokens": fact.asked_tokens, "held_tokens": fit.tokens, "kv_bytes": fit.kv_bytes},
    )  # fmt: skip


def _figures(fit: Fit, fact: KvShortfall, blocks: str) -> dict[str, str]:
    values: dict[str, str] = {"asked": show_count(fact.asked_tokens or 0)}
    if fit.held is not None:
        values["ratio"] = show_ratio(fit.held)
    if fact.held_tokens is not None:
        values["held"] = f"{show_count(fact.held_tokens)} tokens" + (f" ({blocks})" if blocks else "")
    if fact.needed_bytes:
        values["needed"] = show_bytes(fact.needed_bytes)
        values["available"] = show_bytes(fact.available_bytes or 0)
    if fact.estimated_tokens is not None:
        values["estimated"] = show_count(fact.estimated_tokens)
        if not fact.needed_bytes:  # figures too small for the two decimals that are printed
            values["held"] = f"about {values['estimated']} tokens"
    return values


def budget_words(case: Case, like: Fact, engine: str | None) -> dict[str, str]:
    """The KV share redone from the run's own figures, and the pool's blocks, in words."""
    values: dict[str, str] = {}
    breakdown, weights, pool = breakdown_of(case, like), weights_of(case, like), pool_of(case, like)
    if breakdown and (share := share_of(breakdown, weights, case.version)) is not None and engine != "sglang":
        loaded = breakdown.weights_bytes or (weights.bytes if weights else None)
        parts = [
            f"- {show_bytes(size)} {name}"
            for size, name in (
                (loaded, "weights"), (breakdown.non_torch_bytes, "non-torch"),
                (breakdown.activation_bytes, "activation peak"),
            ) if size
        ]  # fmt: skip
        values["budget"] = (
            f"{show_bytes(breakdown.total_bytes or 0)} x {breakdown.utilisation:g} {' '.join(parts)} = {show_bytes(share)}"
            if breakdown.total_bytes and breakdown.utilisation else f"{show_bytes(share)} after {' '.join(parts)}"
        )  # fmt: skip
    if pool and pool.blocks and not isinstance(like, NoRoomForKv):
        size = pool.block_tokens or BLOCK
        values["blocks"] = f"{show_count(pool.blocks)} blocks of {size} tokens"
    if weights and weights.bytes and "budget" not in values:
        values["weights"] = show_bytes(weights.bytes)
    return values


def _default_context(case: Case, fact: KvShortfall) -> str:
    """Whether nobody set the context: known from a command line without it, suspected from the figure."""
    if not fact.asked_tokens or count(case, *CONTEXTS) is not None:
        return ""
    asked = show_count(fact.asked_tokens)
    if fact.asked_tokens >= DEFAULT_LOOKING and fact.asked_tokens % KIB == 0:
        return (
            f"No context length is set in this input: {asked} tokens is the model's own maximum, taken as the default."
        )
    return ""


def _unchunked(case: Case, fact: KvShortfall, fit: Fit) -> str:
    """The activation peak that a whole, unchunked prompt makes (old vLLM, or chunked prefill switched off)."""
    off = (
        case.setting("enable-chunked-prefill") in ("False", "false")
        or case.setting("no-enable-chunked-prefill") is not None
    )
    old = (case.version is not None and case.version < (0, 8)) or fact.held_tokens is not None
    chunked = (
        case.setting("enable-chunked-prefill") in ("True", "true", "")
        or case.setting("max-num-batched-tokens") is not None
    )
    peak = _peak(case, fact)
    if not (off or old) or chunked or not peak or not fit.total_bytes or peak < LARGE_PEAK * fit.total_bytes:
        return ""
    return (
        f"The activation peak ({show_bytes(peak)}) takes the room: without chunked prefill the profiling pass runs one "
        f"whole prompt of {show_count(fact.asked_tokens or 0)} tokens, so it grows with the context asked for."
    )


def _peak(case: Case, like: Fact) -> int | None:
    breakdown = breakdown_of(case, like)
    return breakdown.activation_bytes if breakdown else None


def _earlier_start(case: Case, fact: KvShortfall) -> str:
    """Another start in the same paste that had more memory for the same cache, with a shorter context."""
    if fact.available_bytes is None or not fact.asked_tokens:
        return ""
    for other in case.all(MemoryBreakdown):
        kv = other.kv_bytes
        if kv is None or kv <= fact.available_bytes * 1.02 or other.span.first_line > fact.span.first_line:
            continue
        near = [c for c in case.all(Concurrency) if 0 <= c.span.first_line - other.span.first_line < 12]
        if near and near[0].context_tokens < fact.asked_tokens:
            return (
                f"An earlier start in this input, with {show_count(near[0].context_tokens)} tokens, had {show_bytes(kv)} for it, "
                f"this one {show_bytes(fact.available_bytes)}: the profiling pass takes more as the context grows, so cap it "
                "(chunked prefill, fewer batched tokens)."
            )
    return ""


def _tightest(case: Case) -> str:
    """With a pipeline every stage must hold its layers' cache: the tightest one decides."""
    stages = count(case, *PIPELINE) or 1
    if stages < 2:
        return ""
    return (
        f"With {stages} pipeline stages the tightest stage decides: the card with least room limits the pool, and the check compares "
        "the cache of the whole model with it. Moving layers to the larger card (VLLM_PP_LAYER_PARTITION) relieves it."
    )


def _only_quantising(fit: Fit) -> str:
    """Said where, with this context on this card, nothing but smaller weights or a smaller cache is enough."""
    effects = [plan.quantise(fit, bits, kv) for kv in (False, True) for bits in (8, 4)]
    needed = plan.share_needed(fit)
    if needed is None or needed <= plan.HIGHEST_SHARE or not any(e and e.suffices for e in effects) or not fit.context:
        return ""
    return f"To keep {show_count(fit.context)} tokens on one card, only quantising suffices."


def _remedies(engine: str | None, fit: Fit, case: Case, values: dict[str, str]) -> tuple[Remedy, ...]:
    limit = fit.tokens
    if on_cpu(case):
        return _cpu_remedies(engine, fit, case, limit)
    if limit is None and fit.held is not None and fit.context:
        limit = int(fit.held * fit.context)
    unchunked = bool(values.get("unchunked") or values.get("earlier"))
    chunk = Remedy(
        "Enable chunked prefill, or cap the tokens of one step: the profiling peak then no longer grows with the context",
        " ".join(t for t in (flag(engine, "chunked-prefill", True), flag(engine, "batched-tokens", CHUNK)) if t),
        "frees most of the activation peak for the KV cache",
    )
    tensor = more_gpus(engine, fit)
    listed = (
        shorter_context(engine, limit, fit.context) if limit else None,
        chunk if unchunked else None,
        greater_share(engine, fit) if plan.share_needed(fit) is not None else None,
        *smaller_weights(engine, fit)[:1],
        eight_bit_kv(engine, fit),
        tensor,
        greater_share(engine, fit) if plan.share_needed(fit) is None else None,
        smaller_pass(engine, fit, case),
        graphless(engine, fit, case),
        moved_to_host(engine, fit),
        share_unknown(engine, fit),
    )
    if unchunked:
        head = [r for r in listed[:2] if r is not None]
        return (*head, *ranked(listed[2:], 5 - len(head)))
    return ranked(listed)


def _cpu_remedies(engine: str | None, fit: Fit, case: Case, limit: int | None) -> tuple[Remedy, ...]:
    """The CPU backend's pool is a part of main memory, set in GiB by an environment variable."""
    wanted = fit.wanted_bytes
    gib_needed = max(1, math.ceil(wanted / GIB + 0.05)) if wanted else 4
    space = Remedy(
        f"Give the KV cache {gib_needed} GiB of main memory", f"VLLM_CPU_KVCACHE_SPACE={gib_needed}",
        "one full-length request fits" if wanted else "",
    )  # fmt: skip
    listed = (*_override(case), shorter_context(engine, limit, fit.context) if limit else None, space)
    return tuple(r for r in listed if r is not None)


def profile_facts(case: Case, like: Fact) -> list[Fact]:
    return [
        *of_run(case, WeightsLoaded, like)[:1], *of_run(case, MemoryBreakdown, like)[-2:], *of_run(case, KvPool, like)[:1],
        *of_run(case, Concurrency, like)[:1],
    ]  # fmt: skip


def judge_concurrency(case: Case) -> Iterator[Finding]:
    """Started: how many full-length requests at once. Below one it is the trap that works until the first long request."""
    if case.has(KvShortfall) or case.has(NoRoomForKv):
        return
    served = case.all(Concurrency)[-1]
    pool = pool_of(case, served)
    if served.ratio == 0 and pool is not None and pool.blocks == 0:
        return  # nothing at all: such a start fails (`kv_room`)
    kind = concurrency_class(served.ratio)
    if kind == "fine":
        return
    engine = engine_of(case, served)
    fit = fit_of(case, served)
    held = int(served.ratio * served.context_tokens)
    if pool and pool.tokens and abs(pool.tokens - held) <= 0.02 * pool.tokens + 1:
        held = pool.tokens
    values = {
        "ratio": show_ratio(served.ratio),
        "asked": show_count(served.context_tokens),
        "held": show_count(held),
        **budget_words(case, served, engine),
        "share_refused": share_refused(fit),
    }
    facts = profile_facts(case, served)
    if kind == "none" and (pool := pool_of(case, served)) is not None and _will_refuse(case, served, pool):
        shortfall = KvShortfall(
            span=served.span, origin=served.origin, text=served.text, run=served.run,
            asked_tokens=served.context_tokens, held_tokens=pool.tokens,
        )  # fmt: skip
        yield _refused(case, shortfall, [shortfall], unseen=True)
        return
    if kind == "none":
        yield finding(
            "kv-cache-below-one-request-started", [*facts, served], case=case, values=values,
            remedies=(*_override(case), *_remedies(engine, fit, case, {}))[:5], figures={"ratio": served.ratio, "held_tokens": held},
        )  # fmt: skip
        return
    row = "kv-cache-no-batching" if kind == "no-batching" else "kv-cache-little-concurrency"
    more = [eight_bit_kv(engine, fit), shorter_context(engine, held // 4, served.context_tokens)]
    # Enough for one request already: what is lowered here is a wish for company, so nothing "suffices".
    remedies = tuple(Remedy(r.action, r.command, _company(r, fit), r.figures) for r in more if r is not None)
    yield finding(row, [*facts, served], case=case, values=values, remedies=remedies, figures={"ratio": served.ratio})


def _will_refuse(case: Case, served: Concurrency, pool: KvPool) -> bool:
    """vLLM's first engine prints the concurrency and then refuses a pool below one request; later lines disprove it."""
    first_engine = (served.origin.location or "").startswith(
        ("executor_base", "distributed_gpu_executor", "gpu_executor")
    )
    if not first_engine or pool.blocks is None or not pool.tokens or case.setting("num-gpu-blocks-override"):
        return False
    later: list[Fact] = [
        *case.all(ServerReady),
        *case.all(GraphsCaptured),
        *case.all(StepMark),
        *case.all(ServingStats),
    ]
    return not any(f.span.source == served.span.source and f.span.first_line > served.span.first_line for f in later)


def _override(case: Case) -> tuple[Remedy, ...]:
    """A pool size set by hand is the first thing to take back."""
    blocks = case.setting("num-gpu-blocks-override")
    if not blocks or not blocks.isdigit():
        return ()
    return (
        Remedy(
            f"Remove the pool size set by hand (--num-gpu-blocks-override {blocks}): the engine then uses all that is free"
        ),
    )


def _company(remedy: Remedy, fit: Fit) -> str:
    if "ratio" in remedy.figures:
        return f"{show_ratio(remedy.figures['ratio'])} at full length"
    return "four full-length requests fit at once; longer requests are refused with HTTP 400"


RULES = (
    Rule(judge_shortfall, (KvShortfall,), ("kv-cache-below-one-request",), (MemoryBreakdown, WeightsLoaded, KvPool)),
    Rule(judge_concurrency, (Concurrency,), (
        "kv-cache-below-one-request-started", "kv-cache-no-batching", "kv-cache-little-concurrency",
    ), (MemoryBreakdown, KvPool)),
)  # fmt: skip
