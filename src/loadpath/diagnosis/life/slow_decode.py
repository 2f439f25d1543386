"""Generation that crawls while nothing waits and the cache is empty: the steps themselves are slow."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from loadpath.core.case import Case
from loadpath.core.facts.engine import RankAssigned, ServingStats
from loadpath.core.report import Check, Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

SLOWEST_USUAL = 2.0  # tokens/s of one request; a large model on one card gives ten times as much
LASTING = 3  # periodic lines, ten seconds apart
EMPTY_CACHE = 0.5


def judge(case: Case) -> Iterator[Finding]:
    """Pure decode (no prompts, no queue, room in the cache) below two tokens/s a request, for several lines."""
    lines = [
        s for s in case.all(ServingStats)
        if (s.running or 0) >= 1 and not s.waiting and (s.prompt_tps or 0) < 1 and (s.generation_tps or 0) > 0
        and (s.kv_usage or 0) < EMPTY_CACHE and not s.preemptions
    ]  # fmt: skip
    rates = [(s.generation_tps or 0) / (s.running or 1) for s in lines]
    if len(lines) < LASTING or median(rates) >= SLOWEST_USUAL:
        return
    rate, running = median(rates), lines[-1].running
    ranks = max((r.world_size for r in case.all(RankAssigned)), default=1)
    shared = (
        f" The model is split over {ranks} GPUs, so each step also waits for the link between them."
        if ranks > 1
        else ""
    )
    remedies = [
        Remedy("Keep all weights on the GPU: offload makes each step read them over PCIe", "remove --cpu-offload-gb"),
        Remedy("Let the engine capture CUDA graphs, if they were switched off", "remove --enforce-eager"),
    ]
    if ranks > 1:
        remedies.insert(0, Remedy("Compare with fewer GPUs, or with pipeline instead of tensor parallelism: over PCIe or Ethernet "
                                  "the exchange of each layer is the limit", flag(case.engine, "tensor-parallel", 1)))  # fmt: skip
    yield finding(
        "decode-very-slow", lines[:3], case=case,
        title=f"Generation is very slow: about {rate:.1f} tokens/s a request with nothing waiting",
        cause=f"{running} requests run at about {rate:.1f} tokens/s each; no prompt is being read, none waits, and the KV cache is "
              f"mostly empty, so the single step is slow, not the scheduling.{shared}",
        remedies=remedies,
        next_checks=(
            Check("Do the GPUs work, at which clock and power?", "nvidia-smi dmon -s pucm -d 1"),
            Check("How are the cards connected, and does NCCL use that?", "nvidia-smi topo -m; NCCL_DEBUG=INFO (look for via P2P/SHM/NET)"),
        ),
        figures={"tokens_per_second_per_request": rate},
    )  # fmt: skip


RULES = (Rule(judge, (ServingStats,), ("decode-very-slow",), (RankAssigned,)),)
