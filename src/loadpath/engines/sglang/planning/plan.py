"""A deployment on SGLang, planned: weights, pools, what stays outside the static share, and the lines of its start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from loadpath.core.plan import GpuPlan, Plan, PlanPart
from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB, MIB, show_bytes
from loadpath.engines.sglang.memory import static_pool_bytes
from loadpath.engines.sglang.planning.cells import Cells, cells, has_window_pool, stage
from loadpath.engines.sglang.planning.lines import Start, lines, refusal
from loadpath.engines.sglang.planning.options import Options, is_compressed, options
from loadpath.engines.sglang.planning.pools import Pools, pools
from loadpath.engines.sglang.planning.resident import DRAFT_COUNTED_SINCE, Resident, resident
from loadpath.planning.deployment import Card, Deployment
from loadpath.planning.identity import identity
from loadpath.planning.refused_load import out_of_memory

CONTEXT_BYTES = {"one": 0.70 * GIB, "slot": 0.55 * GIB, "many": 1.85 * GIB}
"""What a rank's card lacks before the weights: CUDA context and communicators. Seen in public logs of 0.4 to 0.5.22: alone
0.38 to 0.78 GiB, with 2 to 16 ranks over NVLink 1.2 to 3.0 GiB (more with symmetric memory), over PCIe, where there is no
custom all-reduce, 0.4 to 0.7 GiB (L4, RTX 4090)."""
CONTEXT_ERROR = {"one": 0.15, "slot": 0.15, "many": 0.35}
CONNECT_BYTES = {"one": 0.09 * GIB, "slot": 0.16 * GIB, "many": 1.25 * GIB}
"""The part of it that connecting the ranks takes."""
LINK = 200e9
"""Bytes/s to a peer, both directions, from which it is NVLink."""
WEIGHTS_ERROR = 0.012
"""Mean error on eight public starts of 0.4.1 to 0.5.14, dense and mixture, 0.5 to 1,000 billion parameters."""
SHARED_BYTES = 4.4 * GIB
"""What the operating system keeps of memory that CPU and GPU share (a GB10 with nothing else running)."""
PACKED_COUNTED_SINCE = (0, 5, 17)
"""Before, a pool of packed FP8 latents (656 bytes) was sized as if they took 576: it gets an eighth larger than its share."""
TOWER_CACHE_BYTES = 100 * MIB
"""Kept back for image features from 0.5.18 on (SGLANG_VLM_CACHE_SIZE_MB)."""
ACTIVATION_BYTES, GRAPH_BYTES, PREFILL_GRAPH_BYTES = 1.5 * MIB, 2 * MIB, 8 * MIB
"""SGLang's own allowances: per token of a prefill chunk, per request of the largest decode graph, per prefill size."""


class _Sums(msgspec.Struct, frozen=True):
    """The bytes of the rank with the least room. `room`: what the pools may share."""

    card: Card
    weights: Resident
    before: int
    room: int
    graphs: int
    draft_counted: bool

    @property
    def after(self) -> int:
        """Free bytes when the pools are sized."""
        return self.before - self.counted

    @property
    def counted(self) -> int:
        return self.weights.bytes + (self.weights.draft if self.draft_counted else 0)


def plan(deployment: Deployment) -> Plan:
    """The plan of `deployment`, per GPU, for the rank with the least room."""
    shape, o = deployment.shape, options(deployment)
    sums = _sums(deployment, o)
    size = _cells(shape, o)
    drafts = _draft_layers(deployment, o)
    pool = pools(sums.room, size, o, drafts)
    error = refusal(o, size, pool, sums.before, sums.after, sums.room / GIB)
    if error:
        pool = Pools(0, 0, 0)
    return _as_plan(deployment, o, sums, size, pool, error)


def _cells(shape: ModelShape, o: Options) -> Cells:
    def priced(packed: bool) -> Cells:
        return cells(
            stage(shape.layers, o.pp), o.attention_tp, o.kv_bytes, has_window_pool(shape.architecture, o.version),
            4 if o.state_dtype == "float32" else 2, packed,
        )  # fmt: skip

    size = priced(o.packed_latent)
    if o.version >= PACKED_COUNTED_SINCE:
        return size
    sized = priced(False).full
    return msgspec.structs.replace(size, sized=sized) if sized != size.full else size


