"""What is planned: a model, the cards it runs on, an engine of some version and its settings."""

from __future__ import annotations

import msgspec

from loadpath.core.checkpoint import Checkpoint
from loadpath.core.shape import ModelShape

Version = tuple[int, ...]


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU (or MIG slice, or plain amount of memory) as a process sees it.

    `total_bytes`: what cudaMemGetInfo reports as total, which is less than the printed size of the board;
    `free_bytes`: free before the engine starts, None: all but what a context takes. Rates in bytes/s;
    `link_bytes_per_s`: to its peers, both directions together (NVLink, else PCIe). `assumed`: the total is a rule of thumb.
    """

    name: str
    total_bytes: int
    id: str = ""
    """Its row in the GPU table; "": not in it."""
    capability: tuple[int, int] | None = None
    free_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    unified_memory: bool = False
    assumed: bool = False


class Deployment(msgspec.Struct, frozen=True):
    """`settings`: the engine's own long flags without dashes, `{"max-model-len": "8192", "enforce-eager": "true"}`.

    `version`: None takes the newest that is known. `available_kv_bytes`: a KV share read elsewhere, in place of the
    computed one (to judge tokens apart from memory).
    """

    shape: ModelShape
    cards: tuple[Card, ...]
    engine: str = "vllm"
    version: Version | None = None
    settings: dict[str, str] = {}
    checkpoint: Checkpoint | None = None
    drafter: ModelShape | None = None
    available_kv_bytes: int | None = None
