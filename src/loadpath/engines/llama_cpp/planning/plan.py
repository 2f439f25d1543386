"""A deployment on llama.cpp, planned: what each GPU and the host hold, and the lines of its start."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from loadpath.core.plan import Basis, GpuPlan, Identity, Plan, PlanPart
from loadpath.core.shape import ModelShape, Quantisation
from loadpath.core.units import show_bytes
from loadpath.engines.llama_cpp.planning import builds, compute
from loadpath.engines.llama_cpp.planning.kv import rows
from loadpath.engines.llama_cpp.planning.lines import Start, lines
from loadpath.engines.llama_cpp.planning.mixes import base_type
from loadpath.engines.llama_cpp.planning.options import Options, options
from loadpath.engines.llama_cpp.planning.placement import (
    Fitted,
    Load,
    Machine,
    Use,
    fitted,
    load,
)
from loadpath.engines.llama_cpp.planning.sizes import sizes
from loadpath.planning.deployment import Card, Deployment
from loadpath.planning.identity import identity

DEFAULT_TYPE = "Q4_K_M"
"""What llama-server downloads of a repository where no type is named."""
CONTEXT_BYTES = {"datacentre": 500 << 20, "other": 150 << 20}
"""What llama.cpp's own CUDA context takes of a card before it asks for the free memory (public logs: 503 MiB on an A100;
102 on a T4, 140 on an RTX 3090, 167 on a Quadro RTX 8000)."""
DATACENTRE = ((7, 0), (8, 0), (9, 0), (10, 0), (10, 3))
UNACCOUNTED_BYTES = 250 << 20
"""cuBLAS and kernels' own memory beside the buffers, once it computes (200 to 350 MiB in the exit tables of public logs)."""
_TAG = re.compile(r":((?:UD-)?[A-Za-z0-9_]+)$")


def plan(deployment: Deployment) -> Plan:
    """The plan of `deployment`; its figures are those of the GPU with the least room left."""
    return plan_with(deployment, options(deployment), "llama.cpp")


def plan_with(deployment: Deployment, o: Options, engine: str) -> Plan:
    """The plan for options made elsewhere (Ollama, which starts llama-server with its own)."""
    file_type, assumed = file_type_of(deployment)
    machine = _machine(deployment, o, file_type)
    chosen = fitted(machine)
    refused = _refused(machine, chosen.load)
    start = Start(
        model=deployment.shape.id, architecture=deployment.shape.family, file_type=_shown(file_type),
        file_bytes=machine.sizes.file_bytes, parameters=deployment.shape.parameters or 0,
        trained=deployment.shape.max_position, options=o, fitted=chosen, refused=refused,
        cards=tuple(_card_line(card, free) for card, free in zip(deployment.cards, machine.free, strict=True)),
    )  # fmt: skip
    return _as_plan(deployment, engine, machine, chosen, start, file_type, assumed)


def file_type_of(deployment: Deployment) -> tuple[str, bool]:
    """(file type, whether it is only assumed): by the file, the repository's tag, or the model's stored format."""
    checkpoint, quantisation = deployment.checkpoint, deployment.shape.quantisation
    if checkpoint is not None and checkpoint.format == "gguf" and checkpoint.file_type:
        return checkpoint.file_type, False
    if (tag := _TAG.search(deployment.settings.get("hf-repo", ""))) and base_type(tag[1].upper().removeprefix("UD-")):
        return tag[1].upper().removeprefix("UD-"), tag[1].upper().startswith("UD-")
    if quantisation is not None and quantisation.method == "gguf":
        kind = (quantisation.format or DEFAULT_TYPE).upper()
        return kind, base_type(kind) is None
    if quantisation is not None and "mxfp4" in (quantisation.format, quantisation.expert_format):
        return "MXFP4_MOE", False
    return DEFAULT_TYPE, True


def _machine(deployment: Deployment, o: Options, file_type: str) -> Machine:
    shape, checkpoint = deployment.shape, deployment.checkpoint
    gguf = checkpoint is not None and checkpoint.format == "gguf"
    return Machine(
        sizes=sizes(shape, checkpoint, file_type, o.overrides), rows=rows(shape.layers, o.build),
        wide=compute.widths(shape.layers, shape.hidden, shape.vocab),
        free=tuple(free_of(card) for card in deployment.cards), options=o, known_order=gguf,
    )  # fmt: skip


