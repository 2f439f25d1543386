"""The KV cache's share of a GPU: each engine's own budget formula, and what a share holds.

Formulas of vLLM read in its sources, version by version (shared facts, vllm.md C.1 and C.7).
Sizes in bytes per GPU, lengths in tokens.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from loadpath.core.facts.engine import KvPool, MemoryBreakdown, WeightsLoaded
from loadpath.core.units import KIB

Version = tuple[int, ...]
Class = Literal["none", "no-batching", "little", "fine"]

GRAPHS_SUBTRACTED_SINCE: Version = (0, 20, 0)
CEIL_SINCE: Version = (0, 14)
DERIVED_TOKENS_SINCE: Version = (0, 20, 1)
GREATER_DEFAULT_SHARE_SINCE: Version = (0, 20, 0)
BLOCK = 16
"""Tokens of a block of vLLM's cache unless set or raised by the attention backend."""


def default_utilisation(version: Version | None) -> float:
    """vLLM's gpu_memory_utilization where nobody set it: 0.9, and 0.92 from 0.20.0."""
    return 0.92 if version and version >= GREATER_DEFAULT_SHARE_SINCE else 0.9


def budget(total: float, utilisation: float, version: Version | None = None) -> int:
    """Bytes that vLLM allows itself on a GPU of `total` bytes (rounded up from 0.14 on)."""
    share = total * utilisation
    return math.ceil(share) if version and version >= CEIL_SINCE else int(share)


def subtracts_graphs(version: Version | None) -> bool:
    """Whether that vLLM takes its estimate of the CUDA graphs out of the KV share."""
    return version is not None and version >= GRAPHS_SUBTRACTED_SINCE


def kv_share(
    total: float,
    utilisation: float,
    weights: float,
    non_torch: float = 0,
    activation: float = 0,
    graphs: float = 0,
    version: Version | None = None,
) -> int:
    """total x utilisation - weights - non-torch - activation peak (- graphs where that version subtracts them)."""
    return _left(budget(total, utilisation, version), weights + non_torch + activation, graphs, version)


def _left(allowed: float, used: float, graphs: float, version: Version | None) -> int:
    return round(allowed - used - (graphs if subtracts_graphs(version) else 0))


def share_of(
    breakdown: MemoryBreakdown, weights: WeightsLoaded | None = None, version: Version | None = None
) -> int | None:
    """The KV share redone from a profiling breakdown's own figures; None where one of them is missing."""
    loaded = breakdown.weights_bytes or (weights.bytes if weights else None)
    allowed = breakdown.budget_bytes
    if allowed is None and breakdown.total_bytes is not None and breakdown.utilisation is not None:
        allowed = budget(breakdown.total_bytes, breakdown.utilisation, version)
    if allowed is None or breakdown.activation_bytes is None:
        return None
    if breakdown.consumed_bytes is not None:
        used = breakdown.consumed_bytes + breakdown.activation_bytes
    elif loaded is not None:
        used = loaded + (breakdown.non_torch_bytes or 0) + breakdown.activation_bytes
    else:
        return None
    return _left(allowed, used, breakdown.graph_bytes or 0, version)


def bytes_per_token(
    kv_bytes: float | None,
    pool: KvPool | None,
    version: Version | None = None,
    hybrid: bool = False,
) -> float | None:
    """KV bytes of one token, from a pool's bytes and tokens; None where that quotient means something else.

    From 0.20.1 on vLLM prints concurrency x context as "tokens"; hybrid models (sliding window, Mamba) keep some
    layers at a fixed size: there bytes / tokens changes with the context and is no price of a token.
    """
    if pool is None or not pool.tokens or not kv_bytes or kv_bytes <= 0:
        return None
    if hybrid or pool.derived or (version is not None and version >= DERIVED_TOKENS_SINCE):
        return None
    return kv_bytes / pool.tokens


def concurrency_class(ratio: float) -> Class:
    """How many full-length requests a pool serves at once, in words: < 1 none, 1-2 no batching, 2-4 little, else fine."""
    if ratio < 1:
        return "none"
    if ratio < 2:
        return "no-batching"
    return "little" if ratio < 4 else "fine"


def round_context(limit: int) -> int:
    """A context length that people set, not above `limit`: whole thousands of 1,024 (halves below 8,192, blocks below 1,024)."""
    for step, least in (
        (8 * KIB, 128 * KIB),
        (4 * KIB, 64 * KIB),
        (KIB, 8 * KIB),
        (KIB // 2, 2 * KIB),
        (KIB // 4, KIB),
    ):
        if limit >= least:
            return limit // step * step
    return max(limit // BLOCK * BLOCK, min(limit, 1))


class Model(msgspec.Struct, frozen=True):
    """What a model's name tells of its size: parameters, and the bytes each takes as stored."""

    parameters: float
    stored_bits: int
    scheme: str = ""

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.stored_bits / 8


def most_bytes_per_token(parameters: float, cache_bits: int = 16) -> float:
    """An upper bound on the KV bytes of one token for a model of so many parameters.

    A dense transformer with full multi-head attention has about 12 x layers x width^2 parameters and keeps
    2 x layers x width elements a token; every other design (grouped heads, latent, sliding, mixtures) keeps fewer.
    The width is taken as small as models of that size have it, and a third is added.
    """
    width = 4096 if parameters >= 5e9 else 2048 if parameters >= 1e9 else 768
    return 1.3 * parameters / (12 * width) * 2 * cache_bits / 8
