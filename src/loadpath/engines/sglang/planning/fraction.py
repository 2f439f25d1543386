"""SGLang's defaults that follow the card: prefill chunk, graph sizes, and from them `--mem-fraction-static`, by version.

Source: `server_args.py` (0.3.0 to 0.5.18) and `arg_groups/memory_hook.py` (0.5.19 on) of the released wheels. The card
counts as nvidia-smi's total in MiB; all reserves are MiB.
"""

from __future__ import annotations

import msgspec

from loadpath.planning.deployment import Version

UNKNOWN_CARD = 0.88
"""The fraction where nvidia-smi tells no total (0.95 from 0.5.21 on)."""


class Demand(msgspec.Struct, frozen=True):
    """What the default fraction depends on. `card_mib`: nvidia-smi's total; None: not known."""

    version: Version
    card_mib: int | None
    tp: int = 1
    pp: int = 1
    dp_attention: int = 0
    """Data-parallel ranks of the attention; 0: not used."""
    chunk: int = 8192
    prefill_cap: int = 16384
    """`--max-prefill-tokens`: what a step may take where chunked prefill is off."""
    graph_batch: int = 256
    """Greatest batch of which a decode graph is captured; 0: no graphs."""
    prefill_graphs: int = 0
    """Captured prefill sizes; 0: none."""
    latent: bool = False
    speculation: str = ""
    tower_layers: int = 0
    tower_hidden: int = 0
    multimodal: bool = False


def default_chunk(card_mib: int | None, version: Version) -> int:
    """`--chunked-prefill-size` where it is not given."""
    if card_mib is None:
        return 4096
    if version < (0, 5, 3):
        steps: tuple[tuple[int, int], ...] = ((35_840, 2048), (163_840, 8192))
    elif version < (0, 5, 20):
        steps = ((35_840, 2048), (61_440, 4096), (163_840, 8192))
    else:
        steps = ((20_480, 2048), (61_440, 4096), (163_840, 8192))
    return next((chunk for limit, chunk in steps if card_mib < limit), 16_384)


def default_graph_batch(card_mib: int | None, tp: int, version: Version) -> int:
    """`--cuda-graph-max-bs` where it is not given."""
    wide = tp >= 4
    if card_mib is None:
        return 160
    if version < (0, 5, 3):
        if card_mib < 35_840:
            return 80 if wide else 8
        return 160 if card_mib < 92_160 else 256 if card_mib < 163_840 else 512
    if card_mib < 20_480:
        return 8
    if card_mib < 35_840:
        small = (48, 160) if version >= (0, 5, 20) else (24, 80)
    elif card_mib < 61_440:
        small = (32, 160)
    else:
        small = (256, 512) if card_mib < 163_840 else (512, 512)
    return small[wide]


def prefill_sizes(limit: int) -> int:
    """How many prefill sizes are captured up to `limit` tokens (0.5.6 on)."""
    steps = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, limit, 512))
    return sum(1 for first, last, step in steps for size in range(first, last + 1, step) if size <= limit)


def default_fraction(demand: Demand) -> float:
    """`--mem-fraction-static` as SGLang sets it where it is not given."""
    if demand.version < (0, 4, 7, 1):
        fraction = _by_ranks(demand)
    elif demand.card_mib is None:
        fraction = 0.95 if demand.version >= (0, 5, 21) else UNKNOWN_CARD
    else:
        reserve = reserve_mib(demand)
        fraction = round((demand.card_mib - reserve) / demand.card_mib, 3)
    if demand.multimodal and demand.version >= (0, 4, 9):
        fraction *= _tower_factor(demand) if demand.version >= (0, 4, 9, 6) else 0.9
    return fraction if not demand.multimodal else fraction * runner_factor(demand.version)


def runner_factor(version: Version) -> float:
    """What the model runner of up to 0.4.8 takes off a multimodal model's fraction, also off a given one."""
    if version >= (0, 4, 9):
        return 1.0
    return 0.9 if version >= (0, 4, 5) else 0.95


def reserve_mib(demand: Demand) -> float:
    """What SGLang leaves outside the static share for activations, graphs and context, in MiB (0.4.7.post1 on)."""
    if demand.version < (0, 5, 3):
        return _reserve_by_class(demand)
    ranks = demand.tp * demand.pp
    tokens = demand.chunk if demand.chunk > 0 else demand.prefill_cap
    reserve = 512 + 1.5 * max(tokens, 2048) + 2 * demand.graph_batch + 1024 * ranks / 8
    if demand.dp_attention:
        reserve += demand.graph_batch * demand.dp_attention * (4.5 if demand.graph_batch > 300 else 3)
    if demand.prefill_graphs and demand.version >= (0, 5, 6):
        if demand.latent and demand.version >= (0, 5, 10):
            reserve += 1536
        elif demand.version >= (0, 5, 8):
            reserve += 8 * demand.prefill_graphs
        else:
            reserve += demand.chunk // (8 if demand.version >= (0, 5, 7) else 4)
    if (demand.card_mib or 0) > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    return reserve + _speculation_mib(demand)


def _speculation_mib(demand: Demand) -> int:
    """The surcharge for a drafter, dropped in 0.5.14, which measures the drafter's weights instead."""
    if not demand.speculation or demand.version >= (0, 5, 14):
        return 0
    if demand.speculation == "STANDALONE":
        return 6144
    if demand.speculation == "NGRAM":
        return 0
    return 4096 if demand.version >= (0, 5, 10) else 2048


def _reserve_by_class(demand: Demand) -> float:
    """0.4.7.post1 to 0.5.2: by the size of the card alone."""
    ranks, card = demand.tp * demand.pp, demand.card_mib or 0
    if card < 35 * 1024:
        gib = 2.8 + ranks / 10
    elif card < 90 * 1024:
        gib = 9.5 + ranks / 2
    else:
        gib = 12 + ranks / 2 if card < 160 * 1024 else 32.0
    if demand.speculation:
        gib += 6 if demand.speculation == "STANDALONE" and demand.version >= (0, 5, 2) else 2
    return 1024 * (gib + (4 if demand.dp_attention else 0))


def _by_ranks(demand: Demand) -> float:
    """Up to 0.4.7: by the number of GPUs that share the model."""
    ranks, card = demand.tp * demand.pp, demand.card_mib or 0
    eight = 0.83 if demand.version < (0, 4) else 0.81
    steps = ((16, 0.79), (8, eight), (4, 0.85), (2, 0.87))
    fraction = next((share for least, share in steps if ranks >= least), 0.88)
    if demand.version >= (0, 4, 6) and card > 81_920:
        fraction = 0.88
        if card > 98_304:
            fraction = min(fraction + 49_152 * (1 - fraction) / card, (card - 18_432) / card)
        if card > 180_000 and demand.version >= (0, 4, 7):
            fraction = 0.79
    return fraction


def _tower_factor(demand: Demand) -> float:
    """What an image tower takes off the fraction, by its size against ViT-L/14 (24 layers of width 1024)."""
    layers, hidden = demand.tower_layers or 24, demand.tower_hidden or 1024
    adjusted = 1 - 0.1 * (layers * hidden**2 / (24 * 1024**2) - 1)
    return 0.95 * max(0.8, min(1.05, adjusted))
