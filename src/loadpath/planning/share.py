"""Engines that give the cache a share of what is free once the model is loaded: the arithmetic that they have in common.

TensorRT-LLM, TGI and LMDeploy differ in the share, in what it is of, and in what is taken off before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from loadpath.core.plan import Basis, GpuPlan, Plan, PlanPart
from loadpath.core.shape import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Mamba,
    ModelShape,
)
from loadpath.core.units import GIB
from loadpath.planning.deployment import Card, Deployment
from loadpath.planning.per_shape import per_shape
from loadpath.planning.refused_load import out_of_memory
from loadpath.planning.split import Split, ceil_div
from loadpath.planning.weights import weights

CONTEXT_BYTES = {"one": round(0.7 * GIB), "many": round(1.9 * GIB)}
"""What a card lacks for the CUDA context and, with several ranks, the communicators (public logs: 0.4 to 0.8, 1.2 to 3 GiB)."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment in the words of the share: `reserved`: bytes set aside before it is taken; `block`: tokens of a block."""

    engine: str
    version: str
    share: float
    tp: int
    pp: int
    context: int
    block: int
    element_bytes: float
    activations: int
    reserved: int = 0
    of_total: bool = False
    """The share is one of the whole card, weights included (TGI); else of what is free."""
    most_tokens: int | None = None
    context_bytes: int | None = None
    """What the engine takes outside its framework's allocator, where it is known; else that of a bare CUDA context."""


class Settings:
    """A deployment's settings, whichever of `-` and `_` their names are spelled with."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {name.replace("-", "_"): value for name, value in settings.items()}

    def text(self, *names: str) -> str | None:
        return next((value for name in names if (value := self._settings.get(name))), None)

    def whole(self, *names: str) -> int | None:
        value = self.text(*names)
        return int(float(value)) if value else None

    def number(self, *names: str) -> float | None:
        value = self.text(*names)
        return float(value) if value else None


@per_shape
def token_bytes(shape: ModelShape, ranks: int, element_bytes: float, stages: int = 1) -> float:
    """Cache bytes of one token on one rank; every attention layer keeps it, window layers too."""
    elements = 0
    for layer in shape.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and not mixer.reuses_cache:
                elements += max(1, mixer.kv_heads // ranks) * (mixer.head_dim + mixer.value_dim)
            elif isinstance(mixer, LatentAttention):
                elements += mixer.kv_rank + mixer.rope_dim
            elif isinstance(mixer, CompressedAttention):
                elements += mixer.head_dim // max(mixer.ratio, 1)
    return elements * element_bytes / stages


@per_shape
def state_bytes(shape: ModelShape, ranks: int) -> int:
    """Recurrent state of one sequence on one rank, in 16 bits."""
    elements = 0
    for layer in shape.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, GatedDelta):
                channels = 2 * mixer.k_heads * mixer.k_dim + mixer.v_heads * mixer.v_dim
                elements += (mixer.conv_kernel - 1) * channels + mixer.v_heads * mixer.v_dim * mixer.k_dim
            elif isinstance(mixer, Mamba):
                elements += mixer.inner_width * (mixer.state + mixer.conv_kernel - 1)
    return 2 * elements // ranks


@per_shape
def activation_bytes(shape: ModelShape, ranks: int, tokens: int, sequences: int = 1) -> int:
    """A rule of thumb for the peak of one step: two feed-forward widths and four hidden states of every token in 16 bits,
    and the logits of every sequence in 32."""
    widest = 0
    for layer in shape.layers:
        for feed in layer.feeds:
            if isinstance(feed, Dense):
                widest = max(widest, feed.width // ranks)
            elif isinstance(feed, Experts):
                widest = max(widest, feed.active * ceil_div(feed.width, ranks) + feed.shared_width // ranks)
    return 2 * tokens * (2 * widest + 4 * shape.hidden) + 4 * sequences * shape.vocab


def element_bytes(name: str | None, shape: ModelShape) -> float:
    """Bytes of a cache element by the name of its type; `auto`: 16 bits, or 8 where the checkpoint asks for them."""
    text = (name or "auto").lower()
    if "fp8" in text or "int8" in text or text == "8":
        return 1
    if text in ("auto", "none") and shape.quantisation is not None and shape.quantisation.kv_bits == 8:
        return 1
    return 2


class Sums(msgspec.Struct, frozen=True):
    """What the engine's lines state, for the rank with the least room."""

    card: Card
    free: int
    weights: int
    left: int
    kv_bytes: int
    tokens: int
    load_error: str = ""
    """PyTorch's refusal where the weights alone are more than the card has free."""


