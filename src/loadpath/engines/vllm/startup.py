"""From the first line to the weights: version, ranks, model, shards, compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from loadpath.core.case import version_numbers
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    CompileTook,
    EngineStarted,
    InitTook,
    ModelNamed,
    Progress,
    RankAssigned,
    Waiting,
    WeightsLoaded,
)
from loadpath.core.vocabulary import STEPS, Step
from loadpath.engines.vllm.pattern import Pattern, Seen
from loadpath.engines.vllm.settings import settings
from loadpath.readers.load_bars import SHARDS, clock

# The first line of a start: the server's version line (to 0.14), the banner's version line (from 0.16).
VERSION = r"vLLM API server version v?(\S+)"
BANNER = r"(?:^|[█▀▄])[^A-Za-z]*version v?(\d+\.\d+\S*)\s*$"
RANK_PARTS = {"DP": "dp_rank", "PP": "pp_rank", "TP": "tp_rank", "EP": "ep_rank"}


def _version(seen: Seen) -> Iterator[Fact]:
    yield from _started(seen, seen.match[1], None)
    yield seen.mark("process-start", "began")


def _started(seen: Seen, version: str | None, generation: str | None) -> Iterator[Fact]:
    if version:
        seen.run.version = version_numbers(version)
    if seen.run.once("started", version, generation):
        yield EngineStarted(**seen.common, engine="vllm", version=version, generation=generation)


def _banner_model(seen: Seen) -> Iterator[Fact]:
    yield ModelNamed(**seen.common, name=seen.match[1])


def _initializing(seen: Seen) -> Iterator[Fact]:
    yield from _started(seen, seen.match[2], seen.match[1])
    yield seen.mark("process-start", "ended")
    yield seen.mark("device-enumeration", "began")
    yield from settings(seen, re.split(r"compilation_config=", seen.match[3])[0])


def _world(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("device-enumeration", "progress", what="joining the process group")
    yield RankAssigned(**seen.common, rank=seen.count(2) or 0, world_size=seen.count(1) or 1)


def _assigned(seen: Seen) -> Iterator[Fact]:
    parts: dict[str, Any] = {
        field: int(match[1])
        for name, field in RANK_PARTS.items()
        if (match := re.search(rf"\b{name} rank (\d{{1,6}})\b", seen.match[0]))
    }
    yield RankAssigned(**seen.common, rank=seen.count(1) or 0, world_size=seen.count(2) or 1, **parts)
    yield seen.mark("device-enumeration", "ended")
    yield seen.mark("context-creation", "began")


def _weights_begin(seen: Seen) -> Iterator[Fact]:
    name = seen.match.groupdict().get("name")
    if name and seen.run.once("model", name):
        yield ModelNamed(**seen.common, name=name)
    # Neither step prints its end: a model can only be built on a rank that has joined and has a context.
    yield seen.mark("device-enumeration", "ended")
    yield seen.mark("context-creation", "ended")
    yield seen.mark("weight-load", "began")


def _shards(seen: Seen) -> Iterator[Fact]:
    done, total = seen.count(3) or 0, seen.count(4) or 0
    yield seen.mark("weight-load", "progress", what=seen.match[1])
    yield Progress(
        **seen.common, step="weight-load", what=seen.match[1], done=done, total=total,
        elapsed_seconds=clock(seen.group(5)), left_seconds=clock(seen.group(6)),
    )  # fmt: skip


def _download(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("weight-load", "progress", seen.number(1), "download")


def _weights_read(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("weight-load", "progress", what="read")
    yield WeightsLoaded(**seen.common, read_seconds=seen.number(1), rank=seen.rank)


def _weights(seen: Seen) -> Iterator[Fact]:
    # Printed as "GB" before 0.8.4, divided by 2^30 all the same.
    yield WeightsLoaded(**seen.common, bytes=seen.size(1), seconds=seen.number(2), rank=seen.rank)
    yield seen.mark("weight-load", "ended", seen.number(2))


def _v0_weights(seen: Seen) -> Iterator[Fact]:
    yield WeightsLoaded(**seen.common, bytes=seen.size(1), rank=seen.rank)
    yield seen.mark("weight-load", "ended")


def _profiling_begins(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("memory-profiling", "began")


def _compile(what: str, cached: bool | None = None) -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        yield CompileTook(**seen.common, seconds=seen.number(1) or 0.0, what=what, cached=cached)
        if STEPS.index(seen.run.step) <= STEPS.index("memory-profiling"):
            yield seen.mark("memory-profiling", "progress", what=what)

    return make


def _init(seen: Seen) -> Iterator[Fact]:
    seconds, compile_seconds = seen.number(1), seen.number(2)
    yield InitTook(**seen.common, seconds=seconds or 0.0, compile_seconds=compile_seconds)
    steps: tuple[Step, ...] = ("memory-profiling", "kv-pool")
    for step in steps:
        if seen.run.once("ended", step):
            yield seen.mark(step, "ended")
    captured = any(key[0] == "captured" for key in seen.run.seen) or bool(seen.run.graphs)
    yield seen.mark("graph-capture", "ended" if captured or not seen.run.eager else "skipped")


def _waits(what: str) -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        seconds = seen.number(1) if seen.match.re.groups else None
        yield Waiting(**seen.common, what=what, seconds=seconds)

    return make


PATTERNS = (
    Pattern("vLLM API server version", VERSION, _version),
    Pattern("version ", BANNER, _version),
    Pattern("model ", r"[█▀▄][^A-Za-z]*model\s+(\S+)\s*$", _banner_model),
    Pattern(
        "LLM engine (",
        r"Initializing an? (?:(V[01]) )?LLM engine (?:\(v?([^)\s]+)\) )?with config: (.*)",
        _initializing,
    ),
    Pattern("distributed_init_method=", r"world_size=(\d+) rank=(\d+) local_rank=\d+ distributed_init_method=", _world),
    Pattern("is assigned as", r"rank (\d+) in world size (\d+) is assigned as .*", _assigned),
    Pattern("Starting to load model", r"Starting to load model (?P<name>\S+?)(?:\.\.\.|\s|$)", _weights_begin),
    Pattern("Loading model from scratch", r"Loading model from scratch", _weights_begin),
    Pattern("shards", SHARDS, _shards),
    Pattern("Prefetching checkpoint files", SHARDS, _shards),
    Pattern("Time spent downloading weights", r"downloading weights for .+: ([\d.]+) seconds", _download),
    Pattern("Loading weights took", r"Loading weights took ([\d.]+) seconds", _weights_read),
    Pattern("odel weights took", r"oading model weights took ([\d.]+) Gi?B", _v0_weights),
    Pattern("Model loading took", r"Model loading took ([\d.]+) Gi?B(?: memory)? and ([\d.]+|…) s", _weights),
    Pattern("Encoder cache will be initialized", r"Encoder cache will be initialized", _profiling_begins),
    Pattern("Warming up model for the compilation", r"Warming up model for the compilation", _profiling_begins),
    Pattern("for vLLM's torch.compile", r"Using cache directory", _profiling_begins),
    Pattern("bytecode transform", r"bytecode transform time: ([\d.]+) s", _compile("Dynamo")),
    Pattern("Compiling a graph for", r"Compiling a graph for .*takes ([\d.]+) s", _compile("Inductor", False)),
    Pattern("Directly load the compiled graph", r"from the cache, took ([\d.]+) s", _compile("cached graphs", True)),
    Pattern("torch.compile t", r"torch\.compile (?:takes|took) ([\d.]+) s(?: in total)?", _compile("torch.compile")),
    Pattern("profiling/warmup run took", r"profiling/warmup run took ([\d.]+) s", _compile("first run")),
    Pattern("JIT kernel warmup finished", r"JIT kernel warmup finished in ([\d.]+) ?s", _compile("kernel warm-up")),
    Pattern("init engine (", r"init engine \([^)]*\) took ([\d.]+) s(?:econds)?(?: \(compilation: ([\d.]+) s)?", _init),
    Pattern(
        "placement group",
        r"Waiting for creating a placement group of specs for (\d+) seconds",
        _waits("placement group"),
    ),
    Pattern("placement group", r"number of required GPUs exceeds the total number of available GPUs", _waits("GPUs")),
    Pattern("shared memory broadcast block", r"broadcast block found in (\d+) seconds", _waits("broadcast block")),
    Pattern("core engine proc", r"Waiting for \d+ local, \d+ remote core engine proc", _waits("engine core")),
    Pattern("Waiting for READY message", r"Waiting for READY message", _waits("DP coordinator")),
)