def free_of(card: Card) -> int:
    """Free bytes as llama.cpp sees them: its own CUDA context is there already."""
    free = card.total_bytes if card.free_bytes is None else min(card.free_bytes, card.total_bytes)
    return free - context_of(card)


def context_of(card: Card) -> int:
    """Bytes of llama.cpp's CUDA context on the card."""
    return CONTEXT_BYTES["datacentre" if card.capability in DATACENTRE else "other"]


def _refused(machine: Machine, one: Load) -> tuple[int, str] | None:
    """The first buffer that finds no room: all weights are allocated first, then caches, then compute buffers; what the
    kernels take themselves comes with the first pass (`pass`)."""
    for part in ("weights", "kv", "compute", "pass"):
        for device, (use, free) in enumerate(zip(one.gpus, machine.free, strict=False)):
            held = use.weights
            held += use.cache + use.state if part != "weights" else 0
            held += use.compute if part in ("compute", "pass") else 0
            held += UNACCOUNTED_BYTES if part == "pass" and use.total else 0
            if held > free:
                return device, part
    return None


def _card_line(card: Card, free: int) -> tuple[str, str, int, int]:
    capability = "{}.{}".format(*card.capability) if card.capability else "0.0"
    return card.name, capability, card.total_bytes, free


def _as_plan(
    deployment: Deployment, engine: str, machine: Machine, chosen: Fitted, start: Start, file_type: str, assumed: bool
) -> Plan:
    o, one, shape = machine.options, chosen.load, deployment.shape
    tightest = min(range(len(one.gpus)), key=lambda i: machine.free[i] - one.gpus[i].total, default=None)
    use = one.host if tightest is None else one.gpus[tightest]
    card = Card("CPU", 0) if tightest is None else deployment.cards[tightest]
    kept, refused = one.caches, start.refused
    per_token = sum(kept.layer_bytes) / kept.context if kept.window is None else None
    longest = _longest(machine, one) if machine.free else kept.slot_context
    return Plan(
        model=shape.id, engine=engine, engine_version=f"b{o.build}", gpu=card.name, gpus=len(deployment.cards),
        fits=refused is None, weights_bytes=use.weights, activation_peak_bytes=use.compute,
        non_torch_bytes=context_of(card) + UNACCOUNTED_BYTES if tightest is not None else 0, graph_bytes=0,
        kv_bytes=use.cache + use.state, kv_tokens=kept.context, max_concurrency=round(kept.context / kept.slot_context, 2),
        max_model_len=kept.slot_context, total_bytes=card.total_bytes,
        budget_bytes=machine.free[tightest] if tightest is not None else 0, kv_bytes_per_token=per_token,
        request_bytes=round(one.caches.bytes / (kept.context / kept.slot_context)) + one.caches.states // o.slots,
        longest_context=longest, host_bytes=one.host.total, lines=lines(start),
        gpus_planned=tuple(_gpu(deployment, machine, i, u, assumed) for i, u in enumerate(one.gpus)),
        notes=tuple(_notes(machine, chosen, shape, file_type, assumed, refused)), settings=_settings(o, one, file_type),
        identity=_identity(engine, shape, card, file_type, o),
    )  # fmt: skip


def _identity(engine: str, shape: ModelShape, card: Card, file_type: str, o: Options) -> Identity:
    """What the products are made of: the file's types by ggml's own kernels."""
    types = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    dtype = types.get(file_type, "")
    stored = None if dtype else Quantisation(method="gguf", bits=4, format=file_type)
    cache = o.key_type if o.key_type == o.value_type else f"{o.key_type} keys, {o.value_type} values"
    return identity(
        msgspec.structs.replace(shape, quantisation=stored), engine, card.capability, None, cache.lower(), dtype
    )


def _gpu(deployment: Deployment, machine: Machine, index: int, use: Use, assumed: bool) -> GpuPlan:
    card = deployment.cards[index]
    stored: Basis = "exact" if machine.known_order else "assumed" if assumed else "modelled"
    error = machine.wide.error(machine.options.build)
    parts = (
        PlanPart("weights", use.weights, stored, None if stored != "modelled" else 0.01),
        PlanPart("KV cache", use.cache, "exact"),
        PlanPart("recurrent state", use.state, "exact"),
        PlanPart("compute buffer", use.compute, "modelled", error),
        PlanPart("context and libraries", context_of(card) + UNACCOUNTED_BYTES, "modelled", 0.3),
    )
    kept = tuple(part for part in parts if part.bytes)
    return GpuPlan(index, card.name, card.total_bytes, machine.free[index], kept)


