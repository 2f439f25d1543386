"""Facts about one engine's start and life, the same for every engine. Sizes in bytes, per GPU unless said."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact
from loadpath.core.vocabulary import Step

Source = Literal["read", "computed", "assumed"]


class EngineStarted(Fact, frozen=True, kw_only=True):
    """A start of an engine: opens a run. `engine` is `vllm`, `sglang`, `llama.cpp`, `ollama`, `tensorrt-llm`, …"""

    engine: str
    version: str | None = None
    generation: str | None = None
    """`V0` or `V1` for vLLM; the era of others where it changes formulas."""


class Setting(Fact, frozen=True, kw_only=True):
    """One setting, in the engine's own long-flag spelling without dashes (`max-model-len`), value as printed.

    `basis`: `command` (a command line), `dump` (the engine printed its configuration or the user's arguments),
    `derived` (the engine said that it chose it), `environment` (an environment variable; name in capitals).
    """

    name: str
    value: str
    basis: Literal["command", "dump", "derived", "environment"] = "dump"
    engine: str | None = None


class StepMark(Fact, frozen=True, kw_only=True):
    """A step of the ladder began, moved on, ended, failed or was skipped. `seconds`: the printed duration."""

    step: Step
    event: Literal["began", "progress", "ended", "failed", "skipped"]
    seconds: float | None = None
    what: str = ""


class Progress(Fact, frozen=True, kw_only=True):
    """A progress bar or counter inside a step: `done` of `total` items. Seconds as the bar prints them."""

    step: Step
    what: str
    done: int
    total: int
    elapsed_seconds: float | None = None
    left_seconds: float | None = None


class ModelNamed(Fact, frozen=True, kw_only=True):
    """The model that is served (path or hub name), and its architecture class where printed."""

    name: str | None = None
    architecture: str | None = None


class WeightsLoaded(Fact, frozen=True, kw_only=True):
    """Weights in GPU memory of one rank. `read_seconds`: reading alone; `seconds`: the whole step."""

    bytes: int | None = None
    seconds: float | None = None
    read_seconds: float | None = None
    rank: int | None = None
    device: str | None = None
    what: str = ""
    """`draft` for a drafter's weights, "" for the model's own."""


class MemoryBreakdown(Fact, frozen=True, kw_only=True):
    """What the profiling pass found, as far as the engine prints it (one rank). None: not printed.

    `kv_bytes` is what the engine says is left for the KV pool (may be negative); `consumed_bytes` weights and
    non-torch together where only their sum is printed; `free_bytes` free on the device at the start.
    """

    total_bytes: int | None = None
    utilisation: float | None = None
    budget_bytes: int | None = None
    free_bytes: int | None = None
    weights_bytes: int | None = None
    non_torch_bytes: int | None = None
    activation_bytes: int | None = None
    graph_bytes: int | None = None
    consumed_bytes: int | None = None
    kv_bytes: int | None = None
    seconds: float | None = None
    rank: int | None = None


class KvPool(Fact, frozen=True, kw_only=True):
    """The KV cache as the engine made or sized it. `tokens` is the printed capacity; `derived` marks a token figure
    that is concurrency × context (vLLM ≥ 0.20.1, hybrids) and says nothing of bytes per token."""

    tokens: int | None = None
    blocks: int | None = None
    block_tokens: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    device: str = "GPU"
    derived: bool = False
    rank: int | None = None


class Concurrency(Fact, frozen=True, kw_only=True):
    """How many requests of full length (`context_tokens`) the KV pool holds at once."""

    context_tokens: int
    ratio: float


class KvShortfall(Fact, frozen=True, kw_only=True):
    """The engine refused to start: its KV cache is smaller than one request of full length (or than nothing).

    Token figures and byte figures: whichever the message prints. `estimated_tokens`: the length that the engine says fits.
    """

    asked_tokens: int | None = None
    held_tokens: int | None = None
    needed_bytes: int | None = None
    available_bytes: int | None = None
    estimated_tokens: int | None = None


class GraphsCaptured(Fact, frozen=True, kw_only=True):
    """CUDA graph capture: number of graphs, seconds, bytes (may be negative where the engine prints so)."""

    count: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    mode: str | None = None
    skipped: bool = False


class CompileTook(Fact, frozen=True, kw_only=True):
    """torch.compile and its relatives: seconds, and whether a cache was used."""

    seconds: float
    what: str = "torch.compile"
    cached: bool | None = None


class InitTook(Fact, frozen=True, kw_only=True):
    """Profiling + KV pool + warm-up together, as the engine prints it (not the weight load)."""

    seconds: float
    compile_seconds: float | None = None


class KernelChoice(Fact, frozen=True, kw_only=True):
    """Which kernel the engine chose. `area`: `attention`, `linear`, `moe`, `all-reduce`, `sampler`; `method` the
    quantisation scheme it serves; `fallback` where the line itself says that it is one."""

    area: str
    kernel: str
    method: str | None = None
    fallback: bool = False
    hardware: str | None = None


class RankAssigned(Fact, frozen=True, kw_only=True):
    """One rank of a parallel group; sizes where printed."""

    rank: int
    world_size: int
    tp_rank: int | None = None
    pp_rank: int | None = None
    dp_rank: int | None = None
    ep_rank: int | None = None


class ServerListening(Fact, frozen=True, kw_only=True):
    address: str


class ServerReady(Fact, frozen=True, kw_only=True):
    """The engine said that it serves: the start is over."""


class ServingStats(Fact, frozen=True, kw_only=True):
    """A periodic line while serving. Rates in tokens/s, `kv_usage` 0..1."""

    running: int | None = None
    waiting: int | None = None
    prompt_tps: float | None = None
    generation_tps: float | None = None
    kv_usage: float | None = None
    prefix_hit_rate: float | None = None
    preemptions: int | None = None


class RequestServed(Fact, frozen=True, kw_only=True):
    """An access line. Readers keep the first, the last, and each of status >= 400."""

    method: str
    path: str
    status: int


class Stopped(Fact, frozen=True, kw_only=True):
    """The process was stopped or ended: `how` is `signal`, `orderly`, `interrupt`, `time-limit`, `exit`, `killed`."""

    how: Literal["signal", "orderly", "interrupt", "time-limit", "exit", "killed"]
    signal: str | None = None
    exit_code: int | None = None
    who: str | None = None


class Waiting(Fact, frozen=True, kw_only=True):
    """The engine says that it waits for something (placement group, ranks, broadcast block): no fault by itself."""

    what: str
    seconds: float | None = None


class Advice(Fact, frozen=True, kw_only=True):
    """A remedy that the engine itself printed, to be checked against the arithmetic before it is repeated."""

    setting: str
    direction: Literal["raise", "lower", "set"]
    value: str | None = None


class Silence(Fact, frozen=True, kw_only=True):
    """Nothing was printed for so long, up to now: only known of a log that is followed while it grows."""

    seconds: float
