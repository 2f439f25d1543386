"""SGLang's memory model: how the static share, weights and KV pool hang together.

The same in every version from 0.4.0 to 0.5.23 (source read): with P the memory free on the GPU before the weights,
A after them (both the minimum over ranks), and f the static fraction, the pool gets `A − P·(1 − f)`. So f is a share of
what was free, not of the card, and what lies outside it, `P·(1 − f)`, is all that activations and CUDA graphs get.
"""

from __future__ import annotations


def static_pool_bytes(before: int, after: int, fraction: float) -> int:
    """Bytes for the KV pool (negative: the weights alone exceed the static share)."""
    return round(after - before * (1 - fraction))


def least_fraction(before: int, after: int) -> float:
    """The smallest `--mem-fraction-static` that leaves the pool anything at all (exclusive)."""
    return 1 - after / before
