"""What a process takes outside PyTorch's allocator, and the KV cache's share of a card (shared facts, vllm.md C.1)."""

from __future__ import annotations

import msgspec

from loadpath.core.units import GIB, MIB
from loadpath.engines.vllm.planning import releases
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.deployment import Card
from loadpath.planning.kv import budget, kv_share

CONTEXT_BYTES = 520 * MIB
"""CUDA context of a process on a data-centre card (H100: free memory at the start of 16 logged runs)."""
SHARED_BYTES = 4 * GIB
"""Memory that an otherwise idle host keeps of what it shares with the GPU (GB10)."""
MODULES_BYTES, GRAPH_MODULES_BYTES = 133 * MIB, 123 * MIB
"""Kernels loaded by the pass (0.13 GiB, 0.11 to 0.17), and by trying graphs inside the measured span (0.18 to 0.26: 0.25)."""
FIRST_ENGINE_BYTES, FIRST_ENGINE_SLOT_BYTES = 50 * MIB, 150 * MIB
"""Kernels of the first engine, which compiles nothing (0.01 to 0.09 GiB in five starts of 0.7 and 0.8), and its communicator
over PCIe (0.20 to 0.32 in all: three starts on two and four cards)."""
COUNTED_CONTEXT_BYTES = 300 * MIB
"""0.6.4 counted the CUDA context with what is outside PyTorch: 0.35 and 0.39 GiB in all (RTX 3090, V100)."""
SWITCH_COMMUNICATOR_BYTES, LINK_COMMUNICATOR_BYTES, SLOT_COMMUNICATOR_BYTES = 430 * MIB, 270 * MIB, 50 * MIB
"""Buffers of a communicator that come with its first use: behind NVSwitch (0.42 GiB: H100, 0.11), over NVLink (0.26: V100,
0.6), over PCIe (0.05: cards of 16 and 24 GB, 0.9 to 0.22)."""
SWITCH_BYTES, DOUBLING_BYTES = 1875 * MIB, 100 * MIB
"""Communicators and multicast all-reduces on NVSwitch boards, taken during the pass: 1.83 GiB at two ranks, 0.1 more for
each doubling (five starts of 0.19, H100; the step lies between 0.12 and 0.19)."""
EARLY_COMMUNICATOR_BYTES = 1600 * MIB
"""Communicators of NVSwitch cards before the baseline (free memory at the start of six logged runs): charged by versions
that measure their baseline earlier."""
ERROR, ERROR_ELSEWHERE = 0.05, 0.6
"""Mean error on logged starts, as a share: on NVSwitch boards, where it was fitted, and on public starts of other cards
that nothing was fitted to (12 of them)."""
LINK, NVSWITCH_LINK = 200e9, 700e9  # bytes/s, both directions; boards behind a switch: Hopper and later


class Share(msgspec.Struct, frozen=True):
    """One card's sums. `free`: what the card has free when the engine checks; `kv`: the KV cache's share, may be negative."""

    total: int
    budget: int
    free: int
    non_torch: int
    kv: int


def share(card: Card, options: Options, weights: int, activation: int, graphs: int, extra: int = 0) -> Share:
    """The KV cache's share of `card`. `extra`: other allocations that this version charges."""
    allowed = budget(card.total_bytes, options.utilisation, options.version)
    outside = non_torch(card, options)
    charged = outside + extra
    if not options.v0 and options.version < releases.OWN_MEMORY_ONLY:
        charged += card.total_bytes - free_at_start(card, options)  # whatever is in use on the card, whoever holds it
    kv = options.kv_bytes
    if kv is None:
        kv = kv_share(card.total_bytes, options.utilisation, weights, charged, activation, graphs, options.version)
    return Share(card.total_bytes, allowed, free_at_start(card, options), outside, kv)


def free_at_start(card: Card, options: Options) -> int:
    """Free bytes at the engine's baseline: after its CUDA context, from 0.11 on after its communicators."""
    if card.free_bytes is not None:
        return card.free_bytes
    taken = _context(card)
    if options.tensor_parallel > 1 and options.version >= releases.NCCL_BEFORE_BASELINE:
        taken += EARLY_COMMUNICATOR_BYTES if nvswitch(card) else _communicator(card)
    return max(0, card.total_bytes - taken)


def _context(card: Card) -> int:
    """The context, and where the GPU shares the host's memory, what the host's own programs hold."""
    return min(CONTEXT_BYTES, card.total_bytes // 40) + (SHARED_BYTES if card.unified_memory else 0)


def non_torch(card: Card, options: Options) -> int:
    """Growth outside PyTorch's allocator between the baseline and the end of the measured pass."""
    size, ranks = _modules(options), options.tensor_parallel
    if ranks == 1:
        return size + (SLOT_COMMUNICATOR_BYTES if options.pipeline_parallel > 1 else 0)
    if options.version >= releases.LATE_COMMUNICATORS and nvswitch(card):
        return size + SWITCH_BYTES + _doublings(ranks)
    if options.version < releases.NCCL_BEFORE_BASELINE and nvswitch(card):
        size += EARLY_COMMUNICATOR_BYTES + _doublings(ranks)
    return size + _communicator(card, options.v0)


def _modules(options: Options) -> int:
    """Kernels that the pass loads, and in one release the context."""
    if options.v0:
        context = COUNTED_CONTEXT_BYTES if releases.MEASURED_PEAK <= options.version < (0, 6, 5) else 0
        return FIRST_ENGINE_BYTES + context
    tries_graphs = releases.GRAPH_ESTIMATE <= options.version < releases.CONSUMED_BY_DEVICE and not options.eager
    return MODULES_BYTES + (GRAPH_MODULES_BYTES if tries_graphs else 0)


def error(card: Card) -> float:
    """Mean error to be expected of `non_torch`."""
    return ERROR if nvswitch(card) else ERROR_ELSEWHERE


def _doublings(ranks: int) -> int:
    return DOUBLING_BYTES * (ranks.bit_length() - 2)


def _communicator(card: Card, first_engine: bool = False) -> int:
    if nvswitch(card):
        return SWITCH_COMMUNICATOR_BYTES
    linked = card.link_bytes_per_s is not None and card.link_bytes_per_s >= LINK
    slot = FIRST_ENGINE_SLOT_BYTES if first_engine else SLOT_COMMUNICATOR_BYTES
    return LINK_COMMUNICATOR_BYTES if linked else slot


def nvswitch(card: Card) -> bool:
    """Whether the card's peers are behind a switch with multicast (HGX boards of Hopper and later)."""
    linked = card.link_bytes_per_s is not None and card.link_bytes_per_s >= NVSWITCH_LINK
    return linked and card.capability is not None and card.capability >= (9, 0)
