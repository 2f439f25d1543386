"""Ollama on top of llama.cpp: its own context and slots, memory that it keeps free, and layers placed by itself.

Its three eras place layers by an estimate (to 0.12.10), by measuring (0.12.11 to 0.24) and by llama-server's fit step
(0.30 on); all three aim at the same: the context as set, and as many layers on the GPUs as fit.
"""

from __future__ import annotations

import msgspec

from loadpath.core.plan import Plan
from loadpath.core.shape import Attention, ModelShape
from loadpath.core.units import GIB, MIB
from loadpath.engines.llama_cpp.planning import builds
from loadpath.engines.llama_cpp.planning.options import Options, options
from loadpath.engines.llama_cpp.planning.plan import plan_with
from loadpath.planning.deployment import Card, Deployment, Version

NEWEST: Version = (0, 33, 0)
KEPT_FREE_BYTES = 457 * MIB
"""What its estimate leaves on every GPU (0.9.0); llama-server's fit step leaves 1,024 MiB."""
BATCH = 512
_NAMES = {
    "OLLAMA_CONTEXT_LENGTH": "ctx-size", "num_ctx": "ctx-size", "OLLAMA_NUM_PARALLEL": "parallel",
    "OLLAMA_KV_CACHE_TYPE": "cache-type-k", "num_gpu": "n-gpu-layers", "num_batch": "ubatch-size",
    "OLLAMA_FLASH_ATTENTION": "flash-attn",
}  # fmt: skip


def plan(deployment: Deployment) -> Plan:
    """The plan of a model as Ollama loads it."""
    version = deployment.version or NEWEST
    overhead = _whole(deployment, "OLLAMA_GPU_OVERHEAD") or 0
    cards = tuple(_kept(card, overhead) for card in deployment.cards)
    moved = msgspec.structs.replace(
        deployment, cards=cards, version=(_build(version),), settings=_translated(deployment)
    )
    o = _options(moved, version, cards)
    made = plan_with(moved, o, "ollama")
    notes = made.notes
    if (kind := moved.settings.get("cache-type-k", "f16")) != "f16" and not o.flash:
        notes += (f"OLLAMA_KV_CACHE_TYPE={kind} needs OLLAMA_FLASH_ATTENTION=1: the cache stays f16",)
    return msgspec.structs.replace(
        made, engine_version=".".join(map(str, version)), lines=(_server_line(o), *made.lines), notes=notes
    )  # fmt: skip


def _build(version: Version) -> int:
    """About the llama.cpp that this version carries."""
    return builds.TIMED_LINES + 300 if version >= (0, 30) else builds.FIT - 1 if version >= (0, 12) else 6000


def _kept(card: Card, overhead: int) -> Card:
    free = card.total_bytes if card.free_bytes is None else card.free_bytes
    return msgspec.structs.replace(card, free_bytes=free - overhead) if overhead else card


def _translated(deployment: Deployment) -> dict[str, str]:
    """The settings under llama-server's names."""
    own: dict[str, str] = {}
    for name, value in deployment.settings.items():
        own.setdefault(_NAMES.get(name, name), value)
    return own


def _whole(deployment: Deployment, name: str) -> int | None:
    value = deployment.settings.get(name, "")
    return int(value) if value.isdigit() else None


def _options(deployment: Deployment, version: Version, cards: tuple[Card, ...]) -> Options:
    base = options(deployment)
    slots = int(deployment.settings.get("parallel") or 0) or 1
    each = int(deployment.settings.get("ctx-size") or 0) or default_context(version, cards)
    each = min(each, deployment.shape.max_position)
    flash = base.flash if "flash-attn" in deployment.settings else version >= (0, 12)
    kind = base.key_type if flash else "f16"
    return msgspec.structs.replace(
        base, context=each * slots, context_given=True, slots=slots, unified=True, key_type=kind, value_type=kind,
        flash=flash, layers=base.layers if "n-gpu-layers" in deployment.settings else None, fit=True,
        fit_margin=base.fit_margin if version >= (0, 30) else KEPT_FREE_BYTES, output_last=version < (0, 30),
        graph_reserve=(0, 0) if version >= (0, 30) else graph_estimate(deployment.shape, each * slots, flash),
    )  # fmt: skip


def graph_estimate(shape: ModelShape, context: int, flash: bool) -> tuple[int, int]:
    """Ollama's own estimate of the compute graph, bytes with all layers on the GPU and with some: by family, as if there
    were no flash attention; none for the families that its own engine runs and measures (0.7 on).

    Source: `GraphSize` of its `fs/ggml/ggml.go` (0.5 to 0.24); a real load of 0.19 on an RTX 3090 states the same 3.2 GiB.
    """
    first = next((m for layer in shape.layers for m in layer.mixers if isinstance(m, Attention)), None)
    if first is None or not shape.family.startswith(("llama", "mistral", "qwen2", "command-r", "cohere", "phi")):
        return 0, 0
    hidden, vocab, heads = shape.hidden, shape.vocab, first.heads
    logits, row = 4 * BATCH * (hidden + vocab), context * (1 + heads)
    copied = hidden * vocab * 105 // 128
    if shape.family.startswith("qwen2"):
        full = max(logits, 4 * BATCH * (1 + 2 * hidden + row))
        return full, max(logits + copied, 4 * (BATCH * (1 + 2 * hidden + row) + hidden * (1 + context)))
    full = max(logits, 4 * BATCH * (1 + 4 * hidden + row))
    keys = first.head_dim * first.kv_heads
    some = 4 * BATCH * (1 + hidden + max(context, hidden)) + hidden * hidden * 9 // 16
    some += 4 * context * (BATCH * heads + keys)
    return full, 4 * BATCH * hidden + max(some, logits + copied)


def default_context(version: Version, cards: tuple[Card, ...]) -> int:
    """num_ctx where nothing sets it: fixed at first, from 0.15.5 on by the memory of all GPUs together."""
    if version < (0, 7):
        return 2048
    if version < (0, 15, 5):
        return 4096
    total = sum(card.total_bytes for card in cards)
    return 262_144 if total >= 47 * GIB else 32_768 if total >= 23 * GIB else 4096


def _server_line(o: Options) -> str:
    each = o.context // o.slots
    return (
        'time=2026-01-01T00:00:00.000Z level=INFO source=routes.go:1 msg="server config" '
        f'env="map[OLLAMA_CONTEXT_LENGTH:{each} OLLAMA_KV_CACHE_TYPE:{o.key_type} OLLAMA_NUM_PARALLEL:{o.slots}]"'
    )
