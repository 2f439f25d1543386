"""How fast a deployment can possibly be: floors of a decode step and of a prefill, and what they bound.

Ceilings, not predictions: every byte at the full bandwidth, every operation at the full rate, memory and compute perfectly
overlapped, no scheduling, no sampling. Figures are of the whole model; `Cards` says over how many GPUs they are divided.
A step reads the weights once (of a mixture of experts: those that some token of the batch is routed to) and the cache of every sequence.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.planning.collectives import Link, all_reduce

Limit = Literal["bandwidth", "compute", "interconnect"]
_ALWAYS = (
    "full bandwidth and peak rate, memory and compute overlapped: a ceiling, not a prediction",
    "one token per sequence and step, each with its own cache: accepted drafts and shared prefixes can pass it",
)
GENERAL_ASSUMPTIONS = len(_ALWAYS)
"""So many of `Bounds.assumptions`, the first, hold for every plan."""


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The cache of layers that keep it alike: bytes per token of context, and FLOP per pair of a query and a cached token.

    `window`: most tokens that are read (sliding, chunked or sparse attention), 0: all. `prefill_flops_per_pair`: where a
    prompt is worked on in another way than a single token (latent attention), 0: alike.
    """

    bytes_per_token: float
    flops_per_pair: float = 0.0
    prefill_flops_per_pair: float = 0.0
    window: int = 0

    @property
    def prefill(self) -> float:
        return self.prefill_flops_per_pair or self.flops_per_pair

    def tokens(self, context: float) -> float:
        """Cached tokens that a query at `context` reads."""
        return min(context, self.window) if self.window else context

    def pairs(self, tokens: float, before: float = 0) -> float:
        """Pairs of a query and a token of `tokens` new tokens after `before` cached ones, causal."""
        growing = min(tokens, max(0.0, self.window - before)) if self.window else tokens
        return growing * before + growing * (growing + 1) / 2 + (tokens - growing) * self.window


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one token costs a model, in plain figures.

    `weight_bytes`: read in every step (without input embeddings and routed experts); `expert_bytes`: all routed experts of
    all layers, of which each token uses `experts_active` of `experts`; `state_bytes`: recurrent state of a sequence;
    `flops_per_token`: two per active weight, without the output head; `head_flops`: the output head, per sampled token.
    `all_reduces`: over tensor-parallel GPUs, per pass; `all_reduce_bytes_per_token`: of one of them.
    """

    weight_bytes: float
    flops_per_token: float
    head_flops: float = 0.0
    expert_bytes: float = 0.0
    experts: int = 0
    experts_active: int = 0
    caches: tuple[Cache, ...] = ()
    state_bytes: float = 0.0
    all_reduces: int = 0
    all_reduce_bytes_per_token: float = 0.0


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of one replica: rates of one GPU, and how the model is divided.

    `attention_flops_per_s`: rate of attention products (16-bit as a rule), 0: as the rest. `cache_ways`: GPUs over which
    the cache is divided; fewer than `tensor_parallel` where key-value heads are replicated, 1 for latent attention.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: float
    attention_flops_per_s: float = 0.0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    replicas: int = 1
    cache_ways: int = 1
    link: Link | None = None

    @property
    def attention_rate(self) -> float:
        return self.attention_flops_per_s or self.flops_per_s


class Decode(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of decoding with so many sequences at once. `itl_seconds`: no shorter time between two tokens of a sequence;
    `tokens_per_s`: no more of all sequences together, `sequence_tokens_per_s`: of one."""

    concurrency: int
    context_tokens: int
    itl_seconds: float
    tokens_per_s: float
    sequence_tokens_per_s: float
    limit: Limit
    weights_seconds: float
    cache_seconds: float
    compute_seconds: float
    all_reduce_seconds: float
    experts_read_share: float | None = None
    """Expected part of the routed experts that a step reads (tokens routed evenly and independently: assumed)."""