def planned(
    deployment: Deployment, asked: Request, lines: Callable[[Sums], Iterator[str]], notes: tuple[str, ...]
) -> Plan:
    """The plan of a deployment whose cache is a share of what is free."""
    shape, ranks = deployment.shape, asked.tp * asked.pp
    card = min(deployment.cards, key=lambda one: one.total_bytes if one.free_bytes is None else one.free_bytes)
    context = asked.context_bytes or CONTEXT_BYTES["many" if ranks > 1 else "one"]
    free = (card.total_bytes if card.free_bytes is None else card.free_bytes) - context
    held = max(weights(shape, Split(tp=asked.tp, pp=asked.pp, stage=i)).bytes for i in range(asked.pp))
    if asked.of_total:
        left = free - held - round((1 - asked.share) * card.total_bytes) - asked.reserved
    else:
        left = round((free - held - asked.activations - asked.reserved) * asked.share)
    if deployment.available_kv_bytes is not None:
        left = deployment.available_kv_bytes
    price = token_bytes(shape, asked.tp, asked.element_bytes, asked.pp)
    tokens = int(max(left, 0) / price) // asked.block * asked.block if price else 0
    if asked.most_tokens is not None:
        tokens = min(tokens, asked.most_tokens)
    kv = round(tokens * price)
    error = out_of_memory(card, free, held, len(shape.layers) // asked.pp) if held > free else ""
    sums = Sums(card, free, held, left, kv, tokens, error)
    state = state_bytes(shape, asked.tp)
    told = [*notes]
    if state:
        told.append(f"recurrent layers take {state / 2**20:,.1f} MiB for each request beside the cache")
    return Plan(
        model=shape.id, engine=asked.engine, engine_version=asked.version, gpu=card.name, gpus=len(deployment.cards),
        fits=tokens >= asked.context, weights_bytes=held, activation_peak_bytes=asked.activations,
        non_torch_bytes=context, graph_bytes=0, kv_bytes=kv, kv_tokens=tokens,
        max_concurrency=round(tokens / asked.context, 2), max_model_len=asked.context, total_bytes=card.total_bytes,
        budget_bytes=round(card.total_bytes * asked.share) if asked.of_total else card.total_bytes,
        utilisation=asked.share, kv_bytes_per_token=price or None, kv_blocks=tokens // asked.block,
        kv_block_tokens=asked.block, request_bytes=round(asked.context * price) + state, longest_context=tokens,
        gpus_planned=tuple(_gpu(i, one, asked, sums, context) for i, one in enumerate(deployment.cards)),
        lines=tuple(lines(sums)), notes=tuple(told),
    )  # fmt: skip


def _gpu(index: int, card: Card, asked: Request, sums: Sums, context: int) -> GpuPlan:
    stored: Basis = "modelled"
    parts = (
        PlanPart("weights", sums.weights, stored, 0.01),
        PlanPart("KV cache", sums.kv_bytes, "exact", note=f"{asked.share:g} of what is left"),
        PlanPart("activations", asked.activations, "assumed", note="a rule of thumb"),
        PlanPart("set aside", asked.reserved, "exact"),
        PlanPart("context and communicators", context, "modelled", 0.3),
    )
    budget = round(card.total_bytes * asked.share) if asked.of_total else card.total_bytes
    return GpuPlan(index, card.name, card.total_bytes, budget, tuple(part for part in parts if part.bytes))
