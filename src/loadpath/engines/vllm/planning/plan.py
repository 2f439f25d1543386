"""A deployment on vLLM, planned: each pipeline stage's card summed up, the pool of the smallest, the lines of the start."""

from __future__ import annotations

import msgspec

from loadpath.core.plan import GpuPlan, Plan, PlanPart
from loadpath.core.shape import Attention, CompressedAttention, LatentAttention, ModelShape
from loadpath.core.units import show_bytes, show_count
from loadpath.engines.vllm.planning import budget, graphs, profile, releases
from loadpath.engines.vllm.planning.kv_groups import Layout, layout
from loadpath.engines.vllm.planning.kv_specs import specs
from loadpath.engines.vllm.planning.kv_tokens import Pool, pool, request_blocks
from loadpath.engines.vllm.planning.lines import Start, lines
from loadpath.engines.vllm.planning.options import BadSetting, Options, options
from loadpath.engines.vllm.planning.resident import WEIGHTS_ERROR, Resident, dtype_of, resident, served
from loadpath.knowledge.gpus import by_id
from loadpath.planning.deployment import Card, Deployment
from loadpath.planning.divisible import uncut
from loadpath.planning.identity import identity
from loadpath.planning.kv import subtracts_graphs
from loadpath.planning.per_shape import per_shape
from loadpath.planning.split import Split


class _Stage(msgspec.Struct, frozen=True):
    """One pipeline stage on its smallest card."""

    number: int
    card: Card
    resident: Resident
    activation: profile.Activation
    graphs: int
    graph_sizes: tuple[int, ...]
    share: budget.Share
    layout: Layout | None


def plan(deployment: Deployment) -> Plan:
    """The plan of `deployment`, per GPU. Raises BadSetting (a ValueError) for a setting that vLLM would refuse."""
    o = options(deployment)
    _check(deployment, o)
    stages = [_stage(deployment, o, number) for number in range(o.pipeline_parallel)]
    least = min(stages, key=_blocks)
    kv = least.share.kv if deployment.available_kv_bytes is None else deployment.available_kv_bytes
    held = _pool(deployment, o, least, kv)
    return _as_plan(deployment, o, stages, least, held, kv)


def _check(deployment: Deployment, o: Options) -> None:
    ranks = o.tensor_parallel
    heads = _heads(deployment.shape)
    if heads % ranks:
        raise BadSetting(
            f"--tensor-parallel-size {ranks}: the model's {heads} attention heads do not divide over {ranks} GPUs"
        )
    shared = ranks * o.data_parallel if o.expert_parallel else 0
    if cut := uncut(served(deployment), Split(tp=ranks, ep=shared)):
        other = "--enable-expert-parallel, or " if cut.experts else ""
        raise BadSetting(
            f"--tensor-parallel-size {ranks}: each rank's part of the {cut.part}, {cut.share}, is no multiple of the "
            f"{cut.block} columns that share a scale; vLLM refuses that: {other}{cut.ranks} at most"
        )
    if o.pipeline_parallel > len(deployment.shape.layers):
        raise BadSetting(f"--pipeline-parallel-size {o.pipeline_parallel}: more stages than layers")
    if not 0 < o.utilisation <= 1:
        raise BadSetting(f"--gpu-memory-utilization {o.utilisation}: a share between 0 and 1 is needed")


@per_shape
def _heads(shape: ModelShape) -> int:
    """Attention heads of the first layer that attends; 0: none does."""
    mixers = (mixer for layer in dict.fromkeys(shape.layers) for mixer in layer.mixers)
    return next((m.heads for m in mixers if isinstance(m, Attention | LatentAttention | CompressedAttention)), 0)


def _stage(deployment: Deployment, o: Options, number: int) -> _Stage:
    cards, ranks = deployment.cards, o.tensor_parallel
    mine = cards[number * ranks : (number + 1) * ranks] if len(cards) >= ranks * o.pipeline_parallel else cards
    card = min(mine, key=lambda one: one.total_bytes)
    weights = resident(deployment, o, number, card)
    device = profile.Device(card.capability, _multiprocessors(card))
    activation = profile.activation(deployment.shape, o, device, number == o.pipeline_parallel - 1)
    sizes = graphs.capture_sizes(deployment.shape, o, card.capability)
    captured = graphs.graph_bytes(deployment.shape, o, sizes)
    counts = profile.penalty_counts(deployment.shape, o) if o.version >= releases.CONSUMED_BY_DEVICE else 0
    return _Stage(
        number=number,
        card=card,
        resident=weights,
        activation=activation,
        graphs=captured,
        graph_sizes=tuple(sizes),
        share=budget.share(card, o, weights.bytes, activation.peak, captured, counts),
        layout=layout(specs(deployment.shape, o, deployment.drafter, number), o),
    )


