"""What runs on the CPU although a GPU is there: layers that did not fit, were not asked for, or found no device.

Decoding reads all active weights once a token, so the part in host memory sets the pace: a GPU reads about ten times
as fast as the host's memory. Whether more would fit is arithmetic over what the engine printed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import KvPool, ServerReady, Setting
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.placement import (
    BufferPlaced,
    BufferRefused,
    DeviceFound,
    FreeMemory,
    LayersOffloaded,
    OffloadPlan,
)
from loadpath.core.report import Finding, Remedy
from loadpath.core.units import show_bytes, show_count
from loadpath.diagnosis.memory.llama_levers import Q8_SHARE, levers_of
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag

PARTIAL, NOTHING, MARGIN, ON_CPU = "partial-offload", "nothing-offloaded", "gpu-margin-small", "engine-on-cpu"
HIDDEN = "llama-memory-lines-hidden"
SHOWS_MEMORY = 4  # the verbosity from which builds since b9181 print buffers and layers
NOTABLE = 0.12  # of the weights: the embedding alone may be as much in small models
DEFAULT_TARGET = 1 << 30  # bytes that llama.cpp's fit step wants to keep free on each device
SHORT = 4096  # tokens: a context that is short, and of use


def judge(case: Case) -> Iterator[Finding]:
    """Loads whose layers are not all on the GPU: the ones that ran, else the plan."""
    if case.has(BufferRefused) and not case.has(ServerReady):
        return
    loads = _loads(case)
    partial = [load for load in loads if 0 < load.on_gpu < load.total]
    if partial:
        yield _partial(case, partial[-1], loads)
        return
    nothing = [load for load in loads if load.on_gpu == 0]
    if nothing and _has_gpu(case):
        yield _nothing(case, nothing[-1])


def _loads(case: Case) -> list[LayersOffloaded]:
    """One fact a load: the result where it is printed, else the estimate before it."""
    results = [fact for fact in case.all(LayersOffloaded) if not fact.estimate]
    return results or case.all(LayersOffloaded)


def _has_gpu(case: Case) -> bool:
    return any(d.library != "cpu" for d in case.all(DeviceFound)) or any(
        f.device and f.device.upper().startswith(("CUDA", "ROCM")) for f in case.all(FreeMemory)
    ) or any(p.library in ("cuda", "rocm", "vulkan", "metal") for p in case.all(OffloadPlan))  # fmt: skip


def _plan_of(case: Case, load: LayersOffloaded) -> OffloadPlan:
    """The figures printed for this load: those within its lines, merged."""
    others = [n.span.first_line for n in _loads(case) if n.span.first_line < load.span.first_line]
    start = max(others, default=0)
    fields: dict[str, int | None] = {}
    for plan in case.all(OffloadPlan):
        if plan.span.source == load.span.source and start < plan.span.first_line <= load.span.first_line + 80:
            for name in (
                "full_bytes", "planned_bytes", "free_bytes", "kv_bytes", "target_bytes", "projector_bytes", "graph_bytes",
            ):  # fmt: skip
                if (value := getattr(plan, name)) is not None:
                    fields.setdefault(name, value)
    if "free_bytes" not in fields:
        free = [
            f
            for f in case.all(FreeMemory)
            if f.span.source == load.span.source and start < f.span.first_line <= load.span.first_line
        ]
        if free:
            fields["free_bytes"] = free[0].bytes
    pools = [p for p in case.all(KvPool) if p.bytes and start < p.span.first_line <= load.span.first_line + 80]
    if pools and "kv_bytes" not in fields:
        fields["kv_bytes"] = pools[0].bytes or 0
    return OffloadPlan(span=load.span, **fields)  # type: ignore[arg-type]


def _on_host(case: Case, load: LayersOffloaded) -> dict[str, int]:
    """Bytes of weights and cache in host memory. The engine's own plan is preferred: a mapped file shows whole."""
    line, source = load.span.first_line, load.span.source
    others = [n.span.first_line for n in _loads(case) if n.span.source == source and n is not load]
    start = max((other for other in others if other < line), default=0)
    end = min((other for other in others if other > line), default=1 << 60)
    placed = [b for b in case.all(BufferPlaced) if b.span.source == source and start < b.span.first_line < end]
    # Ollama prints its plan before llama.cpp's layers; its own engine prints it after them.
    planned = [b for b in placed if b.planned and b.span.first_line < line] or [b for b in placed if b.planned]
    sums: dict[str, int] = {}
    for buffer in planned or [b for b in placed if b.device not in ("CPU_Mapped", "CUDA_Host")]:
        if not buffer.on_gpu and buffer.part in ("weights", "kv"):
            sums[buffer.part] = sums.get(buffer.part, 0) + buffer.bytes
    return sums


