"""The figures of one start, gathered from its facts: what memory rules compute with."""

from __future__ import annotations

import re
from typing import TypeVar

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    Concurrency,
    EngineStarted,
    KvPool,
    KvShortfall,
    MemoryBreakdown,
    ModelNamed,
    WeightsLoaded,
)
from loadpath.core.facts.errors import FreeBelowDesired, OutOfMemory
from loadpath.core.units import GIB
from loadpath.engines import registry as engines
from loadpath.planning.kv import Model, default_utilisation, share_of
from loadpath.planning.names import model_of, scheme_of
from loadpath.planning.remedies import Fit

F = TypeVar("F", bound=Fact)
SHARES = ("gpu-memory-utilization", "mem-fraction-static")
_MULTIMODAL = re.compile(
    r"[-_\d]vl(?:\b|[-_f])|vision|llava|internvl|omni|pixtral|multimodal|minicpm-v|gemma-?3-(?:4|12|27)b"
)
CONTEXTS = ("max-model-len", "context-length", "ctx-size", "max-seq-len", "session-len", "num-ctx")
SEQUENCES = ("max-num-seqs", "max-running-requests", "max-batch-size")
TENSOR = ("tensor-parallel-size", "tp-size", "tp")
PIPELINE = ("pipeline-parallel-size", "pp-size", "pp")


def engine_of(case: Case, fact: Fact | None = None) -> str | None:
    """The engine at hand: as the case knows it, as the fact says, or by the capture that the fact stands in."""
    if case.engine:
        return case.engine
    if said := getattr(fact, "engine", None):
        return str(said)
    capture = case.capture_of(fact) if fact else None
    entry = engines.by_kind(capture.kind) if capture else None
    return entry.engine if entry else "vllm" if isinstance(fact, KvShortfall) else None


def of_run(case: Case, kind: type[F], like: Fact | None) -> list[F]:
    """The facts of a type from the same source and run as `like` (all of them where `like` is None)."""
    facts = case.all(kind)
    if like is None:
        return facts
    same = [f for f in facts if f.span.source == like.span.source and f.run == like.run]
    return same or [f for f in facts if f.span.source == like.span.source]


def number(case: Case, *names: str) -> float | None:
    """The value of a setting as a number; `8k` and `1m` as people write them."""
    found = re.match(r"\s*([\d.,]+)\s*([kKmM]?)\s*$", case.setting(*names) or "")
    if not found:
        return None
    try:
        value = float(found[1].replace(",", ""))
    except ValueError:
        return None
    return value * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}[found[2]]


def count(case: Case, *names: str) -> int | None:
    value = number(case, *names)
    return None if value is None else int(value)


def breakdown_of(case: Case, like: Fact | None = None) -> MemoryBreakdown | None:
    """The profiling figures of a run in one fact: engines print them over several lines; the tightest rank counts."""
    parts = of_run(case, MemoryBreakdown, like)
    if not parts:
        return None
    fields: dict[str, float] = {}
    for part in parts:
        for name in (
            "total_bytes", "utilisation", "budget_bytes", "free_bytes", "weights_bytes", "non_torch_bytes", "activation_bytes",
            "graph_bytes", "consumed_bytes",
        ):  # fmt: skip
            if (value := getattr(part, name)) is not None:
                fields[name] = value
        if part.kv_bytes is not None:
            fields["kv_bytes"] = min(part.kv_bytes, fields.get("kv_bytes", part.kv_bytes))
    _derive_activation(fields, weights_of(case, like))
    last = parts[-1]
    return MemoryBreakdown(span=last.span, origin=last.origin, text=last.text, run=last.run, **fields)  # type: ignore[arg-type]


def _derive_activation(fields: dict[str, float], weights: WeightsLoaded | None) -> None:
    """The activation peak where a version prints all but it: what the budget loses beside weights, rest and KV share."""
    loaded = fields.get("weights_bytes") or (weights.bytes if weights else None)
    budget = fields.get("budget_bytes")
    if (
        "activation_bytes" in fields
        or "consumed_bytes" in fields
        or budget is None
        or loaded is None
        or "kv_bytes" not in fields
    ):
        return
    peak = (
        budget - fields["kv_bytes"] - loaded - fields.get("non_torch_bytes", 0) - max(0, fields.get("graph_bytes", 0))
    )
    if peak > 0:
        fields["activation_bytes"] = int(peak)


def weights_of(case: Case, like: Fact | None = None) -> WeightsLoaded | None:
    """The weights of the rank that holds most."""
    loaded = [w for w in of_run(case, WeightsLoaded, like) if w.bytes is not None]
    return max(loaded, key=lambda w: w.bytes or 0, default=None)


def pool_of(case: Case, like: Fact | None = None) -> KvPool | None:
    """The KV pool of the rank that holds fewest tokens."""
    pools = [p for p in of_run(case, KvPool, like) if p.tokens is not None or p.bytes is not None or p.blocks]
    return min(pools, key=lambda p: p.tokens or 1 << 60, default=None)


def model_name(case: Case) -> str | None:
    named = next((m.name for m in reversed(case.all(ModelNamed)) if m.name), None)
    return named or case.setting("model", "model-path", "model-id", "model-tag", "model_type", "model-type")


def named_model(case: Case) -> Model | None:
    """The model's size by its name, with the stored bits that a quantisation setting tells."""
    return model_of(model_name(case))


