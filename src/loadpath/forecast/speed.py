"""The bounds of speed of a plan: what the card's rates and the model's bytes allow at best."""

from __future__ import annotations

import re

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.quantities import show_quantity, show_time
from loadpath.core.table import Cell, Column, Table
from loadpath.knowledge.gpus import Gpu, by_id
from loadpath.planning.collectives import link_of
from loadpath.planning.deployment import Deployment
from loadpath.planning.energy import cap_effect, energy
from loadpath.planning.rates import Rate, ShapeRate, blended, ggml_rate, matmul_rate, rate
from loadpath.planning.speed import GENERAL_ASSUMPTIONS, Bounds, Cards, bounds
from loadpath.planning.step import peak_of
from loadpath.planning.work import cache_ways, load_of, products

COLUMNS = (
    Column("concurrency", "requests"), Column("ITL at least", "seconds"), Column("all together at most", "tokens/s"),
    Column("one request at most", "tokens/s"), Column("at full power (J/token)"), Column("bound by"),
)  # fmt: skip
MOST_CONCURRENCY = 1024
MOST_SHAPES = 3
CAP_SHARE = 0.8
MIG_SEVENTHS = 7
"""A board is cut into seven compute slices; a 3g slice of an H100 has 60 of 132 SMs, a little more than three."""
_TP = ("tensor-parallel-size", "tp-size", "tp", "num-shard")
_GGML = frozenset({"llama.cpp", "ollama"})
_PP = ("pipeline-parallel-size", "pp-size")


def speed(plan: Plan, deployed: Deployment) -> tuple[Bounds, Table] | None:
    """Bounds at each concurrency that the KV pool admits at full length; None for a card whose rates are not known."""
    gpu = by_id(deployed.cards[0].id)
    if gpu is None or not gpu.bandwidth_gbs or not plan.fits:
        return None
    shape, tp, pp = deployed.shape, _size(deployed, _TP), _size(deployed, _PP)
    peak, narrow = _peak(gpu, deployed), rate(gpu, "bf16")
    attention = narrow if not narrow.refused else rate(gpu, "fp16")
    if peak.flops_per_s is None:
        return None
    shapes = tuple(matmul_rate(m, peak, wide=attention) for m in products(shape, tp))
    made_of = blended(shapes)
    part = _part(deployed.cards[0].name, (deployed.cards[0].bandwidth_bytes_per_s or 0.0) / gpu.bandwidth_gbs / 1e9)
    cards = Cards(
        bandwidth_bytes_per_s=deployed.cards[0].bandwidth_bytes_per_s or gpu.bandwidth_gbs * 1e9,
        flops_per_s=part * (made_of or peak.flops_per_s),
        attention_flops_per_s=part * (attention.flops_per_s or 0.0),
        tensor_parallel=tp,
        pipeline_parallel=len(deployed.cards) if deployed.engine in _GGML and tp == 1 else pp,
        cache_ways=cache_ways(shape, tp),
        link=link_of(gpu),
    )
    most = max(1, min(MOST_CONCURRENCY, int(plan.max_concurrency), _most_requests(plan)))
    found = bounds(
        load_of(shape, _kv_element(plan)),
        cards,
        context=plan.max_model_len,
        prompt=plan.max_model_len,
        most_concurrency=most,
    )
    return found, _table(found, plan, peak, gpu, len(deployed.cards), _reasons(peak, shapes))


def _part(name: str, bandwidth_part: float) -> float:
    """The part of a board's rate that a MIG slice can have at most: its sevenths, or what it has of the bandwidth."""
    slices = re.search(r" MIG (\d)g\.", name)
    return max(int(slices[1]) / MIG_SEVENTHS, bandwidth_part) if slices else 1.0


def with_speed(plan: Plan, found: Bounds) -> Plan:
    return msgspec.structs.replace(plan, speed=msgspec.to_builtins(found))


def _size(deployed: Deployment, names: tuple[str, ...]) -> int:
    text = next((deployed.settings[n] for n in names if n in deployed.settings), "1")
    return int(text) if text.isdigit() else 1


def _peak(gpu: Gpu, deployed: Deployment) -> Rate:
    if deployed.engine in _GGML:
        return ggml_rate(gpu, quantised=deployed.shape.quantisation is not None)
    return peak_of(deployed.shape, gpu)


def _kv_element(plan: Plan) -> float:
    """Bytes of a cache element, by what the plan says of the cache."""
    said = plan.identity.kv_cache.lower() if plan.identity else ""
    if "4" in said and "fp4" in said:
        return 0.5625
    return 1.0 if "fp8" in said or "int8" in said or "q8" in said else 2.0


def _most_requests(plan: Plan) -> int:
    """Requests that the engine lets into one step."""
    text = (
        plan.settings.get("max-num-seqs") or plan.settings.get("max-running-requests") or plan.settings.get("parallel")
    )
    return int(text) if text and text.isdigit() else MOST_CONCURRENCY


def _table(found: Bounds, plan: Plan, peak: Rate, gpu: Gpu, cards: int, reasons: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for step in found.decode:
        spent = energy(step.tokens_per_s, gpu.tdp_w * cards, "limit")
        rows.append((step.concurrency, step.itl_seconds, round(step.tokens_per_s, 1), round(step.sequence_tokens_per_s, 1),
                     round(spent.joules_per_token, 3), step.limit))  # fmt: skip
    first = found.prefill
    note = (
        f"Ceilings, not predictions (only accepted drafts and shared prefixes pass them), with {plan.max_model_len:,} "
        f"tokens in each request's cache. {_turns(found)} A prompt of {first.tokens:,} tokens takes "
        f"{show_time(first.ttft_seconds)} at least ({first.limit}). {peak.dtype} at "
        f"{show_quantity(peak.flops_per_s or 0.0, 'FLOP/s', top='T')}{reasons}, "
        f"{gpu.bandwidth_gbs:,.0f} GB/s, {gpu.tdp_w} W a card."
        + "".join(f" Assumed: {said}." for said in found.assumptions[GENERAL_ASSUMPTIONS:])
        + _capped()
    )
    return Table("speed", "How fast at best", COLUMNS, tuple(rows), note)


def _reasons(peak: Rate, shapes: tuple[ShapeRate, ...]) -> str:
    """Why the rate is what it is, and the products whose tiles or rows do not fit."""
    said = [*peak.notes]
    said += [f"{shape.name}: {why}" for shape in shapes for why in (shape.refused, *shape.notes) if why][:MOST_SHAPES]
    return f" ({'; '.join(said)})" if said else ""


def _capped() -> str:
    """What a power limit of four fifths was published to cost."""
    decode, compute = cap_effect(CAP_SHARE, "decode"), cap_effect(CAP_SHARE, "compute")
    if decode is None or compute is None:
        return ""
    return (
        f" With a power limit at {CAP_SHARE:.0%}, other cards kept {decode.least:.0%} to {decode.most:.0%} of decode's "
        f"speed and {compute.least:.0%} to {compute.most:.0%} of prefill's (published)."
    )


def _turns(found: Bounds) -> str:
    """From where on decode is bound by compute."""
    if found.compute_bound_from is None:
        short = f", and below {found.bandwidth_bound_below:,} at any" if found.bandwidth_bound_below else ""
        return f"Decode is bandwidth-bound with any number of them at this length{short}."
    return (
        f"Decode turns compute-bound from {found.compute_bound_from:,} of them at this length; below "
        f"{found.bandwidth_bound_below or 1:,} it is bandwidth-bound at any."
    )
