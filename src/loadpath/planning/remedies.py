"""What a change of settings would give a start whose figures are known: computed, never guessed.

Each function takes a `Fit` and returns an `Effect`, or None where the figures do not allow the sum. A pool's
concurrency scales with its bytes (one full-length request needs a fixed number of them), which holds for plain and
hybrid models alike; so `ratio` is computed even where bytes per token cannot be.
"""

from __future__ import annotations

import msgspec

HIGHEST_SHARE = 0.95
"""The greatest share of a GPU worth advising: what lies outside the budget (graphs, contexts, spikes) needs the rest."""
STORED = {16: 1.0, 8: 0.5, 4: 0.28125}
"""Weight bytes relative to 16 bits; 4 bits with their scales take 4.5 (linear layers; embeddings often stay at 16)."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one start, per GPU. `needed_bytes`: KV cache of one request of `context` tokens."""

    context: int | None = None
    tokens: int | None = None
    kv_bytes: float | None = None
    needed_bytes: float | None = None
    ratio: float | None = None
    total_bytes: float | None = None
    share: float | None = None
    weights_bytes: float | None = None
    activation_bytes: float | None = None
    graph_bytes: float | None = None
    weight_bits: int = 16
    kv_bits: int = 16
    tensor_parallel: int = 1
    heads: int | None = None
    kv_heads: int | None = None

    @property
    def held(self) -> float | None:
        """Full-length requests that the pool holds."""
        if self.ratio is not None:
            return self.ratio
        if self.kv_bytes is not None and self.needed_bytes:
            return self.kv_bytes / self.needed_bytes
        return self.tokens / self.context if self.tokens is not None and self.context else None

    @property
    def wanted_bytes(self) -> float | None:
        """KV bytes that one full-length request takes."""
        if self.needed_bytes is not None:
            return self.needed_bytes
        return self.kv_bytes / self.held if self.kv_bytes and self.held else None


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change gives. `added_bytes`: more KV cache per GPU; the others are the values after the change."""

    value: float
    added_bytes: float | None = None
    kv_bytes: float | None = None
    tokens: int | None = None
    ratio: float | None = None

    @property
    def suffices(self) -> bool | None:
        return None if self.ratio is None else self.ratio >= 1


def _grown(fit: Fit, value: float, added: float | None, per_token: float = 1.0) -> Effect:
    """The effect of `added` more bytes, with tokens that cost `per_token` of what they did."""
    held, kv = fit.held, fit.kv_bytes
    growth = None
    if kv and kv > 0 and added is not None:
        growth = (kv + added) / kv / per_token
    elif not added and added is not None:
        growth = 1 / per_token
    return Effect(
        value=value,
        added_bytes=added,
        kv_bytes=kv + added if kv is not None and added is not None else None,
        tokens=int(fit.tokens * growth) if fit.tokens and growth else None,
        ratio=held * growth if held is not None and growth else None,
    )


def raise_share(fit: Fit, share: float = HIGHEST_SHARE) -> Effect | None:
    """A greater share of the GPU: every hundredth of it is KV cache."""
    if not fit.total_bytes or fit.share is None or share <= fit.share:
        return None
    return _grown(fit, share, (share - fit.share) * fit.total_bytes)


def share_needed(fit: Fit) -> float | None:
    """The share of the GPU at which one full-length request fits, all else equal (may exceed 1)."""
    if not fit.total_bytes or fit.share is None or fit.kv_bytes is None or fit.wanted_bytes is None:
        return None
    return fit.share + (fit.wanted_bytes - fit.kv_bytes) / fit.total_bytes


def freed_by_bits(weights_bytes: float, bits: int, stored_bits: int = 16) -> float:
    """Bytes that weights stored at `bits` would leave free."""
    return weights_bytes * (1 - STORED[bits] / STORED[stored_bits])


def quantise(fit: Fit, bits: int, kv_too: bool = False) -> Effect | None:
    """Weights stored at 8 or 4 bits (with `kv_too`, the KV cache at 8 as well)."""
    if fit.weights_bytes is None or bits >= fit.weight_bits or fit.weight_bits not in STORED:
        return None
    if kv_too and fit.kv_bits <= 8:
        return None
    return _grown(fit, bits, freed_by_bits(fit.weights_bytes, bits, fit.weight_bits), 0.5 if kv_too else 1.0)


def fp8_kv(fit: Fit) -> Effect | None:
    """A KV cache of 8-bit elements: the same bytes hold twice the tokens."""
    return None if fit.kv_bits <= 8 else _grown(fit, 8, 0, 0.5)


def batched_tokens(fit: Fit, now: int, to: int) -> Effect | None:
    """Fewer tokens in one step: the activation peak shrinks about in proportion."""
    if fit.activation_bytes is None or to >= now:
        return None
    return _grown(fit, to, fit.activation_bytes * (1 - to / now))


def without_graphs(fit: Fit) -> Effect | None:
    """No CUDA graphs (where that version takes their estimate out of the share)."""
    return None if not fit.graph_bytes or fit.graph_bytes < 0 else _grown(fit, 0, fit.graph_bytes)


def offload(fit: Fit) -> Effect | None:
    """The weights that would have to move to host memory for one full-length request to fit."""
    if fit.wanted_bytes is None or fit.kv_bytes is None or fit.weights_bytes is None:
        return None
    missing = fit.wanted_bytes - fit.kv_bytes
    return _grown(fit, missing, missing) if 0 < missing < fit.weights_bytes else None


def divides(fit: Fit, ranks: int) -> bool:
    """Whether the attention heads divide over `ranks` GPUs (unknown heads: the usual powers of two do)."""
    return fit.heads is None or fit.heads % ranks == 0


def tensor_parallel(fit: Fit, ranks: int) -> Effect | None:
    """`ranks` GPUs instead of the present number: weights split, and KV heads as far as there are any to split."""
    if fit.kv_bytes is None or fit.weights_bytes is None or ranks <= fit.tensor_parallel or not divides(fit, ranks):
        return None
    times = ranks / fit.tensor_parallel
    split = times
    if fit.kv_heads:
        split = max(1, min(ranks, fit.kv_heads)) / max(1, min(fit.tensor_parallel, fit.kv_heads))
    return _grown(fit, ranks, fit.weights_bytes * (1 - 1 / times), 1 / split)


def least_ranks(fit: Fit) -> Effect | None:
    """The smallest of 2, 4, 8 GPUs on which one full-length request fits."""
    effects = (tensor_parallel(fit, ranks) for ranks in (2, 4, 8))
    return next((e for e in effects if e is not None and e.suffices), None)