def _partial(case: Case, load: LayersOffloaded, loads: list[LayersOffloaded]) -> Finding:
    plan, host = _plan_of(case, load), _on_host(case, load)
    rest = load.total - load.on_gpu
    amounts = " and ".join(
        f"{show_bytes(host[part])} of {name}"
        for part, name in (("weights", "weights"), ("kv", "KV cache"))
        if host.get(part)
    )
    others = f"the other {rest}" if rest > 1 else "one"
    runs = "run" if rest > 1 else "runs"
    cause = [
        f"{load.on_gpu} of {load.total} layers are on the GPU; {others}{f' ({amounts})' if amounts else ''} "
        f"{runs} on the CPU, which sets the pace of every token."
    ]
    if plan.full_bytes and plan.free_bytes and plan.full_bytes > plan.free_bytes:
        cause.append(
            f"All of it needs {show_bytes(plan.full_bytes)}, {show_bytes(plan.free_bytes)} were available: "
            f"{show_bytes(plan.full_bytes - plan.free_bytes)} too little."
        )
    context = case.setting("ctx-size", "num_ctx", "OLLAMA_CONTEXT_LENGTH")
    if plan.kv_bytes:
        at = f" at {show_count(int(context))} tokens" if context and context.isdigit() else ""
        cause.append(f"The KV cache alone is {show_bytes(plan.kv_bytes)}{at}.")
    if load.requested is not None and load.requested > 0:
        cause.append(f"{load.requested} layers were asked for by the settings.")
    whole = [n for n in loads if n.on_gpu == n.total and n is not load]
    if whole:
        cause.append(f"Another load in this log is wholly on the GPU ({whole[-1].on_gpu}/{whole[-1].total}).")
    facts: list[Fact] = [load, *[b for b in case.all(BufferPlaced) if b.planned and not b.on_gpu][:2]]
    return finding(
        PARTIAL, facts, case=case, cause=" ".join(cause), remedies=_room(case, plan, context),
        title=f"{load.on_gpu} of {load.total} layers are on the GPU: the rest runs on the CPU, so decoding is slow",
        certainty="likely" if load.estimate else None, severity="info" if rest == 1 else None,
        figures={"layers_on_gpu": load.on_gpu, "layers": load.total, "full_bytes": plan.full_bytes, "free_bytes": plan.free_bytes},
    )  # fmt: skip


def _room(case: Case, plan: OffloadPlan, context: str | None) -> list[Remedy]:
    """What brings all layers on the card, each with its computed effect."""
    lever = levers_of(case)
    missing = plan.full_bytes - plan.free_bytes if plan.full_bytes and plan.free_bytes else None
    kv, tokens = plan.kv_bytes, int(context) if context and context.isdigit() else None
    remedies: list[Remedy] = []
    if missing and missing > 0 and kv and tokens and kv > missing:
        fits = _round_down(int(tokens * (1 - missing / kv) * 0.95))
        if fits >= 2048:
            saved = kv * (1 - fits / tokens)
            remedies.append(Remedy(f"Shorten the context to {show_count(fits)} tokens", lever.context(fits),
                                   f"the KV cache shrinks by {show_bytes(saved)}; {show_bytes(missing)} are missing",
                                   {"tokens": fits, "saved_bytes": int(saved)}, True))  # fmt: skip
    if not remedies and (tokens is None or tokens > SHORT):
        remedies.append(Remedy("Shorten the context", lever.context(SHORT), "the KV cache shrinks in proportion"))
    cache = lever.quantised_cache(kv)
    if missing and kv:
        cache = msgspec.structs.replace(cache, suffices=kv * (1 - Q8_SHARE) >= missing)
    remedies.append(cache)
    short = f"{show_bytes(missing)} have to go" if missing and missing > 0 else ""
    remedies.append(Remedy("Take a smaller quantisation of the model, or a smaller model", "", short))
    if experts := lever.experts_on_cpu():
        remedies.append(experts)
    remedies.append(
        Remedy("Free the card of other programs, or add a second one", "nvidia-smi", "what they hold is missing here")
    )
    return remedies