def _multiprocessors(card: Card) -> int | None:
    gpu = by_id(card.id) if card.id else None
    return gpu.sms if gpu else None


def _blocks(stage: _Stage) -> float:
    return stage.share.kv / stage.layout.block_bytes if stage.layout else stage.share.kv


def _pool(deployment: Deployment, o: Options, least: _Stage, kv: int) -> Pool | None:
    """The pool of the stage with the fewest blocks. Releases 0.14 to 0.16 check one rank's memory against the cache of all
    stages' layers."""
    if least.layout is None:
        return None
    made = pool(least.layout, kv, o)
    if o.pipeline_parallel > 1 and releases.GROUPED_FIT_CHECK <= o.version < releases.TRITON_SAMPLER:
        whole = layout(specs(deployment.shape, msgspec.structs.replace(o, pipeline_parallel=1)), o)
        if whole is not None:
            checked = pool(whole, kv, o)
            return msgspec.structs.replace(
                made, fits=checked.fits, longest=checked.longest, request_bytes=checked.request_bytes
            )
    return made


def _as_plan(
    deployment: Deployment, o: Options, stages: list[_Stage], least: _Stage, held: Pool | None, kv: int
) -> Plan:
    share, found = least.share, least.layout
    enough = o.kv_bytes is not None or o.version < releases.OWN_MEMORY_ONLY or share.free >= share.budget
    numbers = identity(
        served(deployment), "vllm", least.card.capability, o.version, o.kv_dtype, dtype_of(deployment.settings)
    )
    start = Start(
        shape=deployment.shape,
        options=o,
        card=least.card,
        settings=deployment.settings,
        share=share,
        weights=least.resident.bytes,
        activation=least.activation.peak,
        graphs=least.graphs,
        graph_sizes=least.graph_sizes,
        kv=kv,
        counts=_counted(deployment, o),
        layout=found,
        pool=held,
        enough_free=enough,
        identity=numbers,
    )
    length = o.max_model_len
    if o.auto_length and held and held.longest:
        length = min(length, held.longest)
    return Plan(
        model=deployment.shape.id,
        engine="vllm",
        engine_version=releases.spelled(o.version),
        gpu=least.card.name,
        gpus=len(deployment.cards),
        fits=enough and not o.too_long and (held is None or held.fits),
        weights_bytes=max(stage.resident.bytes for stage in stages),
        activation_peak_bytes=max(stage.activation.peak for stage in stages),
        non_torch_bytes=share.non_torch,
        graph_bytes=max(stage.graphs for stage in stages),
        kv_bytes=kv,
        kv_tokens=held.tokens if held else 0,
        max_concurrency=round(held.concurrency, 2) if held else 0.0,
        max_model_len=length,
        total_bytes=share.total,
        budget_bytes=share.budget,
        utilisation=o.utilisation,
        kv_bytes_per_token=found.block_bytes / found.block_tokens if found and found.plain else None,
        kv_blocks=held.blocks if held else None,
        kv_block_tokens=found.block_tokens if found else None,
        request_bytes=held.request_bytes if held else None,
        longest_context=held.longest if held else None,
        gpus_planned=_gpus(deployment, o, stages, kv),
        host_bytes=o.offload_bytes * len(deployment.cards) + o.host_kv_bytes,
        identity=numbers,
        lines=lines(start),
        notes=tuple(_notes(deployment, o, least, held)),
        settings=_settings(o),
    )


def _gpus(deployment: Deployment, o: Options, stages: list[_Stage], kv: int) -> tuple[GpuPlan, ...]:
    """One entry for each pipeline stage: its ranks are alike."""
    return tuple(
        GpuPlan(
            gpu=stage.number * o.tensor_parallel,
            name=stage.card.name,
            total_bytes=stage.share.total,
            budget_bytes=stage.share.budget,
            parts=_parts(deployment, o, stage, kv if len(stages) == 1 else stage.share.kv),
        )
        for stage in stages
    )


