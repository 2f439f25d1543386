"""Model shape against parallel size: what does not divide, and which sizes would."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.errors import Symptom
from loadpath.core.report import Check, Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

LARGEST_NODE = 8  # ranks that people have in one node
KERNELS = {
    "min_thread_k": "the Marlin kernel's tile",
    "min_thread_n": "the Marlin kernel's tile",
    "group_size": "the quantisation group",
}


def heads(case: Case) -> Iterator[Finding]:
    """The attention heads are not divisible by the tensor-parallel size: the divisors are the remedy."""
    shown = [s for s in case.all(Symptom) if s.finding == "tensor-parallel-does-not-divide-heads"]
    if not shown:
        return
    total, ranks = int(shown[0].groups["heads"]), int(shown[0].groups["ranks"])
    sizes = [n for n in range(1, total + 1) if total % n == 0]
    below = max((n for n in sizes if n < ranks), default=1)
    above = next((n for n in sizes if n > ranks), None)
    usable = ", ".join(str(n) for n in sizes if n <= max(LARGEST_NODE, 2 * ranks))
    engine = case.engine or "vllm"
    remedies = [
        Remedy(f"Use {below} GPUs for tensor parallelism, which divides {total} heads",
               flag(engine, "tensor-parallel", below), f"{total // below} heads on each GPU"),
        Remedy(f"Keep {ranks} GPUs and split by layers instead: pipeline parallelism has no such condition",
               f"{flag(engine, 'pipeline-parallel', ranks)} {flag(engine, 'tensor-parallel', 1)}".strip()),
    ]  # fmt: skip
    if above is not None and above <= LARGEST_NODE:
        remedies.insert(1, Remedy(f"Or {above} GPUs, if there are so many", flag(engine, "tensor-parallel", above)))
    yield finding(
        "tensor-parallel-does-not-divide-heads", shown, case=case,
        title=f"{total} attention heads cannot be divided by tensor-parallel size {ranks}",
        cause=f"Tensor parallelism gives every GPU the same number of attention heads, and {total} heads are not "
              f"divisible by {ranks}. Sizes that divide them: {usable}.",
        remedies=remedies, figures={"heads": total, "ranks": ranks, "divisors": sizes},
    )  # fmt: skip


def shard(case: Case) -> Iterator[Finding]:
    """A quantised layer's share per rank is no multiple of the kernel's tile or group."""
    shown = [s for s in case.all(Symptom) if s.finding == "quantised-shard-not-a-multiple"]
    if not shown:
        return
    groups = next((s.groups for s in shown if "share" in s.groups), {})
    ranks = _ranks(case)
    engine = case.engine or "vllm"
    smaller = max(1, ranks // 2) if ranks else None
    if groups:
        share, tile = int(groups["share"]), int(groups["tile"])
        unit = KERNELS.get(groups["unit"], "the FP8 weight block")
        title = f"A GPU's share of a quantised layer ({share}) is no multiple of {tile}"
        cause = [f"Split over the tensor-parallel ranks, a layer leaves {share} rows or columns to each GPU, and {unit} "
                 f"({groups['unit']}) needs a multiple of {tile}: {share} / {tile} = {share / tile:g}."]  # fmt: skip
        if ranks and ranks > 1:
            whole = share * ranks
            fitting = [n for n in range(1, ranks) if whole % n == 0 and (whole // n) % tile == 0]
            cause.append(f"The whole layer has {whole} over {ranks} ranks.")
            if fitting:
                smaller = max(fitting)
                cause.append(f"{smaller} ranks would leave {whole // smaller} to each, a multiple of {tile}.")
            else:
                smaller = None
                cause.append(f"No smaller number of ranks gives a multiple of {tile} either: another kernel is needed.")
    else:
        title = "A quantised layer's share per GPU does not fit the quantisation groups"
        cause = ["Split over the tensor-parallel ranks, a layer's share is no whole number of quantisation groups."]
    cause.append("The limit is the kernel's layout, not memory.")
    remedies = [
        Remedy("Use a tensor-parallel size at which each share is a whole multiple: usually a smaller one",
               flag(engine, "tensor-parallel", smaller or 1))
        if smaller is not None or not groups else
        Remedy("Split by layers instead: a pipeline stage keeps its layers whole", flag(engine, "pipeline-parallel", ranks)),
        Remedy("Use a kernel without that condition", flag(engine, "quantisation", "gptq"),
               "slower than Marlin; only for GPTQ checkpoints")
        if groups.get("unit", "").startswith("min_thread") else
        Remedy("For a mixture of experts: give each GPU whole experts instead of slices", "--enable-expert-parallel"),
    ]  # fmt: skip
    yield finding(
        "quantised-shard-not-a-multiple", shown, case=case, title=title, cause=" ".join(cause), remedies=remedies,
        next_checks=(
            Check("Which sizes does the model have, and how large are its quantisation groups?",
                  "grep -E 'intermediate_size|hidden_size|group_size|weight_block' MODEL/config.json"),
        ),
    )  # fmt: skip


def _ranks(case: Case) -> int | None:
    value = case.setting("tensor-parallel-size", "tp-size", "tp")
    return int(value) if value and value.isdigit() else None


RULES = (
    Rule(heads, (Symptom,), ("tensor-parallel-does-not-divide-heads",)),
    Rule(shard, (Symptom,), ("quantised-shard-not-a-multiple",)),
)
