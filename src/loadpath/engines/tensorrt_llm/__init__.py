"""TensorRT-LLM: `trtllm-serve` with the PyTorch backend, and the engine backend in C++ (also inside Triton).

The KV pool is a share of what is free after weights and peak (`free_gpu_memory_fraction`, 0.9 by default). The PyTorch
backend builds it twice: a small one to measure with, then the final one; only the last figures count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    Concurrency,
    EngineStarted,
    GraphsCaptured,
    KvPool,
    MemoryBreakdown,
    ServerListening,
    ServerReady,
    Setting,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.facts.placement import SidePool
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.core.units import gib, mib
from loadpath.engines.line_table import Row, Seen, read_table, thinned
from loadpath.planning.deployment import Deployment

ENGINE = "tensorrt-llm"
_FLAGS = {
    "context-length": "--max_seq_len {}",
    "memory-share": "--kv_cache_free_gpu_memory_fraction {}",
    "kv-dtype": "kv_cache_config: {{dtype: {}}} (in --extra_llm_api_options)",
    "batched-tokens": "--max_num_tokens {}",
    "sequences": "--max_batch_size {}",
    "tensor-parallel": "--tp_size {}",
    "pipeline-parallel": "--pp_size {}",
    "eager": "cuda_graph_config: null (in --extra_llm_api_options)",
    "trust-remote-code": "--trust_remote_code",
}


def flag(lever: str, value: object) -> str:
    """`lever` set to `value` in trtllm-serve's flags; "" where it has none."""
    return _FLAGS.get(lever, "").format(value)


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (imported only here: reading a log does not need it)."""
    from loadpath.engines.tensorrt_llm.planning import plan as planned

    return planned(deployment)


def starts_run(line: Line) -> bool:
    text = line.text
    return "Using LLM with" in text or ("Engine version" in text and "found in the config file" in text)


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(_final_pool(list(read_table(capture, TENSORRT_LLM))))


def _final_pool(facts: Sequence[Fact]) -> list[Fact]:
    """All pools but the last are for measuring; how many requests fit is told by the pool before the sizes."""
    pools = [fact for fact in facts if isinstance(fact, KvPool)]
    out: list[Fact] = []
    pool: KvPool | None = None
    for fact in facts:
        if isinstance(fact, KvPool):
            pool = fact
            if fact is not pools[-1]:
                fact = SidePool(**_common(fact), what="measuring", tokens=fact.tokens, bytes=fact.bytes)
        out.append(fact)
        final = pool is not None and pool is pools[-1]
        if isinstance(fact, Setting) and fact.name == "max-seq-len" and final and pool is not None and pool.tokens:
            context = int(fact.value)
            out.append(Concurrency(**_common(fact), context_tokens=context, ratio=pool.tokens / context))
    return out


def _common(fact: Fact) -> dict[str, Any]:
    return {"span": fact.span, "origin": fact.origin, "text": fact.text, "run": fact.run}


def _started(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE, version=seen.text("version"))
    yield StepMark(**seen.fields, step="process-start", event="began")


def _weights_began(seen: Seen) -> Iterator[Fact]:
    for step in ("process-start", "device-enumeration", "context-creation"):
        yield StepMark(**seen.fields, step=step, event="ended")
    yield StepMark(**seen.fields, step="weight-load", event="began")


def _weights_ended(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="ended", seconds=seen.number("seconds"))


def _engine_size(seen: Seen) -> Iterator[Fact]:
    yield from _weights_began(seen)
    yield StepMark(**seen.fields, step="weight-load", event="ended")
    yield WeightsLoaded(**seen.fields, bytes=mib(float(seen.match["size"])), rank=seen.rank)


def _weights(seen: Seen) -> Iterator[Fact]:
    yield WeightsLoaded(**seen.fields, bytes=gib(float(seen.match["size"])), rank=seen.rank)


def _profiling(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="memory-profiling", event="began")


def _profiled(seen: Seen) -> Iterator[Fact]:
    total, fraction = seen.number("total"), seen.text("fraction")
    yield StepMark(**seen.fields, step="memory-profiling", event="ended")
    yield MemoryBreakdown(
        **seen.fields, kv_bytes=gib(float(seen.match["kv"])), total_bytes=gib(total) if total else None
    )  # fmt: skip
    if fraction:
        yield Setting(**seen.fields, name="kv-cache-free-gpu-memory-fraction", value=fraction, engine=ENGINE)


def _part(name: str) -> Row:
    texts = {
        "non_torch_bytes": r"Memory used outside torch \(e\.g\., NCCL and CUDA graphs\) in memory usage profiling: ",
        "activation_bytes": r"Memory dynamically allocated during inference \(inside torch\) in memory usage profiling: ",
    }

    def make(seen: Seen) -> Iterator[Fact]:
        fields: dict[str, Any] = {name: gib(float(seen.match["size"]))}
        yield MemoryBreakdown(**seen.fields, **fields)

    return Row("in memory usage profiling", texts[name] + r"(?P<size>[\d.]+) GiB", make)


def _free_before_pool(seen: Seen) -> Iterator[Fact]:
    total, free = float(seen.match["total"]), float(seen.match["free"])
    yield StepMark(**seen.fields, step="memory-profiling", event="ended")
    yield MemoryBreakdown(**seen.fields, total_bytes=gib(total), free_bytes=gib(free))


def _pool(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    size = gib(float(seen.match["size"]))  # 0.00 where the cache lives elsewhere (AutoDeploy)
    yield KvPool(**seen.fields, bytes=size or None, tokens=int(seen.match["tokens"]), rank=seen.rank)


def _sizes(seen: Seen) -> Iterator[Fact]:
    for name in ("max_seq_len", "max_num_tokens", "max_batch_size"):
        yield Setting(
            **seen.fields, name=name.replace("_", "-"), value=seen.match[name], basis="derived", engine=ENGINE
        )  # fmt: skip


def _graphs_began(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="began")
    yield GraphsCaptured(**seen.fields, count=int(seen.match["count"]))


def _graphs_ended(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="ended")


def _ready(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="ended")
    if address := seen.text("address"):
        yield ServerListening(**seen.fields, address=address)
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


TENSORRT_LLM: tuple[Row, ...] = (
    Row("TensorRT", r"TensorRT[- ]LLM version: (?P<version>[\w.+-]+)", _started),
    Row("Engine version", r"Engine version (?P<version>[\w.+-]+) found in the config file", _started),
    Row("for model weights", r"Use [\d.]+ GB for model weights", _weights_began),
    Row("Model init total", r"Model init total -- (?P<seconds>[\d.]+)s", _weights_ended),
    Row("Loaded engine size", r"Loaded engine size: (?P<size>\d+) MiB", _engine_size),
    Row("Memory used after loading model weights (inside", r"\(inside torch\).*?: (?P<size>[\d.]+) GiB", _weights),
    Row("Autotuning process starts", r"Autotuning process starts", _profiling),
    _part("non_torch_bytes"),
    _part("activation_bytes"),
    Row("Peak memory during memory usage profiling", r"available KV cache memory when calculating max tokens: (?P<kv>[\d.]+) GiB"
        r"(?:, fraction is set (?P<fraction>[\d.]+))?(?:.*?device total memory (?P<total>[\d.]+) GiB)?", _profiled),
    Row("Memory usage when calculating max tokens", r"total: (?P<total>[\d.]+) GiB, available: (?P<free>[\d.]+) GiB",
        _free_before_pool),
    Row("for max tokens in paged KV cache", r"Allocated (?P<size>[\d.]+) GiB for max tokens in paged KV cache \((?P<tokens>\d+)\)",
        _pool),
    Row("max_seq_len=", r"max_seq_len=(?P<max_seq_len>\d+), max_num_requests=\d+, max_num_tokens=(?P<max_num_tokens>\d+), "
        r"max_batch_size=(?P<max_batch_size>\d+)", _sizes),
    Row("CUDA graph instances", r"Creating CUDA graph instances for (?P<count>\d+) batch sizes", _graphs_began),
    Row("CUDA graph warmup", r"CUDA graph warmup for batch size=1, ", _graphs_ended),
    Row("Application startup complete", r"Application startup complete", _ready),
    Row("Uvicorn running on", r"Uvicorn running on (?P<address>\S+)", _ready),
)  # fmt: skip
