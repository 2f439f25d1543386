"""What a person asks a plan for, before any name in it is looked up."""

from __future__ import annotations

import msgspec


class PlanRefused(Exception):
    """The request cannot be planned: the message says what is missing or unknown, and what would do."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """`gpus`: names as typed, one for all cards or one a card; `count`: how many cards, None: as the settings need.

    `settings`: the engine's long flags without dashes. `version`: "" takes the newest that is known.
    """

    model: str
    gpus: tuple[str, ...] = ()
    count: int | None = None
    engine: str = "vllm"
    version: str = ""
    settings: dict[str, str] = {}
    available_kv_bytes: int | None = None
    adapters: tuple[str, ...] = ()
    """Folders of LoRA adapters that are served beside the model."""
    drafter: str = ""
    """The model that drafts, where the settings do not name it."""
