"""A benchmark's result: requests sent to a server, what came back and when. JSON schema `loadpath.bench/1`, additive.

Times are seconds from the run's start on the client's monotonic clock, unless a name says otherwise. Prompts and answers
are not kept, only their sizes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

BENCH_SCHEMA = "loadpath.bench/1"

Api = Literal["chat", "completions", "embeddings"]
CountBasis = Literal["usage", "tokenizer", "chunks", "asked", "none"]
"""Who counted the tokens: the server's `usage`; a local tokenizer; one a chunk; what was asked for; nobody."""
ErrorKind = Literal[
    "",
    "connect",
    "http",
    "error-chunk",
    "cut",
    "timeout",
    "bad-answer",
    "empty",
    "cancelled",
]
"""`connect`: no connection; `http`: a status other than 200; `error-chunk`: the stream carried an error, whatever followed;
`cut`: the connection ended before the answer did; `timeout`: the request's own limit; `bad-answer`: no HTTP or no JSON;
`empty`: an answer without one token; `cancelled`: ended by us (interrupted, or the load was over)."""
Phase = Literal["cold", "warm-up", "measured"]
"""`cold`: the first request of its shape; `warm-up`: excluded, the server was not steady yet; `measured`: counted."""
Loop = Literal["closed", "open"]
Arrivals = Literal["constant", "poisson", "gamma", "trace"]


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request and its answer. None: that point was not reached."""

    intended: float
    """When the load's plan wanted it sent; latencies count from here, so that a stalled server cannot hide its queue."""
    sent: float | None = None
    """When its bytes were handed to the connection."""
    headers: float | None = None
    """When the status line of the answer was here."""
    first: float | None = None
    """When the first chunk with text (or a reasoning or tool token) was here."""
    last: float | None = None
    """When the last chunk with text was here."""
    end: float | None = None
    """When the answer was complete, or the error was known."""
    chunk_times: tuple[float, ...] = ()
    """Of each chunk with text. Chunks that came in one read have one time."""
    chunk_tokens: tuple[int, ...] = ()
    """Tokens of each chunk where they were more than chunks: the counted total, shared out by characters; else empty."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt, from the server's prefix cache, where `usage` says it."""
    prompt_basis: CountBasis = "none"
    output_basis: CountBasis = "none"
    asked_output: int | None = None
    """The limit of output tokens that the request set."""
    status: int | None = None
    error: ErrorKind = ""
    message: str = ""
    """The error's own words, masked and cut to 300 characters."""
    finish: str = ""
    """`finish_reason`: `stop`, `length`, …"""
    bucket: str = ""
    """Shape: powers of two that hold prompt and output, `"2048x512"`."""
    phase: Phase = "measured"
    level: int = 0
    repeat: int = 0
    reused: bool = False
    """Whether it went over a connection that had carried another request."""


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """A distribution by exact quantiles (nearest order statistics, linear between them), in seconds unless said."""

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    minimum: float
    maximum: float
    deviation: float = 0.0


class ServerIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What answers, as far as it says: "" or None where it does not."""

    engine: str = ""
    """`vllm`, `sglang`, `llama.cpp`, `ollama`, `tgi`, `tensorrt-llm`, …"""
    version: str = ""
    model: str = ""
    """The name that requests use."""
    model_root: str = ""
    """The checkpoint behind the name, where the server tells it."""
    max_model_len: int | None = None
    dtype: str = ""
    quantisation: str = ""
    gpu: str = ""
    settings: dict[str, str] = {}
    """Further settings that the server's own pages tell, in the engine's spelling."""
    told_by: dict[str, str] = {}
    """Which page said which field: {"engine": "/version"}."""
    metrics: str = ""
    """The path of its Prometheus page; "": none found."""


class BenchSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked of the run."""

    api: Api = "chat"
    stream: bool = True
    requests: int | None = None
    seconds: float | None = None
    loop: Loop = "closed"
    concurrency: tuple[int, ...] = ()
    """Levels of a closed loop, in order."""
    rates: tuple[float, ...] = ()
    """Levels of an open loop, requests/s, in order."""
    arrivals: Arrivals = "constant"
    burstiness: float = 1.0
    """Shape of gamma arrivals: 1 is Poisson, below 1 burstier."""
    max_in_flight: int | None = None
    dataset: str = "random"
    input_tokens: str = ""
    """As asked: `1024`, `128:2048`, `normal:1024:200`, `lognormal:512:0.6`."""
    output_tokens: str = ""
    prefix_tokens: int = 0
    turns: int = 1
    same_prompts: bool = False
    """Prompts repeat on purpose, so that the prefix cache is what is measured."""
    ignore_eos: bool = True
    seed: int = 0
    warmup: int | None = None
    """None: by evidence."""
    repeat: int = 1
    request_timeout: float = 600.0
    slo: dict[str, float] = {}
    """Limits in seconds by figure: {"ttft": 0.5, "itl": 0.05}."""
    slo_share: float = 0.99
    """The share of requests that has to meet the SLO for a rate to count as met."""
    search: bool = False
    gpu: str = ""
    """The card, as the user named it (for physics)."""
    gpus: int = 1
    checkpoint: str = ""
    """The model's checkpoint, as the user named it (for physics), where the served name does not tell."""
    extra: dict[str, str] = {}
    """Further fields of the request body, as given."""


class WarmUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a shape came to be steady. `requests`: before the first steady one, in their order of arrival."""

    bucket: str
    seen: int
    """Requests of the shape that completed."""
    requests: int
    steady: bool
    """False: no steady stretch was found before the end."""
    cold_ttft: float | None = None
    cold_e2e: float | None = None
    steady_ttft: float | None = None
    """Median TTFT once steady."""
    steady_itl: float | None = None
    why: str = ""
    given: bool = False
    """`--warmup N` said so; nothing was judged."""


class Interval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a level's timeline, seconds from the run's start."""

    begin: float
    end: float
    level: int = 0
    repeat: int = 0
    sent: int = 0
    first_tokens: int = 0
    completed: int = 0
    errors: int = 0
    in_flight: float = 0.0
    """Mean number of requests under way."""
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0
    """Of the requests whose first token came in it."""
    ttft_p50: float | None = None
    itl_p50: float | None = None
    itl_p99: float | None = None
    itl_max: float | None = None
    lag_max: float | None = None
    """The longest that the client's own event loop was late in it."""


class ClientLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """How busy the measuring process was. A client near one core measures itself."""

    cpu_share: float
    """CPU seconds a second of the process, 1 is a whole core."""
    lag: Spread
    """How late the event loop woke, of probes every `probe_seconds`."""
    probe_seconds: float = 0.01
    late_share: float = 0.0
    """Share of the time that the loop was late by more than a millisecond."""
    loop: str = "asyncio"
    cores: int | None = None
    opened: int = 0
    """Connections opened."""
    reused: int = 0
    """Requests sent over one that was open."""


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one level: of one repeat, or of all repeats together (then `ci` has half-widths of 95 % by name)."""

    seconds: float
    """From the first measured request's intended time to the last one's end."""
    requests: int
    """Measured: sent, whatever came of it."""
    completed: int
    errors: dict[str, int] = {}
    """By kind, with the status where there is one: {"http 400": 3, "timeout": 1}."""
    request_rate: float = 0.0
    """Completed requests a second."""
    input_rate: float | None = None
    """Prompt tokens a second, of completed requests."""
    output_rate: float | None = None
    """Output tokens a second."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_basis: CountBasis = "none"
    output_basis: CountBasis = "none"
    tokens_per_chunk: float | None = None
    """Above 1.02: chunks carried several tokens; ITL spreads each gap over the tokens that came with it."""
    ttft: Spread | None = None
    itl: Spread | None = None
    """Per output token after the first."""
    gap: Spread | None = None
    """Between arrivals of text, whatever they carried: what a reader sees as a stutter."""
    tpot: Spread | None = None
    """Per request: (last - first) / (tokens - 1)."""
    e2e: Spread | None = None
    delay: Spread | None = None
    """From the intended to the real sending: the client's own queue."""
    mean_in_flight: float = 0.0
    most_in_flight: int = 0
    goodput_rate: float | None = None
    """Requests a second that met every limit of the SLO."""
    good_share: float | None = None
    ci: dict[str, float] = {}
    """Half-widths of 95 % confidence across repeats (Student's t): {"output_rate": 12.3, "ttft.p50": 0.004}."""


class Level(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the load, with each of its repeats."""

    number: int
    concurrency: int | None = None
    rate: float | None = None
    figures: Figures | None = None
    """Of all repeats together; None where nothing was measured."""
    repeats: tuple[Figures, ...] = ()
    meets_slo: bool | None = None
    note: str = ""


class MetricSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server's own metrics page at one time. Counters are as printed, since the server's start."""

    time: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Share, 0 to 1."""
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    drafts: float | None = None
    """Draft tokens proposed and accepted (speculative decoding)."""
    accepted: float | None = None
    values: dict[str, float] = {}
    """Sums and counts of the server's histograms of time, by metric name: queue, prefill, decode, …"""


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One local card at one time, by NVML."""

    time: float
    gpu: int
    name: str = ""
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    limit_watts: float | None = None
    busy: float | None = None
    """NVML's utilisation: share of time with any kernel, not of the card's use."""
    memory_busy: float | None = None
    used_bytes: int | None = None
    celsius: float | None = None
    throttle: int | None = None
    """Bit mask of clock event reasons."""


class BenchResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of a run. `exchanges` comes last: the largest part, in the order of the intended times."""

    schema: str
    """`loadpath.bench/1`."""
    target: str
    """URL without credentials."""
    started: str
    """ISO 8601, UTC."""
    seconds: float
    loadpath: str
    settings: BenchSettings
    server: ServerIdentity
    client: ClientLoad
    levels: tuple[Level, ...] = ()
    warm_up: tuple[WarmUp, ...] = ()
    intervals: tuple[Interval, ...] = ()
    metrics: tuple[MetricSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    interrupted: str = ""
    """Why the run ended before its plan: `^C`, `server gone`; "": it did not."""
    best_rate: float | None = None
    """Of a search: the highest rate that met the SLO."""
    notes: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
