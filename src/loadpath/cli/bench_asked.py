"""What `bench` was asked for, as typed."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """The options of the verb, as typed."""

    url: str | None
    requests: int | None
    duration: str | None
    concurrency: str | None
    rate: str | None
    arrivals: str | None
    burstiness: float
    max_in_flight: int | None
    search: bool
    slo: str | None
    slo_share: float
    input_tokens: str
    output_tokens: str
    prefix_tokens: int
    turns: int
    same_prompt: bool
    prompts: str | None
    trace: str | None
    trace_speed: float
    api: str
    model: str | None
    api_key: str | None
    headers: tuple[str, ...]
    extra: tuple[str, ...]
    stream: bool
    ignore_eos: bool
    warmup: int | None
    repeat: int
    request_timeout: str
    seed: int | None
    tokenizer: str | None
    insecure: bool
    metrics: bool
    gpu: str
    gpus: int
    checkpoint: str
