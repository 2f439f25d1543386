"""What a plan says: the memory of one GPU part by part, the lines that the engine will print, and how sure each is.

Field names are part of the JSON contract (`plan` in `loadpath.report/1`, additive). Sizes in bytes, per GPU: where
GPUs differ (pipeline stages, mixed cards) the figures are those of the one with the least room.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Basis = Literal["exact", "modelled", "assumed", "given"]
"""`exact`: the engine's own arithmetic on known figures; `modelled`: fitted to real starts, with an error; `assumed`:
a rule of thumb; `given`: the user's figure."""


class PlanPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a GPU's memory. `error`: mean error of a modelled part on real starts, as a share of the part."""

    name: str
    bytes: int
    basis: Basis
    error: float | None = None
    note: str = ""


class GpuPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU (or pipeline stage) of the plan. `budget_bytes`: what the engine allows itself on it."""

    gpu: int
    name: str
    total_bytes: int
    budget_bytes: int
    parts: tuple[PlanPart, ...]


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numerical identity of a deployment: two that both say "4-bit" may differ in any of these."""

    weights: str
    """Stored format, with group and scale metadata: `int4, groups of 128, zero points`."""
    activations: str
    kv_cache: str
    multiply: str
    accumulate: str
    kernel: str = ""
    """The kernel that this engine's version picks on this card; "": not known."""
    fallback: str = ""
    """Why the card's native path is not used (dequantise, Marlin); "": it is."""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deployment, planned. `fits`: at least one request of `max_model_len` tokens is served."""

    model: str
    engine: str
    engine_version: str
    gpu: str
    gpus: int
    fits: bool
    weights_bytes: int
    activation_peak_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_bytes: int
    kv_tokens: int
    max_concurrency: float
    max_model_len: int
    total_bytes: int
    budget_bytes: int
    utilisation: float | None = None
    kv_bytes_per_token: float | None = None
    """None where layers keep their cache in different ways, so that no one price of a token exists."""
    kv_blocks: int | None = None
    kv_block_tokens: int | None = None
    request_bytes: int | None = None
    """KV bytes of one request of `max_model_len` tokens."""
    longest_context: int | None = None
    """The greatest length of which one request fits."""
    gpus_planned: tuple[GpuPlan, ...] = ()
    host_bytes: int = 0
    identity: Identity | None = None
    lines: tuple[str, ...] = ()
    """The lines with these figures that the engine will print, in its own format."""
    notes: tuple[str, ...] = ()
    """What was assumed, and what the plan leaves out."""
    settings: dict[str, str] = {}
    """The settings that the figures rest on, in the engine's own spelling, defaults included."""
    speed: dict[str, Any] = {}
    """Bounds of speed (ceilings, not predictions); empty where the card's rates are not known."""