def named_size(case: Case) -> str:
    """ "32B parameters take about 60 GiB of weights at 16 bits" of a model whose name tells its size."""
    model = named_model(case)
    if model is None:
        return ""
    size = model.weight_bytes / GIB
    return f"{model.parameters / 1e9:g}B parameters take about {size:.0f} GiB of weights at {model.stored_bits} bits"


def weight_bits(case: Case) -> int:
    """Bits of a stored weight, by the quantisation setting or the model's name; 16 where nothing says otherwise."""
    said = f"{case.setting('quantization', 'quantize') or ''} {model_name(case) or ''}"
    scheme = scheme_of(said)
    if not scheme and (named := named_model(case)):
        return named.stored_bits if named.stored_bits in (4, 8) else 16
    return {"4-bit": 4, "8-bit": 8}.get(scheme, 4 if scheme else 16)


def kv_bits(case: Case, pool: KvPool | None = None) -> int:
    said = (pool.dtype if pool else None) or case.setting("kv-cache-dtype", "cache-type-k") or ""
    return 8 if re.search(r"fp8|int8|q8|e4m3|e5m2|fp4|int4|q4", said) else 16


def total_of(case: Case, breakdown: MemoryBreakdown | None) -> int | None:
    """Memory of the GPU at hand: from the profile, or from any message that states it."""
    if breakdown and breakdown.total_bytes:
        return breakdown.total_bytes
    said: list[FreeBelowDesired | OutOfMemory] = [*case.all(FreeBelowDesired), *case.all(OutOfMemory)]
    return next((f.total_bytes for f in said if f.total_bytes), None)


def share_setting(case: Case, breakdown: MemoryBreakdown | None = None) -> float | None:
    """The share of the GPU that the engine may use: as profiled, as set, or vLLM's default for its version."""
    if breakdown and breakdown.utilisation:
        return breakdown.utilisation
    if (value := number(case, *SHARES)) is not None and 0 < value <= 1:
        return value
    return default_utilisation(case.version) if case.engine == "vllm" and case.version else None


def is_hybrid(case: Case) -> bool:
    """Whether the model keeps some layers' cache at a fixed size (as far as its names tell)."""
    said = " ".join(f"{m.name} {m.architecture}" for m in case.all(ModelNamed)).lower()
    return bool(
        re.search(
            r"mamba|jamba|hybrid|qwen3[-_.]?next|qwen3\.[5-9]|gemma-?[23n]|gpt-oss|nemotron-?h|granite-?4|falcon-?h1|bamba",
            said,
        )
    )


def is_v1(case: Case) -> bool:
    """Whether vLLM's second engine is at work: by version, or by its processes (`EngineCore`, `Worker_TP0`)."""
    if case.version is not None and case.engine == "vllm":
        started = case.last(EngineStarted)
        return case.version >= (0, 8) and (started is None or started.generation != "V0")
    return any((f.origin.process or "").startswith(("EngineCore", "Worker", "VllmWorker ")) for f in case.facts)


def on_cpu(case: Case) -> bool:
    """Whether the engine's worker runs on the CPU (vLLM's CPU backend): its memory is the host's."""
    return any((f.origin.location or "").startswith("cpu_worker") for f in case.facts)


def is_multimodal(case: Case) -> bool:
    """Whether the model takes images, by its names."""
    said = [f"{m.name} {m.architecture}" for m in case.all(ModelNamed)] + [model_name(case) or ""]
    return bool(_MULTIMODAL.search(" ".join(said).lower()))


def fit_of(case: Case, like: Fact | None = None, shortfall: KvShortfall | None = None) -> Fit:
    """What is known of one start, from the facts of the run that `like` belongs to."""
    breakdown, weights, pool = breakdown_of(case, like), weights_of(case, like), pool_of(case, like)
    served = (of_run(case, Concurrency, like) or [None])[-1]  # type: ignore[list-item]
    kv = shortfall.available_bytes if shortfall and shortfall.available_bytes is not None else None
    if kv is None and breakdown is not None:
        kv = share_of(breakdown, weights, case.version)
        kv = breakdown.kv_bytes if kv is None else kv
    if kv is None and pool is not None:
        kv = pool.bytes
    context = shortfall.asked_tokens if shortfall else served.context_tokens if served else None
    tokens = (shortfall.held_tokens or shortfall.estimated_tokens) if shortfall else pool.tokens if pool else None
    ratio = None
    if shortfall and shortfall.held_tokens is not None and shortfall.asked_tokens:
        ratio = shortfall.held_tokens / shortfall.asked_tokens
    elif shortfall is None and served is not None:
        ratio = served.ratio
    return Fit(
        context=context,
        tokens=tokens,
        kv_bytes=kv,
        needed_bytes=shortfall.needed_bytes if shortfall else None,
        ratio=ratio,
        total_bytes=total_of(case, breakdown),
        share=share_setting(case, breakdown) if case.engine in (None, "vllm") else None,
        weights_bytes=(breakdown.weights_bytes if breakdown else None) or (weights.bytes if weights else None),
        activation_bytes=breakdown.activation_bytes if breakdown else None,
        graph_bytes=breakdown.graph_bytes if breakdown else None,
        weight_bits=weight_bits(case),
        kv_bits=kv_bits(case, pool),
        tensor_parallel=count(case, *TENSOR) or 1,
        heads=count(case, "num-attention-heads"),
        kv_heads=count(case, "num-key-value-heads"),
    )
