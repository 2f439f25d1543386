"""The floor under a benchmark's figures: the model's work in a step and the cards' rates, from whatever the case tells."""

from __future__ import annotations

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import ModelNamed, WeightsLoaded
from loadpath.core.facts.gpu import GpuListed, GpuState
from loadpath.core.facts.stack import GpuModel
from loadpath.core.facts.traffic import Benchmark, StepWork
from loadpath.core.units import GIB
from loadpath.knowledge.gpus import Gpu, by_id, by_name
from loadpath.knowledge.models import model
from loadpath.planning.cards import CardUnknown, cards_of
from loadpath.planning.collectives import link_of
from loadpath.planning.speed import Cache, Cards, Decode, Load, Prefill, decode, prefill
from loadpath.planning.step import step_of

_SERVED = ("tp_size", "tensor_parallel_size")
_PARALLEL = ("tensor-parallel-size", "tp-size", "tp", "num-shard")


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """What a step cannot be faster than. `told`: where the weights come from, in words; `whole`: the model is known, so the
    cache and the operations count too; `sure`: a named model (or figures that the user stated), no inference."""

    load: Load
    cards: Cards
    gpu: str
    told: str
    whole: bool
    sure: bool
    memory_bytes: float | None = None
    stored_bytes: float | None = None
    facts: tuple[Fact, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the weights go into the cards that were named: where not, there are more cards than that."""
        if self.memory_bytes is None or self.stored_bytes is None:
            return True
        return self.stored_bytes <= self.memory_bytes * self.cards.tensor_parallel

    @property
    def weights_seconds(self) -> float:
        """The least time of a step of one sequence without any cache: reading the weights once."""
        return decode(self.load, self.cards, 1, 0).weights_seconds

    @property
    def read_bytes(self) -> float:
        """Weights that a step of one sequence reads."""
        return self.weights_seconds * self.cards.bandwidth_bytes_per_s * self.cards.tensor_parallel

    def step(self, requests: int, context: int) -> Decode:
        return decode(self.load, self.cards, max(1, requests), context)

    def compute_share(self, bench: Benchmark) -> float | None:
        """Part of the cards' peak that the products of the run took, attention and cached prompts left out; None: not told."""
        read = (bench.input_rate or _rate(bench, bench.input_mean)) * (1 - cached_share(bench))
        made = bench.output_rate or _rate(bench, bench.output_mean)
        if not self.whole or not read + made:
            return None
        needed = read * self.load.flops_per_token + made * (self.load.flops_per_token + self.load.head_flops)
        return needed / (self.cards.flops_per_s * self.cards.tensor_parallel)

    def prompt(self, tokens: int, cached: int = 0) -> Prefill:
        return prefill(self.load, self.cards, tokens, cached)


def floor_of(case: Case, bench: Benchmark) -> Floor | None:
    """The floor for a benchmark; None where the weights or the card are not told.

    By preference: what the user named (only that is sure), figures in the paste itself, the served model on the card that the case shows,
    and last the bytes that the engine logged.
    """
    if (work := case.last(StepWork)) is not None:
        return _of_work(work)
    if bench.weights_bytes and bench.bandwidth_bytes_per_s:
        return _of_bytes(bench.weights_bytes, bench.bandwidth_bytes_per_s, "", "as stated", sure=True, facts=())
    gpu, shown = _board(case, bench)
    if gpu is None:
        return None
    return _of_model(case, bench, gpu, shown) or _of_log(case, bench, gpu, shown)


def _of_work(work: StepWork) -> Floor:
    board = _named(work.gpu)
    return Floor(
        load=Load(
            weight_bytes=work.weight_bytes,
            flops_per_token=work.flops_per_token,
            head_flops=work.head_flops,
            expert_bytes=work.expert_bytes,
            experts=work.experts,
            experts_active=work.experts_active,
            caches=tuple(Cache(**msgspec.structs.asdict(cache)) for cache in work.caches),
            state_bytes=work.state_bytes,
        ),
        cards=Cards(
            bandwidth_bytes_per_s=work.bandwidth_bytes_per_s,
            flops_per_s=work.flops_per_s or float("inf"),
            tensor_parallel=work.gpus,
            cache_ways=work.cache_ways or work.gpus,
            link=link_of(board) if board else None,
        ),
        gpu=work.gpu,
        told=f"of {work.model} by its shape",
        whole=bool(work.flops_per_token),
        sure=work.named,
        memory_bytes=work.memory_bytes,
        stored_bytes=work.stored_bytes,
        facts=(work,),
    )


def _of_bytes(size: float, bandwidth: float, gpu: str, how: str, *, sure: bool, facts: tuple[Fact, ...]) -> Floor:
    """Weights of one GPU and its bandwidth, nothing else."""
    return Floor(
        load=Load(weight_bytes=size, flops_per_token=0.0),
        cards=Cards(bandwidth_bytes_per_s=bandwidth, flops_per_s=float("inf")),
        gpu=gpu,
        told=how,
        whole=False,
        sure=sure,
        facts=facts,
    )


def _of_model(case: Case, bench: Benchmark, gpu: Gpu, shown: tuple[Fact, ...]) -> Floor | None:
    named = case.last(ModelNamed)
    names = (bench.model, named.name if named else None)
    shape = next((found for name in names if name and (found := model(name))), None)
    if bench.engine == "ollama":
        return None  # its names do not tell how the weights are quantised
    if shape is None or (shape.quantisation is None and _quantised(bench.dtype)):
        return None
    count = _count(case, bench)
    said = (case.setting("kv-cache-dtype") or "").lower()
    step = step_of(shape, gpu, count, 1.0 if "fp8" in said else None)
    if step is None:
        return None
    return Floor(
        load=step.load,
        cards=step.cards,
        gpu=gpu.names[0],
        told=f"of {shape.id} by its shape",
        whole=True,
        sure=False,  # the served name may stand for other weights
        memory_bytes=gpu.memory_gb * GIB,
        stored_bytes=step.stored_bytes,
        facts=shown,
    )


def _of_log(case: Case, bench: Benchmark, gpu: Gpu, shown: tuple[Fact, ...]) -> Floor | None:
    """What the engine logged for one rank. A mixture of experts reads less: only a model's name rules that out."""
    logged = [w for w in case.all(WeightsLoaded) if w.bytes and not w.what]
    size = bench.weights_bytes or max((w.bytes or 0 for w in logged), default=0)
    if not size or not gpu.bandwidth_gbs:
        return None
    how = "as stated" if bench.weights_bytes else "as logged for one GPU"
    bandwidth = bench.bandwidth_bytes_per_s or gpu.bandwidth_gbs * 1e9
    return _of_bytes(size, bandwidth, gpu.names[0], how, sure=False, facts=(*logged[:1], *shown))


def _quantised(dtype: str) -> bool:
    """Whether the server says that its weights are smaller than the model's own type."""
    return any(
        word in dtype.lower() for word in ("fp8", "int8", "int4", "awq", "gptq", "fp4", "4bit", "bitsandbytes", "w8a8")
    )


def _count(case: Case, bench: Benchmark) -> int:
    served = next((bench.settings[f"server {name}"] for name in _SERVED if f"server {name}" in bench.settings), "")
    told = [text for text in (case.setting(*_PARALLEL) or "", served) if text.isdigit()]
    return max(bench.gpus or 1, *map(int, told), 1)


def _board(case: Case, bench: Benchmark) -> tuple[Gpu | None, tuple[Fact, ...]]:
    """The one sort of card that the result or the case names, and the facts that show it."""
    if bench.gpu:
        return _named(bench.gpu), ()
    seen: list[GpuModel | GpuState | GpuListed] = [*case.all(GpuModel), *case.all(GpuState), *case.all(GpuListed)]
    seen = [fact for fact in seen if fact.name]
    boards = {board.id: board for fact in seen if (board := _named(fact.name or ""))}
    return (next(iter(boards.values())), tuple(seen[:1])) if len(boards) == 1 else (None, ())


def _named(name: str) -> Gpu | None:
    if (board := by_name(name)) is not None:
        return board
    try:
        cards = cards_of(name)
    except CardUnknown:
        return None
    return by_id(cards[0].id) if cards[0].id and " MIG " not in cards[0].name else None


def _rate(bench: Benchmark, tokens: float | None) -> float:
    """Tokens a second from requests a second and tokens of each; 0 where either is not told."""
    return (bench.request_rate or 0.0) * (tokens or 0.0)


def cached_share(bench: Benchmark) -> float:
    """Part of the prompt tokens that a prefix cache answered, as far as the result says."""
    return min(1.0, bench.cached_tokens / bench.input_tokens) if bench.cached_tokens and bench.input_tokens else 0.0


def in_flight(bench: Benchmark) -> float | None:
    """Requests under way on average: measured; by Little's law, rate x latency; else the limit that was asked for."""
    if bench.in_flight:
        return bench.in_flight
    duration = request_seconds(bench)
    if bench.request_rate and duration:
        law = bench.request_rate * duration
        return min(law, bench.concurrency) if bench.concurrency else law
    return float(bench.concurrency) if bench.concurrency else None


def request_seconds(bench: Benchmark) -> float | None:
    """Mean duration of a request: printed, or TTFT and the time of its further tokens."""
    if bench.e2e and bench.e2e.average:
        return bench.e2e.average
    pace = bench.tpot or bench.itl
    made = tokens_made(bench)
    if not (bench.ttft and bench.ttft.average and pace and pace.average and made):
        return None
    return bench.ttft.average + (made - 1) * pace.average


def tokens_made(bench: Benchmark) -> float | None:
    """Output tokens of a request, on average."""
    if bench.output_mean:
        return bench.output_mean
    return bench.output_rate / bench.request_rate if bench.output_rate and bench.request_rate else None


def context(bench: Benchmark) -> int:
    """Tokens in the cache of a request, on average over its decoding; 0 where nothing tells."""
    prompt, made = bench.input_mean or 0, tokens_made(bench) or 0
    return round(prompt + made / 2)


def pace(bench: Benchmark) -> float | None:
    """Seconds between two tokens of a request, on average: per token where the tool tells, not per chunk."""
    for spread in (bench.tpot, bench.itl):
        if spread and spread.average:
            return spread.average
    return None


def tokens_a_step(bench: Benchmark) -> float:
    """Tokens that one step of the model gave a request, where the result shows it: the draft's, or several in a chunk."""
    told = [bench.acceptance_length or 1.0, bench.tokens_per_chunk or 1.0]
    if bench.tpot and bench.itl and bench.tpot.average and bench.itl.average and bench.tool in ("vllm", "sglang"):
        told.append(bench.itl.average / bench.tpot.average)
    return max(told)