def _round_down(tokens: int) -> int:
    step = 4096 if tokens >= 16384 else 1024
    return tokens // step * step


def _nothing_fits(case: Case, load: LayersOffloaded, plan: OffloadPlan) -> Finding:
    """Ollama's plan found no room for a single layer: what must be there before it is more than what is free."""
    lever = levers_of(case)
    parts = [
        (plan.projector_bytes, "the vision projector with its graph"),
        (plan.graph_bytes, "the model's compute graph"),
    ]
    known = [(size, name) for size, name in parts if size]
    least = sum(size for size, _ in known)
    free = plan.free_bytes or 0
    cause = [
        f"Ollama plans 0 of {load.total} layers for the GPU, so the whole model runs on the CPU: {show_bytes(free)} is available there."
    ]
    if known:
        listed = " and ".join(f"{show_bytes(size)} for {name}" for size, name in known)
        cause.append(
            f"Before the first layer it sets aside {listed}"
            + (
                f", {show_bytes(least)} together, and a layer with its cache and a margin beside."
                if len(known) > 1
                else "."
            )
        )
    if plan.full_bytes and plan.full_bytes < free:
        cause.append(
            f"`required.full` ({show_bytes(plan.full_bytes)}) looks as if it fitted, but is what the model takes without these."
        )
    cause.append("The GPU was found; memory is what is short.")
    context = case.setting("num_ctx", "ctx-size", "OLLAMA_CONTEXT_LENGTH")
    tokens = int(context) // 2 if context and context.isdigit() and int(context) > 4096 else 2048
    remedies = [
        Remedy("Free GPU memory: close other programs and unload other models", "nvidia-smi; ollama ps; ollama stop <model>",
               "the plan is made from what is free at that moment"),
        Remedy("Take a smaller quantisation or a smaller model" + (", or one without vision" if plan.projector_bytes else "")),
        Remedy("Lower the context and the number of parallel requests", f"{lever.context(tokens)}; {lever.slots(1)}",
               "compute graph and KV cache shrink"),
        Remedy("Set the number of layers by hand, if the plan is too careful", flag(lever.engine, "gpu-layers", max(1, load.total // 3)),
               "overrides the plan; out of memory if it was right"),
        Remedy("Update Ollama: newer releases measure instead of estimating", "curl -fsSL https://ollama.com/install.sh | sh"),
    ]  # fmt: skip
    return finding(NOTHING, [load], case=case, cause=" ".join(cause), remedies=remedies, boundary="memory-fit",
                   title=f"0 of {load.total} layers fit on the GPU: the model runs on the CPU",
                   figures={"free_bytes": plan.free_bytes, "least_bytes": least or None})  # fmt: skip


def _nothing(case: Case, load: LayersOffloaded) -> Finding:
    lever = levers_of(case)
    plan = _plan_of(case, load)
    if load.estimate and load.requested != 0 and plan.free_bytes:
        return _nothing_fits(case, load, plan)
    cause = f"None of {load.total} layers is on the GPU, though one was found: the whole model runs on the CPU. It works, and is slow."
    if load.requested == 0:
        cause += " The settings ask for 0 layers."
    else:
        cause += (
            " Either no layers were asked for (llama.cpp before 2026 offloads none by default), or not even one fits "
            "beside its buffers."
        )
    remedies = (
        Remedy(
            "Offload the layers",
            flag(lever.engine, "gpu-layers", load.total if load.total else 99),
            "as many as fit; all of them is best",
        ),
        Remedy("If they do not fit: shorten the context or take a smaller quantisation", lever.context(8192)),
    )
    return finding(NOTHING, [load, *case.all(DeviceFound)[:1]], case=case, cause=cause, remedies=remedies,
                   title=f"A GPU was found, but 0 of {load.total} layers are on it")  # fmt: skip


def margin(case: Case) -> Iterator[Finding]:
    """All on the card, with less left than the fit step wants."""
    plans = case.all(OffloadPlan)
    planned = next((p for p in reversed(plans) if p.planned_bytes and p.free_bytes), None)
    target = next((p.target_bytes for p in reversed(plans) if p.target_bytes), DEFAULT_TARGET)
    if planned is None or planned.planned_bytes is None or planned.free_bytes is None or levers_of(case).ollama:
        return
    left = planned.free_bytes - planned.planned_bytes
    if not 0 <= left < target:
        return
    layers = case.last(LayersOffloaded)
    cause = f"{layers.on_gpu} of {layers.total} layers are on the GPU. " if layers else ""
    cause += (
        f"{show_bytes(planned.planned_bytes)} of {show_bytes(planned.free_bytes)} free device memory are used; "
        f"{show_bytes(left)} are left, below the {show_bytes(target)} that the fit step aims at. It works; a second "
        "program on the card may end it."
    )
    gave_up = next((p for p in reversed(plans) if p.gave_up), None)
    if gave_up is not None:
        cause += f" The fit step changed nothing ({gave_up.gave_up}); that is no error."
    evidence = [planned, *([gave_up] if gave_up else [])]
    yield finding(MARGIN, evidence, case=case, cause=cause, title=f"Only {show_bytes(left)} of the GPU are left free")


def on_cpu(case: Case) -> Iterator[Finding]:
    """Ollama's discovery found nothing, and no later line shows a GPU after all."""
    shown = case.symptoms(ON_CPU)
    if not shown or any(d.library not in ("cpu", "") for d in case.all(DeviceFound)):
        return
    yield finding(ON_CPU, shown, case=case)


def hidden(case: Case) -> Iterator[Finding]:
    """At the default verbosity newer builds say nothing of buffers and layers: what is not shown is not judged."""
    level = next((s for s in reversed(case.all(Setting)) if s.name == "verbosity"), None)
    if level is None or not level.value.isdigit() or int(level.value) >= SHOWS_MEMORY:
        return
    if case.has(BufferPlaced) or case.has(LayersOffloaded) or not (case.has(ServerReady) or case.has(BufferRefused)):
        return
    yield finding(HIDDEN, [level], case=case, values={"level": level.value})


def planned(case: Case) -> Iterator[Finding]:
    """Ollama's own account of its buffers, where the count of layers was not pasted."""
    placed = [b for b in case.all(BufferPlaced) if b.planned and b.part in ("weights", "kv")]
    if case.has(LayersOffloaded) or case.has(BufferRefused) or not placed:
        return
    gpu = sum(b.bytes for b in placed if b.on_gpu and b.part == "weights")
    host = {part: sum(b.bytes for b in placed if not b.on_gpu and b.part == part) for part in ("weights", "kv")}
    if not gpu or host["weights"] < NOTABLE * (gpu + host["weights"]):
        return  # the embedding stays in host memory in every load
    total = next((p.full_bytes for p in reversed(case.all(OffloadPlan)) if p.full_bytes), None)
    share = host["weights"] / (gpu + host["weights"])
    cause = [
        f"{show_bytes(gpu)} of the weights are on the GPU and {show_bytes(host['weights'])} ({share:.0%}) in host memory, so "
        "these layers run on the CPU, which sets the pace of every token."
    ]
    if host["kv"]:
        cause.append(f"{show_bytes(host['kv'])} of the KV cache lie in host memory as well.")
    if total:
        cause.append(f"The whole load takes {show_bytes(total)}.")
    context = case.setting("ctx-size", "num_ctx", "OLLAMA_CONTEXT_LENGTH")
    kv = sum(b.bytes for b in placed if b.part == "kv") or None
    plan = OffloadPlan(span=placed[-1].span, kv_bytes=kv)
    yield finding(
        PARTIAL, placed[:4], case=case, cause=" ".join(cause), remedies=_room(case, plan, context), certainty="likely",
        title=f"{share:.0%} of the weights are in host memory: that part runs on the CPU, so decoding is slow",
    )  # fmt: skip


RULES = (
    Rule(planned, (BufferPlaced,), (PARTIAL,), uses=(OffloadPlan,)),
    Rule(hidden, (Setting,), (HIDDEN,), uses=(BufferPlaced, LayersOffloaded)),
    Rule(judge, (LayersOffloaded,), (PARTIAL, NOTHING), uses=(OffloadPlan, BufferPlaced, FreeMemory, DeviceFound)),
    Rule(margin, (OffloadPlan,), (MARGIN,)),
    Rule(on_cpu, (Symptom,), (ON_CPU,), uses=(DeviceFound,)),
)
