"""While serving: preemption, a full KV cache, and prompts that leave no room for generation.

Judged from the engine's periodic lines and its own warnings. Thresholds are stated beside their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KvPool, ServingStats
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_count
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

KV_FULL = 0.95  # from here a running request may find no free block at its next one
KV_NEARLY, LONG_QUEUE = 0.85, 3  # a queue of several times what runs does not come from one burst
PROMPT_TO_GENERATION = 50  # prompt tokens per generated one; ordinary chat load stays under about 20
BUSY_PROMPT_TPS = 1_000  # below this a prompt rate says nothing about a bound
LASTING = 2  # periodic lines (10 s apart) in a row


def preemption(case: Case) -> Iterator[Finding]:
    """The engine says that it preempts: by a warning, or by the counter in its periodic line."""
    shown: list[Fact] = [*case.symptoms("kv-cache-preemption")]
    counted = [s for s in case.all(ServingStats) if s.preemptions]
    if not shown and not counted:
        return
    count = _preemptions(case)
    cause = ["KV cache space ran out while requests were running, so some were preempted and are computed again."]
    if count:
        cause = [
            f"KV cache space ran out {show_count(count)} times so far: requests were preempted and are computed again."
        ]
    cause.append("Each time costs a whole prefill; the answers stay right, latency and throughput suffer.")
    if pool := case.last(KvPool):
        cause.append(f"The pool holds {show_count(pool.tokens)} tokens." if pool.tokens else "")
    yield finding(
        "kv-cache-preemption", [*shown, *counted[-2:]], case=case, cause=" ".join(filter(None, cause)),
        remedies=_more_room(case), figures={"preemptions": count} if count else None,
        next_checks=(
            Check("How fast it grows, and how full the cache is",
                  "curl -s localhost:8000/metrics | grep -E 'num_preemptions|cache_usage_perc|num_requests'"),
        ),
    )  # fmt: skip


def _preemptions(case: Case) -> int:
    printed = [
        int(s.groups["count"]) for s in case.all(Symptom) if "count" in s.groups and s.finding == "kv-cache-preemption"
    ]
    counted = [s.preemptions for s in case.all(ServingStats) if s.preemptions]
    return max([*printed, *counted], default=0)


def _more_room(case: Case) -> list[Remedy]:
    engine = case.engine or "vllm"
    running = max((s.running or 0 for s in case.all(ServingStats)), default=0)
    sequences = case.setting("max-num-seqs", "max-running-requests")
    now = f" (now {sequences})" if sequences else f" ({running} ran)" if running else ""
    fewer = max(1, running * 3 // 4) if running else 64
    share = case.setting("gpu-memory-utilization", "mem-fraction-static")
    more = f"{min(0.95, float(share) + 0.03):g}" if share and _number(share) else "0.95" if engine == "vllm" else "0.9"
    return [
        Remedy(f"Let fewer requests run at once{now}, or lower the request rate", flag(engine, "sequences", fewer),
               "each running request keeps room to grow; the others wait instead of being computed twice"),
        Remedy("Store the KV cache in FP8", flag(engine, "kv-dtype", "fp8"), "about twice the tokens in the same memory"),
        Remedy("Give the KV cache more of the card, as far as memory is free", flag(engine, "memory-share", more),
               "each 1 % of the card goes to the KV cache"),
        Remedy("Split the model over more GPUs", flag(engine, "tensor-parallel", 2),
               "weights per card halve, and each card holds half of every token's KV"),
    ]  # fmt: skip


def _number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def prompt_bound(case: Case) -> Iterator[Finding]:
    """Prefill fills the steps: many prompt tokens, few generated ones, and a queue, for several lines in a row."""
    lines = [
        s for s in case.all(ServingStats)
        if (s.prompt_tps or 0) >= BUSY_PROMPT_TPS and (s.waiting or 0) > 0
        and (s.prompt_tps or 0) >= PROMPT_TO_GENERATION * max(1.0, s.generation_tps or 0)
    ]  # fmt: skip
    if len(lines) < LASTING:
        return
    prompts = sum(s.prompt_tps or 0 for s in lines) / len(lines)
    low, high = _range([s.generation_tps or 0 for s in lines])
    waits = [s.waiting or 0 for s in lines]
    running = [s.running or 0 for s in lines]
    usage = [s.kv_usage for s in lines if s.kv_usage is not None]
    kv = f" KV cache use goes from {usage[0]:.0%} to {usage[-1]:.0%}." if usage else ""
    climbs = bool(usage) and usage[-1] > usage[0] + 0.1
    cause = (
        f"Prompt-bound: {prompts:,.0f} prompt tokens/s against {low:g} to {high:g} generated tokens/s, while "
        f"{max(waits)} to {min(waits)} requests wait and {running[0]} to {running[-1]} run.{kv}"
    )
    if climbs:
        cause += (
            " Requests are admitted by their first chunk, so it keeps climbing; preemption follows once it is full."
        )
    engine = case.engine or "vllm"
    yield finding(
        "prefill-starves-decode", lines, case=case, cause=cause,
        title=f"Prompt-bound: {prompts:,.0f} prompt tokens/s, {low:g} to {high:g} generated, {max(waits)} requests wait",
        remedies=(
            Remedy("Limit the request rate or the number of running requests at the entrance",
                   flag(engine, "sequences", max(1, max(running) // 2)), "those that run get the steps they need to generate"),
            Remedy("Add replicas, or split prefill and decode over separate instances (disaggregated prefill)"),
            Remedy("Cap the prompt tokens of a step so that decode keeps its share",
                   flag(engine, "batched-tokens", 2048), "steadier generation, a longer wait for the first token"),
            Remedy("Where prompts share a beginning, use the prefix cache", "",
                   "shared prompt tokens are computed once"),
        ),
        next_checks=(
            Check("Length of the prompts and share of cached tokens",
                  "curl -s localhost:8000/metrics | grep -E 'prompt_tokens|prefix_cache'"),
        ),
        figures={"prompt_tokens_per_second": round(prompts, 1), "waiting_most": max(waits)},
    )  # fmt: skip


def _range(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def full(case: Case) -> Iterator[Finding]:
    """The KV cache stays full while requests wait; or is nearly so with a queue many times what runs."""
    stats = case.all(ServingStats)
    lines = [s for s in stats if (s.kv_usage or 0) >= KV_FULL and (s.waiting or 0) > 0]
    long = [
        s for s in stats if (s.kv_usage or 0) >= KV_NEARLY and (s.waiting or 0) >= LONG_QUEUE * max(1, s.running or 0)
    ]
    if len(lines) < LASTING:
        lines = long
    if not lines:
        return
    last = lines[-1]
    yield finding(
        "kv-cache-full", lines[-3:], case=case, remedies=_more_room(case),
        cause=f"KV cache usage is {last.kv_usage:.0%} with {last.waiting} requests waiting and {last.running} running, in "
        f"{len(lines)} of the periodic lines: new requests wait until running ones end, and the next step may preempt.",
    )  # fmt: skip


RULES = (
    Rule(preemption, (), ("kv-cache-preemption",), uses=(Symptom, ServingStats, KvPool)),
    Rule(prompt_bound, (ServingStats,), ("prefill-starves-decode",)),
    Rule(full, (ServingStats,), ("kv-cache-full",)),
)
