"""What a benchmark is asked to do, complete: settings, where to, with which prompts and which secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from loadpath.core.traffic import Api, BenchSettings
from loadpath.traffic.prompts import Dataset
from loadpath.traffic.sender import Key
from loadpath.traffic.wire import Target


class BenchRefused(Exception):
    """The benchmark cannot be run; the message says why, and what to give."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`apis`: to be tried in this order. `key`, `headers`: never stored or printed. `salt`: seed of the prompts' texts."""

    target: Target
    settings: BenchSettings
    dataset: Dataset
    apis: tuple[Api, ...] = ("chat", "completions", "embeddings")
    model: str | None = None
    key: str = Key("")
    headers: dict[str, str] = {}
    fields: dict[str, Any] = {}
    tokenizer: str | None = None
    insecure: bool = False
    salt: int = 0
    calibrate: bool = True
    watch_metrics: bool = True
    watch_gpus: bool = True


class Progress(msgspec.Struct, frozen=True):
    """Where a run stands. `what`: the level (`concurrency 24`) or the step (`asking the server`)."""

    what: str
    sent: int = 0
    done: int = 0
    wanted: int | None = None
    errors: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    output_tokens: int = 0
    warm_after: int = 0