class Prefill(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a prompt's prefill with nothing else running: `ttft_seconds`: no earlier first token."""

    tokens: int
    ttft_seconds: float
    tokens_per_s: float
    limit: Limit
    compute_seconds: float
    memory_seconds: float
    all_reduce_seconds: float


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """All bounds of a plan.

    `compute_bound_from`: least concurrency whose decode step compute bounds at that context, None: none does;
    `bandwidth_bound_below`: with fewer sequences bandwidth bounds at every context, None: with any number.
    """

    decode: tuple[Decode, ...]
    prefill: Prefill
    compute_bound_from: int | None
    bandwidth_bound_below: int | None
    assumptions: tuple[str, ...]


def decode(load: Load, cards: Cards, concurrency: int, context: int) -> Decode:
    """The floor of one decode step of `concurrency` sequences, each with `context` tokens in the cache.

    Pipeline stages hold micro-batches of their own, so the sequences of a stage are `concurrency` over their number; a
    token passes all stages, which takes as long as one GPU with the whole depth.
    """
    batch = -(-concurrency // (cards.pipeline_parallel * cards.replicas))
    share = experts_read(load, batch) if load.experts else None
    weights = _weight_seconds(load, cards, share)
    cache = batch * _cache_bytes(load, context) / cards.cache_ways / cards.bandwidth_bytes_per_s
    compute = _compute_seconds(load, cards, batch, batch, batch * _attention_flops(load, context))
    exchange = _exchange_seconds(load, cards, batch)
    seconds = max(weights + cache, compute) + exchange
    return Decode(
        concurrency=concurrency,
        context_tokens=context,
        itl_seconds=seconds,
        tokens_per_s=concurrency / seconds,
        sequence_tokens_per_s=1 / seconds,
        limit=_limit(weights + cache, compute, exchange),
        weights_seconds=weights,
        cache_seconds=cache,
        compute_seconds=compute,
        all_reduce_seconds=exchange,
        experts_read_share=share,
    )


def prefill(load: Load, cards: Cards, tokens: int, cached: int = 0, chunk: int = 0) -> Prefill:
    """The floor of a prompt of `tokens`, of which `cached` are in the prefix cache, in chunks of `chunk` (0: not known).

    Every chunk reads the weights once; the last token alone passes the output head. Pipeline stages work on different
    chunks at the same time: n chunks pass p stages in (n + p - 1) / (n p) of the time of one GPU.
    """
    new = max(1, tokens - cached)
    chunks = -(-new // chunk) if chunk else 1
    pairs = sum(cache.prefill * cache.pairs(new, cached) for cache in load.caches)
    staged = _stages(cards.pipeline_parallel, chunks if chunk else 0)
    compute = staged * _compute_seconds(load, cards, new, 1, pairs)
    share = experts_read(load, min(new, chunk or new)) if load.experts else None
    memory = staged * chunks * _weight_seconds(load, cards, share)
    exchange = staged * _exchange_seconds(load, cards, new, chunks)
    seconds = max(compute, memory) + exchange
    return Prefill(
        tokens=tokens,
        ttft_seconds=seconds,
        tokens_per_s=new / seconds,
        limit=_limit(memory, compute, exchange),
        compute_seconds=compute,
        memory_seconds=memory,
        all_reduce_seconds=exchange,
    )


def _stages(stages: int, chunks: int) -> float:
    """Part of one GPU's time that so many pipeline stages take for so many chunks; 0 chunks: as many as one likes."""
    return (chunks + stages - 1) / (chunks * stages) if chunks else 1 / stages


def compute_bound_from(load: Load, cards: Cards, context: int, most: int = 1 << 16) -> int | None:
    """The least number of sequences whose decode step is bound by compute; None where reading the cache stays slower.

    Compute grows with the batch; reading the weights does not (dense) or ever less (experts): once compute leads, it stays.
    """

    def leads(concurrency: int) -> bool:
        step = decode(load, cards, concurrency, context)
        return step.compute_seconds >= step.weights_seconds + step.cache_seconds

    if not leads(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if leads(middle) else (middle, high)
    return high


def bounds(load: Load, cards: Cards, *, context: int, prompt: int, most_concurrency: int, chunk: int = 0) -> Bounds:
    """Decode at 1, 2, 4 … sequences up to what the pool admits, a prefill of `prompt` tokens, and what was assumed."""
    return Bounds(
        decode=tuple(decode(load, cards, n, context) for n in concurrencies(most_concurrency)),
        prefill=prefill(load, cards, prompt, chunk=chunk),
        compute_bound_from=compute_bound_from(load, cards, context),
        bandwidth_bound_below=compute_bound_from(load, cards, 0),
        assumptions=_assumptions(load, cards),
    )


def concurrencies(most: int) -> tuple[int, ...]:
    """1, 2, 4 … and `most` itself; at least 1."""
    made = [1]
    while made[-1] * 2 <= most:
        made.append(made[-1] * 2)
    if most > made[-1]:
        made.append(most)
    return tuple(made)


def experts_read(load: Load, tokens: int) -> float:
    """Expected part of the routed experts that a batch of tokens touches, if routing is even and independent."""
    return 1 - (1 - load.experts_active / load.experts) ** tokens


def _weight_seconds(load: Load, cards: Cards, experts_share: float | None) -> float:
    read = load.weight_bytes + load.expert_bytes * (experts_share or 0.0)
    return read / cards.tensor_parallel / cards.bandwidth_bytes_per_s


def _cache_bytes(load: Load, context: int) -> float:
    """Read for one token of one sequence; a recurrent state is also written back."""
    return sum(cache.bytes_per_token * cache.tokens(context) for cache in load.caches) + 2 * load.state_bytes


def _attention_flops(load: Load, context: int) -> float:
    return sum(cache.flops_per_pair * cache.tokens(context) for cache in load.caches)


def _compute_seconds(load: Load, cards: Cards, tokens: int, sampled: int, attention_flops: float) -> float:
    linear = (tokens * load.flops_per_token + sampled * load.head_flops) / cards.flops_per_s
    return (linear + attention_flops / cards.attention_rate) / cards.tensor_parallel


def _exchange_seconds(load: Load, cards: Cards, tokens: int, passes: int = 1) -> float:
    """All-reduces of the passes over `tokens`; nothing on one GPU or over a link that is not known."""
    if cards.link is None or cards.tensor_parallel == 1:
        return 0.0
    size = load.all_reduce_bytes_per_token * tokens / passes
    return passes * load.all_reduces * all_reduce(size, cards.tensor_parallel, cards.link).seconds


def _limit(memory: float, compute: float, exchange: float) -> Limit:
    if exchange > max(memory, compute):
        return "interconnect"
    return "bandwidth" if memory >= compute else "compute"


def _assumptions(load: Load, cards: Cards) -> tuple[str, ...]:
    made = list(_ALWAYS)
    if load.experts:
        made.append("tokens are routed to experts evenly and independently")
    if cards.tensor_parallel > 1:
        link = cards.link
        made.append(
            f"all-reduces over {link.name} start in {link.latency_s * 1e6:.0f} µs each and do not overlap with compute"
            if link
            else "the link between the GPUs is not known: all-reduces are left out"
        )
    if cards.pipeline_parallel > 1:
        made.append("sending activations between pipeline stages is left out")
    return tuple(made)