def _longest(machine: Machine, one: Load) -> int:
    """The greatest context of one slot that fits with the same placement, by the slope of the memory in it."""
    o, kept = machine.options, one.caches
    twice = load(machine, one.placement, 2 * kept.context)
    longest = kept.context * 64
    for use, more, free in zip(one.gpus, twice.gpus, machine.free, strict=True):
        slope = (more.total - use.total) / kept.context
        if slope > 0:
            longest = min(longest, kept.context + int((free - use.total) / slope))
    each = max(0, longest) // (1 if o.unified else o.slots)
    return each // 256 * 256


def _notes(
    machine: Machine, chosen: Fitted, shape: ModelShape, file_type: str, assumed: bool, refused: tuple[int, str] | None
) -> Iterator[str]:
    o, one = machine.options, chosen.load
    total = machine.sizes.layers + 1
    if assumed:
        yield f"the file is taken to be {file_type} by llama-quantize's own mix; other makers' files differ by some percent"
    elif not machine.known_order:
        yield f"tensor types by llama-quantize's own mix for {file_type}; the file itself makes the weights exact"
    if chosen.reduced:
        yield (
            f"the fit step shortens the context from {chosen.first.caches.context:,} to {one.caches.context:,} tokens: "
            "set -c to decide yourself"
        )
    if o.unified and o.slots > 1 and not any(row.compressed for row in machine.rows):
        yield f"the {o.slots} slots share these {one.caches.context:,} tokens: one alone may use them all"
    if machine.free and one.placement.on_gpu < total and refused is None:
        yield f"{one.placement.on_gpu} of {total} layers are on the GPU: the others are computed by the CPU"
    if one.placement.experts[1] > one.placement.experts[0] and machine.sizes.experts[-1]:
        count = one.placement.experts[1] - one.placement.experts[0]
        held = show_bytes(
            machine.sizes.host_experts[one.placement.experts[1]] - machine.sizes.host_experts[one.placement.experts[0]]
        )
        yield f"experts of {count} layers ({held}) are in host memory"
    if machine.wide.error(o.build) == compute.RECURRENT_ERROR:
        yield "the compute buffer of recurrent layers is an estimate: their graphs differ from build to build"
    if o.unified and o.slots > 1 and any(row.compressed for row in machine.rows):
        yield f"DeepSeek-V4's caches are kept in full for each of the {o.slots} slots: -np 1 keeps one"
    if o.split_mode not in ("layer", "none"):
        yield f"--split-mode {o.split_mode} is planned as layer: rows divide the weights about as layers do"
    if o.build >= builds.TIMED_LINES:
        yield "llama-server prints the lines about memory with -lv 4 only"
    if machine.free and shape.towers:
        yield "the projector (--mmproj) comes on top: its file's size and a compute buffer"


def _settings(o: Options, one: Load, file_type: str) -> dict[str, str]:
    values = {
        "ctx-size": one.caches.context, "parallel": o.slots, "kv-unified": str(o.unified).lower(),
        "n-gpu-layers": one.placement.on_gpu, "batch-size": o.batch, "ubatch-size": o.ubatch,
        "cache-type-k": o.key_type, "cache-type-v": o.value_type, "flash-attn": "on" if o.flash else "off",
        "fit": "on" if o.fit else "off", "file type": file_type,
    }  # fmt: skip
    if one.placement.experts[0] == 0 and one.placement.experts[1]:
        values["n-cpu-moe"] = one.placement.experts[1]
    return {name: str(value) for name, value in values.items()}


def _shown(file_type: str) -> str:
    """`Q4_K - Medium` for `Q4_K_M`, as the loader prints it."""
    sizes_ = {"S": "Small", "M": "Medium", "L": "Large"}
    head, _, tail = file_type.rpartition("_")
    return f"{head} - {sizes_[tail]}" if head.endswith("_K") and tail in sizes_ else file_type
