"""SGLang's memory model: how the static share, weights and KV pool hang together.

The same in every version from 0.4.0 to 0.5.23 (source read): with P the memory free on the GPU before the weights,
A after them (both the minimum over ranks), and f the static fraction, the pool gets `A − P·(1 − f)`. So f is a share of
what was free, not of the card, and what lies outside it, `P·(1 − f)`, is all that activations and CUDA graphs get.
"""

from __future__ import annotations

import math


def static_pool_bytes(before: int, after: int, fraction: float) -> int:
    """Bytes for the KV pool (negative: the weights alone exceed the static share)."""
    return round(after - before * (1 - fraction))


def least_fraction(before: int, after: int) -> float:
    """The smallest `--mem-fraction-static` that leaves the pool anything at all (exclusive)."""
    return 1 - after / before


def outside_bytes(before: int, fraction: float) -> int:
    """What the static share leaves for activations, CUDA graphs, the draft model's own needs."""
    return round(before * (1 - fraction))


def fraction_for(before: int, after: int, pool_bytes: int) -> float:
    """The fraction that gives the pool `pool_bytes`, rounded up to two digits."""
    return math.ceil(((before - after) + pool_bytes) / before * 100) / 100


def fraction_leaving(before: int, outside: int) -> float:
    """The largest fraction, in steps of 0.01, that leaves `outside` bytes free outside the static share."""
    return math.floor((1 - outside / before) * 100) / 100