def _sums(deployment: Deployment, o: Options) -> _Sums:
    card = min(deployment.cards, key=lambda one: one.total_bytes)
    weights = resident(deployment, o)
    before = free_before(card, o.tp * o.pp)
    reserved = TOWER_CACHE_BYTES if o.multimodal and o.version >= (0, 5, 18) else 0
    counted = o.version >= DRAFT_COUNTED_SINCE
    after = before - weights.bytes - (weights.draft if counted else 0)
    room = static_pool_bytes(before, after, o.fraction) - reserved
    return _Sums(
        card=card, weights=weights, before=before,
        room=room if deployment.available_kv_bytes is None else deployment.available_kv_bytes,
        graphs=round(o.graph_batch * GRAPH_BYTES + o.prefill_graphs * PREFILL_GRAPH_BYTES), draft_counted=counted,
    )  # fmt: skip


def free_before(card: Card, ranks: int) -> int:
    """Free bytes on a card once the rank is connected, before the weights."""
    free = card.total_bytes if card.free_bytes is None else min(card.free_bytes, card.total_bytes)
    if card.unified_memory and card.free_bytes is None:
        free -= round(SHARED_BYTES)
    return free - round(CONTEXT_BYTES[_peers(card, ranks)])


def _peers(card: Card, ranks: int) -> Literal["one", "slot", "many"]:
    """How a rank reaches the others; "many" also where that is not known."""
    if ranks == 1:
        return "one"
    return "slot" if card.link_bytes_per_s is not None and card.link_bytes_per_s < LINK else "many"


def _draft_layers(deployment: Deployment, o: Options) -> int:
    """A drafter's layers that SGLang prices like the target's (EAGLE, MTP, STANDALONE from 0.5.14 on)."""
    if o.version < (0, 5, 14) or o.speculation not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        return 0
    if deployment.drafter is not None:
        return len(deployment.drafter.layers)
    return deployment.shape.drafter.layers if deployment.shape.drafter else 1


