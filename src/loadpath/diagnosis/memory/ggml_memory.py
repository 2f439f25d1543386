"""A buffer that llama.cpp (or Ollama around it) could not allocate: which part, on which device, and what makes room.

llama.cpp allocates in this order: weights, KV cache, compute buffer. So what failed tells what already fitted, and
each part has its own lever: layers for the weights, context and cache type for the KV cache, batch and flash attention
for the compute buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import ServerReady, Setting, StepMark
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.placement import (
    BufferPlaced,
    BufferRefused,
    FreeMemory,
    LayersOffloaded,
    ModelFile,
    OffloadPlan,
    is_gpu,
)
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import GIB, MIB, show_bytes, show_count
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.memory import oom_words
from loadpath.diagnosis.memory.llama_levers import Levers, levers_of
from loadpath.diagnosis.rule import Rule, finding
from loadpath.knowledge.tables import findings

ROWS = {"weights": "llama-weights-over-gpu", "kv": "llama-kv-over-memory", "compute": "llama-compute-over-gpu"}
RETRIED = "llama-without-pipeline-parallelism"
RUNTIME = "llama-runtime-out-of-memory"
DEFAULT_UBATCH = 512
# What says that the load was given up, within so many lines of the refusal.
GIVEN_UP = ("llama-load-failed", "ollama-runner-ended", "ollama-runner-out-of-memory")
NEAR = 80
# Lines of a request: an image or a prompt that is being worked on.
REQUEST = ("image encoded", "encoding image", "image decoded", "update_slots", "launch_slot", "prompt eval", "processing task",
           "/api/chat", "/api/generate", "/v1/chat", "/completion", "llama_decode")  # fmt: skip


class Load(NamedTuple):
    """What is known of the load in which a buffer was refused."""

    context: int | None
    ubatch: int | None
    flash: str | None
    layers: int | None
    free_bytes: int | None
    placed: list[BufferPlaced]
    levers: Levers


def judge(case: Case) -> Iterator[Finding]:
    refused = case.all(BufferRefused)
    # The last refusal counts: a fitting pass or a retry may have been refused before and coped.
    by_part: dict[str, list[BufferRefused]] = {}
    for fact in refused:
        by_part.setdefault(fact.part, []).append(fact)
    last = refused[-1]
    retries = case.symptoms(RETRIED)
    if retries:
        yield _retried(case, retries, refused)
    if _coped(case, last):
        return
    same = by_part[last.part]
    load = _load(case, last)
    if last.part == "weights":
        yield _weights(case, last, same, load)
    elif last.part == "kv":
        yield _kv(case, last, same, load)
    elif last.part == "compute":
        yield _compute(case, last, same, load)
    else:
        yield _runtime(case, last, same, load)


def _retried(case: Case, retries: list[Symptom], refused: list[BufferRefused]) -> Finding:
    """A compute buffer with several copies was refused, and the retry with one went through (or is still to come)."""
    before = [f for f in refused if f.span.first_line < retries[0].span.first_line and f.bytes]
    cause = []
    if before:
        cause.append(
            f"{_size(before[-1])} were asked of {_where(before[-1])} for a compute buffer with several copies, and refused."
        )
    went = _coped(case, refused[-1])
    cause.append(
        "llama.cpp tried again without pipeline parallelism"
        + (
            ", that fitted, and the start went on: nothing is broken."
            if went
            else "; how that ended is not in these lines."
        )
    )
    cause.append(
        "Only the overlap of prompts over several GPUs is lost: long prompts are read more slowly, decoding is as fast."
    )
    return finding(RETRIED, [*before[-1:], *retries], case=case, cause=" ".join(cause))


def _coped(case: Case, fact: BufferRefused) -> bool:
    """Whether the load went on after it: the server got ready, or a retry placed its compute buffer or made its slots."""
    passed_on = [s for s in case.all(Symptom) if s.finding in GIVEN_UP and s.span.source == fact.span.source]
    if any(0 <= s.span.first_line - fact.span.first_line < NEAR for s in passed_on):
        return False
    later: list[Fact] = [
        *case.all(ServerReady), *[b for b in case.all(BufferPlaced) if b.part == "compute"],
        *[s for s in case.all(Setting) if s.name == "parallel" and "n_slots" in s.text],
        *[m for m in case.all(StepMark) if m.step == "weight-load" and m.event == "ended" and m.seconds is not None],
    ]  # fmt: skip
    return any(f.span.source == fact.span.source and f.span.first_line > fact.span.first_line for f in later)


def _setting(case: Case, *names: str) -> int | None:
    value = case.setting(*names)
    return int(value) if value and value.lstrip("-").isdigit() else None


def _load(case: Case, fact: BufferRefused) -> Load:
    line, source = fact.span.first_line, fact.span.source
    placed = [b for b in case.all(BufferPlaced) if b.span.source == source and b.span.first_line < line]
    free = [f for f in case.all(FreeMemory) if f.span.source == source and f.span.first_line < line]
    plans = [p for p in case.all(OffloadPlan) if p.free_bytes and p.span.first_line < line]
    known_free = next((f.bytes for f in reversed(free)), None) or next((p.free_bytes for p in reversed(plans)), None)
    layers = next((n.total for n in reversed(case.all(LayersOffloaded))), None)
    return Load(
        context=_setting(case, "ctx-size", "num_ctx"), ubatch=_setting(case, "ubatch-size"),
        flash=case.setting("flash-attn"), layers=layers, free_bytes=known_free, placed=placed, levers=levers_of(case),
    )  # fmt: skip


def _where(fact: BufferRefused) -> str:
    if not fact.on_gpu:
        return "host memory"
    if fact.device == "CUDA":
        return "the GPU"
    index = fact.device.lstrip("CUDAROMVulkan")
    return f"device {index} ({fact.device})" if index else fact.device


def _size(fact: BufferRefused) -> str:
    """ "9000 MiB (8.79 GiB)": the figure as printed and readable."""
    if fact.bytes is None:
        return "a buffer"
    mib = f"{fact.bytes / MIB:.0f} MiB"
    return f"{mib} ({show_bytes(fact.bytes)})" if fact.bytes >= GIB else mib


def _weights(case: Case, fact: BufferRefused, same: list[BufferRefused], load: Load) -> Finding:
    size, where = _size(fact), _where(fact)
    on_gpu = fact.on_gpu
    pieces = f"The weights for {where} are {size} in one piece, and the allocator refused them."
    cause = [pieces if fact.bytes else f"The allocator refused the buffer for the weights on {where}."]
    if load.free_bytes and on_gpu:
        cause.append(f"{show_bytes(load.free_bytes)} were free on the GPU.")
    elif on_gpu:
        cause.append(
            f"All layers that -ngl asks for go to this one device, and it does not have {show_bytes(fact.bytes)} free."
            if fact.bytes
            else ""
        )
    files = [f for f in case.all(ModelFile) if f.bytes]
    if files:
        kind = next((f.file_type for f in case.all(ModelFile) if f.file_type), None)
        cause.append(f"The file holds {show_bytes(files[-1].bytes or 0)}{f' ({kind})' if kind else ''}.")
    cause.append("The KV cache comes after the weights, so a shorter context alone does not help." if on_gpu else "")
    lever = load.levers
    remedies = [
        lever.fewer_layers(_fitting_layers(fact, load)),
        lever.experts_on_cpu(),
        lever.shift(fact.device)
        if _several(load) or not fact.device.endswith("0")
        else Remedy("Split the model over more GPUs", lever.split(), "each device holds its share of the layers"),
        Remedy("Take a smaller quantisation of the model", "", _quantised(case, fact)),
    ]
    if not on_gpu:
        remedies = [
            remedies[3],
            Remedy("Map the file instead of reading it into memory, or put more layers on the GPU", lever.mapped()),
        ]
    return finding(
        ROWS["weights"], [*_placed_on(load, fact), *same[-3:]], case=case, cause=" ".join(filter(None, cause)),
        title=f"The weights do not fit: {show_bytes(fact.bytes)} asked of {where}" if fact.bytes else f"The weights do not fit {where}",
        remedies=[r for r in remedies if r is not None], next_checks=_checks(on_gpu, load.levers), figures={"requested_bytes": fact.bytes},
        boundary="memory-fit" if on_gpu else "host-limits",
    )  # fmt: skip


def _several(load: Load) -> bool:
    """Whether the load uses more than one GPU."""
    return len({b.device for b in load.placed if b.on_gpu}) > 1


def _fitting_layers(fact: BufferRefused, load: Load) -> int | None:
    """Layers that would fit the free memory with a tenth kept for cache and compute; None where unknown."""
    if not (fact.bytes and load.free_bytes and load.layers):
        return None
    return max(0, int(load.layers * 0.9 * load.free_bytes / fact.bytes))


def _quantised(case: Case, fact: BufferRefused) -> str:
    bits = next((f.bits_per_weight for f in reversed(case.all(ModelFile)) if f.bits_per_weight), None)
    if bits is None or fact.bytes is None or bits <= 5:
        return "a 4-bit file (Q4_K_M) takes about 4.9 bits a weight"
    smaller, now = show_bytes(fact.bytes * 4.9 / bits), show_bytes(fact.bytes)
    return f"Q4_K_M takes about {smaller} where this file ({bits:g} bits a weight) takes {now}"


def _kv(case: Case, fact: BufferRefused, same: list[BufferRefused], load: Load) -> Finding:
    size, where = _size(fact), _where(fact)
    context = f" for n_ctx {load.context}" if load.context else ""
    cause = [f"The KV cache{context} takes {size} of {where}, which is not there; the weights had been placed before."]
    cause.append("llama.cpp allocates it whole at the start, whatever the requests will use.")
    trained = next((f.trained_tokens for f in case.all(ModelFile) if f.trained_tokens), None)
    if trained and load.context and load.context > trained:
        cause.append(f"The model was trained for {show_count(trained)} tokens: more context than that gains nothing.")
    lever = load.levers
    shorter = min(trained or 1 << 60, (load.context or 0) // 2) if load.context else None
    target = min(trained, load.context) if trained and load.context and trained < load.context else shorter
    after = f"the KV cache shrinks to about {show_bytes(fact.bytes * target / load.context)}" if (
        fact.bytes and target and load.context) else "the KV cache shrinks in proportion"  # fmt: skip
    remedies = [
        Remedy(
            "Lower the context" + (f" to {show_count(target)} tokens" if target else ""),
            lever.context(target or 8192),
            after,
        ),
        lever.quantised_cache(fact.bytes),
        Remedy("Run fewer slots, if each needs its own context", lever.slots(1), "one slot keeps the whole context"),
    ]
    if fact.on_gpu:
        remedies.insert(2, lever.shift(fact.device) if _several(load) else lever.fewer_layers(None))
    return finding(
        ROWS["kv"], [*_context_facts(case), *_placed_on(load, fact), *same[-2:]], case=case, cause=" ".join(cause),
        title=f"The KV cache{context} does not fit" + (f": {show_bytes(fact.bytes)} of {where}" if fact.bytes else f" {where}"),
        remedies=[r for r in remedies if r is not None],
        boundary="memory-fit" if fact.on_gpu else "host-limits" if not load.context else "memory-fit",
        next_checks=_checks(fact.on_gpu, load.levers), figures={"requested_bytes": fact.bytes, "context_tokens": load.context},
    )  # fmt: skip


def _compute(case: Case, fact: BufferRefused, same: list[BufferRefused], load: Load) -> Finding:
    size, where = _size(fact), _where(fact)
    context = f" (n_ctx {load.context})" if load.context else ""
    cause = [
        f"The compute buffer{context} needs {size} on {where} and could not be allocated; weights and KV cache had been placed."
    ]
    kv = [b for b in load.placed if b.part == "kv"]
    if kv:
        held = sum(b.bytes for b in kv)
        place = (
            "host memory"
            if not any(b.on_gpu for b in kv)
            else "the GPU"
            if all(b.on_gpu for b in kv)
            else "GPU and host"
        )
        cause.append(f"The KV cache ({held / MIB:.0f} MiB) is in {place}; it is not what failed.")
    no_flash = load.flash in ("0", "disabled", "off", "false")
    if load.flash is None or no_flash:
        cause.append("Without flash attention this buffer grows with context x ubatch x heads.")
    lever = load.levers
    ubatch = load.ubatch or DEFAULT_UBATCH
    copies = _setting(case, "pipeline-copies")
    if copies and copies > 1:
        cause.append(
            f"Pipeline parallelism over the GPUs keeps {copies} copies of the batch's inputs, which multiplies it."
        )
    smaller = max(64, ubatch // 4)
    half = (load.context or 0) // 4
    remedies = [
        Remedy("Lower the context" + (f" from {show_count(load.context)}" if load.context else ""),
               lever.context(max(4096, half) if half else 8192), "KV cache and compute buffer shrink in proportion"),
        Remedy("Switch flash attention on", lever.flash(), "the buffer no longer grows with the context")
        if load.flash not in ("1", "enabled", "true") else None,
        Remedy("Lower the physical batch", lever.ubatch(smaller),
               f"the buffer shrinks about {ubatch // smaller} times; prompts are read more slowly"),
        lever.quantised_cache(sum(b.bytes for b in kv if b.on_gpu) or None),
        lever.one_copy() if copies and copies > 1 else lever.fewer_layers(None),
    ]  # fmt: skip
    return finding(
        ROWS["compute"], [*_context_facts(case), *kv[:2], *same[-2:]], case=case, cause=" ".join(cause),
        title="The compute buffer does not fit" + (f": {show_bytes(fact.bytes)} of {where}" if fact.bytes else f" {where}"),
        remedies=[r for r in remedies if r is not None], next_checks=_checks(fact.on_gpu, load.levers),
        figures={"requested_bytes": fact.bytes, "context_tokens": load.context},
    )  # fmt: skip


def _runtime(case: Case, fact: BufferRefused, same: list[BufferRefused], load: Load) -> Finding:
    size, where = _size(fact), _where(fact)
    if fact.bytes is not None:
        cause = [f"{size} on {where} were refused; the lines do not say what they were for."]
    else:
        image = oom_words.says(case, fact, "image encoded", "encoding image", "image decoded")
        doing = "a request with an image" if image else "a batch"
        cause = [
            f"The GPU's allocator refused scratch memory on {where} (in {fact.reason}) while {doing} was computed; the model "
            "had been loaded."
        ]
        cause.append(
            "The start left too little free: ggml's scratch pool grows with batch and context and is not reserved."
        )
    gpu = [b for b in load.placed if b.on_gpu]
    if gpu:
        cause.append(f"The start had placed {show_bytes(sum(b.bytes for b in gpu))} on the GPU.")
    lever = load.levers
    remedies = [
        lever.fewer_layers(None), Remedy("Lower the context", lever.context(8192), "frees KV cache for scratch"),
        Remedy("Lower the physical batch", lever.ubatch(128), "less scratch a step"), lever.quantised_cache(None),
    ]  # fmt: skip
    row = RUNTIME
    step = _runtime_step(case, fact)
    return finding(
        row, same[-3:], case=case, cause=" ".join(cause), remedies=[r for r in remedies if r is not None],
        next_checks=_checks(fact.on_gpu, load.levers), step=step,
        title=f"Out of memory on {where}: {size} refused" if fact.bytes else None,
        certainty="likely" if fact.bytes else None,
    )  # fmt: skip


def _runtime_step(case: Case, fact: BufferRefused) -> FindingStep | None:
    """Scratch is taken by computing: by a request, or by the warm-up run where the load's own lines stand before it."""
    if case.has(ServerReady) or (fact.bytes is None and oom_words.says(case, fact, *REQUEST)):
        return None
    loaded = any(
        f.span.first_line < fact.span.first_line for f in [*case.all(BufferPlaced), *case.all(LayersOffloaded)]
    )
    if fact.bytes is not None:
        return findings()[ROWS["weights"]].step  # type: ignore[return-value]
    return "warm-up" if loaded else None


def _context_facts(case: Case) -> list[Fact]:
    return [*[s for s in case.all(Setting) if s.name == "ctx-size"][-1:]]


def _placed_on(load: Load, fact: BufferRefused) -> list[BufferPlaced]:
    return [b for b in load.placed if b.device == fact.device or (not fact.on_gpu and not is_gpu(b.device))][-2:]


def _checks(on_gpu: bool, lever: Levers) -> tuple[Check, ...]:
    if on_gpu and lever.ollama:
        return (Check("What is free on the card, and who holds the rest?", "nvidia-smi"),
                Check("How is the loaded model split between GPU and CPU?", "ollama ps"))  # fmt: skip
    if on_gpu:
        return (Check("What is free on the cards, and who holds the rest?", "nvidia-smi"),
                Check("What would a given setting take?", "llama-server -lv 4 … 2>&1 | grep -E 'buffer size|projected'"))  # fmt: skip
    return (
        Check("What is free in host memory, and is there a container limit?", "free -g; cat /sys/fs/cgroup/memory.max"),
    )


RULES = (Rule(judge, (BufferRefused,), (*ROWS.values(), RUNTIME, RETRIED), uses=(BufferPlaced, FreeMemory, ModelFile)),)
