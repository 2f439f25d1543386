"""Facts of benchmarks: what a tool measured, how its client and the server were meanwhile, what a step costs at least.

Times in seconds, rates per second, sizes in bytes, shares 0 to 1. None: not printed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadpath.core.facts.base import Fact

Tool = Literal[
    "loadpath", "vllm", "sglang", "guidellm", "aiperf", "genai-perf", "inference-perf", "llama-bench", "pasted"
]


class Latency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A distribution as far as the tool printed it."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @property
    def typical(self) -> float | None:
        """The median, else the mean."""
        return self.p50 if self.p50 is not None else self.mean

    @property
    def average(self) -> float | None:
        """The mean, else the median."""
        return self.mean if self.mean is not None else self.p50


class Benchmark(Fact, frozen=True, kw_only=True):
    """One level of load of one benchmark. `seconds`: how long it lasted; counts of tokens are sums, `*_mean` per request.

    `concurrency`, `rate`: as asked (None: not limited, or not printed); `in_flight`: as measured, on average.
    `itl`: between two pieces of text as the tool defines it (vLLM, SGLang: between chunks); `tpot`: per token of a request.
    """

    tool: Tool
    label: str = ""
    level: int = 0
    engine: str = ""
    version: str = ""
    model: str = ""
    dtype: str = ""
    gpu: str = ""
    gpus: int | None = None
    seconds: float | None = None
    requests: int | None = None
    completed: int | None = None
    failed: int | None = None
    errors: dict[str, int] = {}
    concurrency: int | None = None
    rate: float | None = None
    unlimited_rate: bool = False
    """All requests were sent as fast as the concurrency let them (rate `inf`)."""
    in_flight: float | None = None
    most_in_flight: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_mean: float | None = None
    output_mean: float | None = None
    cached_tokens: int | None = None
    request_rate: float | None = None
    input_rate: float | None = None
    output_rate: float | None = None
    total_rate: float | None = None
    peak_output_rate: float | None = None
    goodput_rate: float | None = None
    good_share: float | None = None
    ttft: Latency | None = None
    itl: Latency | None = None
    tpot: Latency | None = None
    e2e: Latency | None = None
    delay: Latency | None = None
    """From when a request was due to when it was sent."""
    tokens_per_chunk: float | None = None
    acceptance_length: float | None = None
    """Tokens a step with speculative decoding, 1.0 without an accepted draft."""
    output_basis: str = ""
    weights_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    same_prompts: bool = False
    """Prompts share text on purpose."""
    settings: dict[str, str] = {}
    """What else has to be alike in two results that are compared."""
    ci: dict[str, float] = {}
    repeats: int = 1
    interrupted: str = ""


class LlamaBenchTest(Fact, frozen=True, kw_only=True):
    """One row of llama-bench: `prompt` tokens read or `generated` tokens made, after `depth` cached ones, at `rate`/s."""

    model: str = ""
    size_bytes: int | None = None
    parameters: float | None = None
    backend: str = ""
    gpu: str = ""
    gpu_layers: int | None = None
    prompt: int = 0
    generated: int = 0
    depth: int = 0
    batch: int = 1
    """Sequences at once (llama-batched-bench)."""
    rate: float
    deviation: float | None = None
    build: str = ""


class BenchClient(Fact, frozen=True, kw_only=True):
    """How busy the measuring process was: CPU seconds a second, and how late its event loop woke."""

    cpu_share: float
    lag_p99: float
    lag_max: float
    late_share: float = 0.0
    loop: str = ""


class BenchWarmUp(Fact, frozen=True, kw_only=True):
    """How a shape of request came to be steady: after `requests` of `seen`."""

    bucket: str
    seen: int
    requests: int
    steady: bool
    cold_ttft: float | None = None
    steady_ttft: float | None = None
    why: str = ""
    given: bool = False


class Stretch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a benchmark's timeline with the server's figures of the same time. Rates a second, counters as growth."""

    begin: float
    end: float
    level: int = 0
    repeat: int = 0
    sent: int = 0
    first_tokens: int = 0
    completed: int = 0
    errors: int = 0
    in_flight: float = 0.0
    output_rate: float = 0.0
    prompt_rate: float = 0.0
    ttft: float | None = None
    itl: float | None = None
    itl_p99: float | None = None
    itl_max: float | None = None
    lag_max: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    queue_seconds: float | None = None
    """Mean per request that the server accounted for in it; the same for the next two."""
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    server_ttft: float | None = None
    watts: float | None = None
    watts_limit: float | None = None
    sm_mhz: float | None = None
    gpu_busy: float | None = None
    throttle: int | None = None


class BenchTimeline(Fact, frozen=True, kw_only=True):
    """The run in stretches, in order. `metrics`, `gpus`: whether the server's page and a local card were sampled."""

    stretches: tuple[Stretch, ...]
    metrics: bool = False
    gpus: bool = False
    prefix_hits: float | None = None
    prefix_queries: float | None = None
    drafts: float | None = None
    accepted: float | None = None


class CacheCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """`planning.speed.Cache`, in plain figures."""

    bytes_per_token: float
    flops_per_pair: float = 0.0
    prefill_flops_per_pair: float = 0.0
    window: int = 0


class StepWork(Fact, frozen=True, kw_only=True):
    """What a step of a model costs at least, and the cards it runs on: for the bounds of speed.

    `weight_bytes`: read in every step; `expert_bytes`: routed experts of all layers. Rates are of one card.
    """

    model: str
    gpu: str
    gpus: int = 1
    weight_bytes: float
    expert_bytes: float = 0.0
    experts: int = 0
    experts_active: int = 0
    flops_per_token: float = 0.0
    head_flops: float = 0.0
    caches: tuple[CacheCost, ...] = ()
    state_bytes: float = 0.0
    bandwidth_bytes_per_s: float
    flops_per_s: float = 0.0
    cache_ways: int = 0
    """Cards over which the cache is divided; 0: all."""
    dtype: str = ""
    memory_bytes: int | None = None
    stored_bytes: float | None = None
    """All weights, read in a step or not."""
    named: bool = True
    """The user named the checkpoint; False: it was taken from the served name, which may stand for other weights."""