def _parts(deployment: Deployment, o: Options, stage: _Stage, kv: int) -> tuple[PlanPart, ...]:
    basis = stage.resident.basis
    given = deployment.available_kv_bytes is not None or o.kv_bytes is not None
    switched = budget.nvswitch(stage.card)
    outside = "" if subtracts_graphs(o.version) else "outside the budget"
    parts = [
        PlanPart("weights", stage.resident.model, basis, WEIGHTS_ERROR if basis == "exact" else None),
        PlanPart("LoRA slots", stage.resident.lora, "exact"),
        PlanPart("activation peak", stage.activation.peak, "modelled", stage.activation.error),
        PlanPart("penalty counts", _counted(deployment, o), "exact"),
        PlanPart("non-torch", stage.share.non_torch, "modelled", budget.error(stage.card)),
        PlanPart("CUDA graphs", stage.graphs, "modelled", graphs.error(deployment.shape, o, switched), outside),
        PlanPart("KV cache", max(0, kv), "given" if given else "modelled"),
    ]
    return tuple(part for part in parts if part.bytes or part.name == "KV cache")


def _counted(deployment: Deployment, o: Options) -> int:
    return profile.penalty_counts(deployment.shape, o) if o.version >= releases.CONSUMED_BY_DEVICE else 0


def _settings(o: Options) -> dict[str, str]:
    """The settings that the figures rest on, defaults included."""
    made: dict[str, str] = {
        "max-model-len": str(o.max_model_len),
        "gpu-memory-utilization": f"{o.utilisation:g}",
        "tensor-parallel-size": str(o.tensor_parallel),
        "max-num-seqs": str(o.max_num_seqs),
        "max-num-batched-tokens": str(o.max_num_batched_tokens),
        "kv-cache-dtype": o.kv_dtype,
        "enforce-eager": str(o.eager).lower(),
    }
    if o.pipeline_parallel > 1:
        made["pipeline-parallel-size"] = str(o.pipeline_parallel)
    if o.data_parallel > 1:
        made["data-parallel-size"] = str(o.data_parallel)
    if o.kv_bytes is not None:
        made["kv-cache-memory-bytes"] = str(o.kv_bytes)
    return made


def _notes(deployment: Deployment, o: Options, least: _Stage, held: Pool | None) -> list[str]:
    told = list(least.resident.notes)
    if deployment.version is None:
        told.append(f"vLLM {releases.spelled(o.version)} is assumed: the newest that is known.")
    elif o.version > releases.NEWEST:
        newest = releases.spelled(releases.NEWEST)
        told.append(
            f"vLLM {releases.spelled(o.version)} is newer than what is known here: the formulas of {newest} stand in."
        )
    if releases.V1_DEFAULT <= o.version < releases.NCCL_BEFORE_BASELINE:
        freed = (profile.SORTED_LOGIT - profile.SAMPLED_LOGIT) * min(o.max_num_seqs, o.max_num_batched_tokens)
        told.append(
            "PyTorch's sampler is assumed; where FlashInfer is installed, as in the official image, the activation peak is up "
            f"to {show_bytes(freed * deployment.shape.vocab)} smaller."
        )
    if least.card.assumed:
        told.append(f"The total of {least.card.name}, {show_bytes(least.share.total)}, is a rule of thumb.")
    if deployment.shape.note:
        told.append(deployment.shape.note)
    if o.data_parallel > 1:
        told.append("Each data-parallel replica has a pool of its own; figures are of one.")
    found = least.layout
    if found and found.beside:
        told.append("The pool of compressed caches is approximated: concurrency may be 10 % less.")
    elif found and not found.plain and held:
        blocks = request_blocks(found, o.max_model_len, o)
        told.append(
            f"Layers keep their cache in {found.group_count} groups: one request of {show_count(o.max_model_len)} tokens "
            f"claims {show_count(blocks)} of {show_count(held.blocks)} blocks, and KV bytes / tokens is no price of a token."
        )
    if o.speculation.method and deployment.drafter is None and o.speculation.layers:
        told.append(
            f"The {o.speculation.method} drafter is taken as {o.speculation.layers} "
            f"layer{'s' if o.speculation.layers > 1 else ''} like the model's own; name its checkpoint to count it."
        )
    return told