def _as_plan(deployment: Deployment, o: Options, sums: _Sums, size: Cells, pool: Pools, error: str) -> Plan:
    shape, ranks = deployment.shape, o.tp * o.pp
    held = (
        sums.weights.bytes
        + sums.weights.draft
        + pool.cache_bytes
        + pool.state_bytes
        + pool.spare_state_bytes
        + pool.table_bytes
    )
    after_pools = sums.before - held
    concurrency = min(pool.tokens / o.context, pool.max_requests) if pool.tokens else 0.0
    window = min(o.context, size.window_tokens) * size.window
    start = Start(
        model=shape.id, architecture=shape.architecture, dtype=shape.dtype, options=o, cells=size, pools=pool,
        free_before=sums.before, weights=sums.weights.bytes, after_pools=after_pools,
        after_graphs=after_pools - sums.graphs, connect=round(CONNECT_BYTES[_peers(sums.card, ranks)]),
        draft=sums.weights.draft if sums.draft_counted else 0, compressed=is_compressed(shape), refusal=error,
        load_error=out_of_memory(sums.card, sums.before, sums.weights.bytes, len(shape.layers) // o.pp)
        if sums.weights.bytes > sums.before else "",
    )  # fmt: skip
    return Plan(
        model=shape.id, engine="sglang", engine_version=".".join(map(str, o.version)), gpu=sums.card.name,
        gpus=len(deployment.cards), fits=not error and pool.tokens >= o.context,
        weights_bytes=sums.weights.bytes, activation_peak_bytes=max(0, min(_allowance(o), after_pools - sums.graphs)),
        non_torch_bytes=sums.card.total_bytes - sums.before, graph_bytes=sums.graphs,
        kv_bytes=pool.cache_bytes or max(0, sums.room if not error else 0), kv_tokens=pool.tokens,
        max_concurrency=round(concurrency, 2), max_model_len=o.context, total_bytes=sums.card.total_bytes,
        budget_bytes=round(sums.before * o.fraction), utilisation=o.fraction,
        kv_bytes_per_token=size.full if not size.window and not size.state else None,
        kv_blocks=pool.tokens // o.page, kv_block_tokens=o.page,
        request_bytes=round(o.context * size.full + window + size.state * o.slots_per_request),
        longest_context=pool.tokens, gpus_planned=_gpus(deployment, o, sums, pool, after_pools - sums.graphs),
        identity=identity(shape, "sglang", sums.card.capability, o.version, o.kv_dtype),
        lines=lines(start), notes=tuple(_notes(deployment, o, sums, size, pool, after_pools, error)),
        settings=_settings(o),
    )  # fmt: skip


def _allowance(o: Options) -> int:
    """What SGLang's own rule sets aside for the activations of a prefill chunk."""
    return round(max(o.chunk if o.chunk > 0 else o.max_prefill_tokens, 2048) * ACTIVATION_BYTES)


def _parts(o: Options, sums: _Sums, pool: Pools, after: int) -> Iterator[PlanPart]:
    """`after`: bytes that are free once everything else is there."""
    ranks = _peers(sums.card, o.tp * o.pp)
    given = sums.card.free_bytes is not None
    yield PlanPart(
        "weights", sums.weights.bytes, sums.weights.basis, WEIGHTS_ERROR, note=sums.weights.note
    )  # fmt: skip
    if sums.weights.draft:
        where = "in the static share" if sums.draft_counted else "outside the static share"
        yield PlanPart("drafter's weights", sums.weights.draft, "assumed", note=where)
    yield PlanPart("KV cache", pool.cache_bytes, "exact", note="what the static share leaves")
    if pool.state_bytes:
        yield PlanPart("recurrent state", pool.state_bytes + pool.spare_state_bytes, "exact")
    if pool.table_bytes:
        yield PlanPart("request table", pool.table_bytes, "exact", note="outside the static share")
    yield PlanPart("CUDA graphs", sums.graphs, "assumed", note="SGLang's own allowance")
    allowed = show_bytes(_allowance(o))
    yield PlanPart(
        "left for activations", max(0, after), "assumed",
        note=f"SGLang does not measure them; its own rule allows {allowed} for a prefill chunk",
    )  # fmt: skip
    yield PlanPart(
        "context and communicators", sums.card.total_bytes - sums.before, "modelled", CONTEXT_ERROR[ranks],
        note="others' memory included" if given else "",
    )  # fmt: skip


def _gpus(deployment: Deployment, o: Options, sums: _Sums, pool: Pools, after: int) -> tuple[GpuPlan, ...]:
    parts = tuple(_parts(o, sums, pool, after))
    return tuple(
        GpuPlan(i, card.name, card.total_bytes, round(free_before(card, o.tp * o.pp) * o.fraction), parts)
        for i, card in enumerate(deployment.cards)
    )


def _notes(
    deployment: Deployment, o: Options, sums: _Sums, size: Cells, pool: Pools, after_pools: int, error: str
) -> Iterator[str]:
    if o.fraction_given and not error:
        left = sums.before * (1 - o.fraction)
        wanted = o.allowance_mib * MIB
        if left < 0.7 * wanted:
            yield (
                f"--mem-fraction-static {o.fraction} leaves {show_bytes(left)} for activations and graphs; SGLang's own "
                f"rule would leave {show_bytes(wanted)}: the first long prefill may run out of memory"
            )
    if pool.tokens and after_pools - sums.graphs < 0:
        yield (
            f"the request table ({show_bytes(pool.table_bytes)}) and the graphs do not fit beside the static share: "
            "lower --mem-fraction-static or --max-running-requests"
        )
    if is_compressed(deployment.shape):
        yield "states of the ratio-128 layers come on top for each running request (10 to 17 MiB)"
    if o.speculation and o.version < (0, 5, 14):
        yield "before 0.5.14 the drafter's weights and cache come out of what the static share leaves"
    if o.pp > 1:
        yield "layers are taken as spread evenly over the pipeline stages"
    if sums.card.assumed:
        yield f"{sums.card.name}: the total of its memory is a rule of thumb"


def _settings(o: Options) -> dict[str, str]:
    values = {
        "mem-fraction-static": f"{o.fraction:.3f}", "context-length": o.context, "tp-size": o.tp, "pp-size": o.pp,
        "dp-size": o.dp, "chunked-prefill-size": o.chunk, "cuda-graph-max-bs": o.graph_batch, "page-size": o.page,
        "kv-cache-dtype": o.kv_dtype, "max-running-requests": o.max_requests or "auto",
    }  # fmt: skip
    return {name: str(value) for name, value in values.items()}
