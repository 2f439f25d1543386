"""Several levels of load: where throughput stops to grow while latency goes on; and the figures in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from loadpath.core.case import Case
from loadpath.core.facts.traffic import Benchmark
from loadpath.core.report import Finding
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.traffic.floor import floor_of, pace
from loadpath.diagnosis.traffic.physics import ms

GROWS = 1.05
"""Throughput that grows by less is no growth, for a load that grew by at least `MORE_LOAD`."""
MORE_LOAD = 1.4
_TOOLS = {
    "loadpath": "Measured by loadpath bench", "vllm": "Measured by vllm bench serve", "sglang": "Measured by SGLang's bench_serving",
    "guidellm": "Measured by GuideLLM", "aiperf": "Measured by AIPerf", "genai-perf": "Measured by GenAI-Perf",
    "inference-perf": "Measured by inference-perf", "pasted": "Figures as pasted",
}  # fmt: skip


def judge_knee(case: Case) -> Iterator[Finding]:
    levels = [
        (b, load) for b in case.all(Benchmark) if b.output_rate and (load := b.concurrency or b.rate or b.in_flight)
    ]
    if len({b.span.source for b, _ in levels}) != 1:
        return
    levels.sort(key=lambda pair: pair[1])
    for (low, less), (high, more) in pairwise(levels):
        if more < MORE_LOAD * less or (high.output_rate or 0) > GROWS * (low.output_rate or 0):
            continue
        waits = [f"{name} {ms(a.typical, 4)} → {ms(b.typical, 4)}"
                 for name, a, b in (("TTFT", low.ttft, high.ttft), ("ITL", low.itl, high.itl))
                 if a and b and a.typical and b.typical]  # fmt: skip
        yield finding(
            "bench-saturated", (low, high), case=case,
            title=f"Throughput stops to grow at a load of {less:g}: {low.output_rate:,.0f} → {high.output_rate:,.0f} tokens/s at {more:g}",
            cause=f"From a load of {less:g} to {more:g} output goes from {low.output_rate:,.0f} to {high.output_rate:,.0f} tokens/s"
            f"{'; ' + ', '.join(waits) if waits else ''}. More load beyond {less:g} only waits.",
            figures={"load": less, "output_tokens_per_s": low.output_rate},
        )  # fmt: skip
        return


def judge_summary(case: Case) -> Iterator[Finding]:
    """What was measured, in a sentence; and what would hold it against the card."""
    bench = case.all(Benchmark)[-1]
    parts = [f"{bench.completed} requests"] if bench.completed else []
    parts += [f"{bench.request_rate:.4g} requests/s"] if bench.request_rate else []
    parts += [f"{bench.output_rate:,.1f} output tokens/s"] if bench.output_rate else []
    for name, spread in (("TTFT", bench.ttft), ("ITL", bench.itl), ("TPOT", bench.tpot)):
        if spread and spread.typical:
            parts.append(f"{name} {ms(spread.typical, 4)}")
    if not parts:
        return
    known = floor_of(case, bench) is not None
    hint = (
        ""
        if known or pace(bench) is None
        else "Neither weights nor card are known here, so nothing is held against what the card can do."
    )
    row = "bench-figures-pasted" if bench.tool == "pasted" else "bench-measured"
    yield finding(
        row, (bench,), case=case, title=f"{_TOOLS.get(bench.tool, bench.tool)}: {', '.join(parts[:5])}",
        cause=" ".join(filter(None, (f"{', '.join(parts)}.", hint))),
        next_checks=() if known else None,
    )  # fmt: skip


RULES = (
    Rule(judge_knee, (Benchmark,), ("bench-saturated",)),
    Rule(judge_summary, (Benchmark,), ("bench-measured", "bench-figures-pasted")),
)
