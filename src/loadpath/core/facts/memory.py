"""Facts about memory that did not suffice, beside the general ones of `engine` and `errors`.

The word `phase` says what a process was doing when its traceback broke off, as its frames tell:
`weights` (layers created, weights loaded), `conversion` (weights repacked or quantised after loading), `profiling`,
`kv-pool`, `graph-capture`, `sampler-warm-up`, `serving`, `wake-up` (from sleep mode), `compute-buffer`, `context`,
`image-generation` (diffusers, ComfyUI and their kin),
`training-setup`, `training-forward`, `training-backward`, `optimizer-step`; "" where nothing tells.
"""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact


class NoRoomForKv(Fact, frozen=True, kw_only=True):
    """An engine refused to start: after the weights (and its other needs) nothing, or too little, is left for its pool.

    `pool`: what there is no room for. `fraction`: the memory share that the message prints, `least_fraction` the
    smallest that would do by its own account. `available_bytes` (may be negative) where printed.
    `one_sequence`: the message says that the pool must hold one full sequence.
    """

    engine: str | None = None
    pool: Literal["kv", "state", "prefill", "unknown"] = "kv"
    fraction: float | None = None
    least_fraction: float | None = None
    available_bytes: int | None = None
    one_sequence: bool = False
    tokens: int | None = None
    """Prefill tokens that the warm-up tried (TGI); tokens of the full sequence (TensorRT-LLM)."""
    component: str = ""
    """What could not be created, where the message names it (TensorRT-LLM)."""
    total_bytes: int | None = None
    model_bytes: int | None = None
    """What the model took, by the free memory before and after it (TensorRT-LLM's list of components)."""
    prefill_tokens: int | None = None
    """Tokens of the pass that was run beside a pool for `tokens` (TGI 0.9)."""


class WarmUpShortage(Fact, frozen=True, kw_only=True):
    """Out of memory while the engine warmed up its sampler (or pooler) with so many dummy requests, after the KV pool."""

    requests: int | None = None
    what: str = "sampler"


class ProfiledItems(Fact, frozen=True, kw_only=True):
    """Multimodal items that the profiling pass holds at once: encoder tokens, in all and by modality."""

    tokens: int | None = None
    items: tuple[tuple[str, int], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    """Number of items of each modality, where that is what is printed."""
    context_tokens: int | None = None
    """The context that the engine found too short for them, where it warns of that."""


class BrokenOff(Fact, frozen=True, kw_only=True):
    """A traceback that was pasted without its exception: where it was going (`phase`) and the innermost frame shown."""

    phase: str = ""
    function: str = ""
    allocating: bool = False
    """The innermost line shown asks for memory (`torch.empty(…)`, `.to(device)`)."""


class SleepReport(Fact, frozen=True, kw_only=True):
    """Sleep mode gave memory back; `still_bytes` counts the whole card, so it shows what others hold as well."""

    freed_bytes: int
    still_bytes: int | None = None


class MemoryUnbalanced(Fact, frozen=True, kw_only=True):
    """SGLang saw much less memory free on one GPU of its group (`least_bytes`) than on this rank's (`local_bytes`)."""

    least_bytes: int | None = None
    local_bytes: int | None = None
