"""Memory as vLLM prints it: the profiling pass in each era's form, the KV pool, the graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Advice, Concurrency, GraphsCaptured, KvPool, MemoryBreakdown, Progress
from loadpath.core.units import gib
from loadpath.engines.vllm.pattern import Pattern, Seen, figure
from loadpath.readers.load_bars import clock

# From this release the printed token figure is concurrency × context, no longer blocks × block size.
DERIVED_TOKENS = (0, 20, 1)
_G = r"(-?[\d.]+) ?Gi?B"
_ADVICE = {
    "free_bytes": r"on device[^(]*\(([\d.]+)/",
    "total_bytes": r"/([\d.]+) GiB\) on startup",
    "budget_bytes": r"utilization is \([\d.]+, ([\d.]+) GiB\)",
    "weights_bytes": r"([\d.]+) GiB for weight",
    "activation_bytes": r"(-?[\d.]+) GiB for peak activation",
    "non_torch_bytes": r"(-?[\d.]+) GiB for non-torch",
    "consumed_bytes": r"([\d.]+) GiB for consumed memory",
    "graph_bytes": r"(-?[\d.]+) GiB for CUDAGraph memory",
    "kv_bytes": r"kv cache memory in use is (-?[\d.]+) GiB",
}


def _sizes(text: str, patterns: dict[str, str]) -> dict[str, Any]:
    found = ((name, re.search(pattern, text)) for name, pattern in patterns.items())
    figures = ((name, figure(match[1])) for name, match in found if match)
    return {name: gib(value) for name, value in figures if value is not None}


def _profile_took(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, seconds=seen.number(1), rank=seen.rank)
    yield seen.mark("memory-profiling", "progress", seen.number(1))


def _share(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(
        **seen.common, total_bytes=seen.size(1), utilisation=seen.number(2), budget_bytes=seen.size(3), rank=seen.rank
    )


def _parts(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(
        **seen.common, weights_bytes=seen.size(1), non_torch_bytes=seen.size(2), activation_bytes=seen.size(3),
        kv_bytes=seen.size(4), rank=seen.rank,
    )  # fmt: skip
    yield seen.mark("memory-profiling", "ended")


def _one_line(seen: Seen) -> Iterator[Fact]:
    """0.6.4: one line; the peak that it prints holds the weights, so the activations are not told."""
    text = seen.message
    sizes = _sizes(text, {
        "total_bytes": r"total_gpu_memory=([\d.]+)", "non_torch_bytes": r"non_torch_memory=(-?[\d.]+)",
        "kv_bytes": r"kv_cache_size=(-?[\d.]+)",
    })  # fmt: skip
    share = re.search(r"gpu_memory_utilization=([\d.]+)", text)
    utilisation = figure(share[1]) if share else None
    if utilisation and "total_bytes" in sizes:
        sizes["budget_bytes"] = round(sizes["total_bytes"] * utilisation)
    yield MemoryBreakdown(**seen.common, **sizes, utilisation=utilisation, rank=seen.rank)
    yield seen.mark("memory-profiling", "ended")


def _debug_object(seen: Seen) -> Iterator[Fact]:
    sizes = _sizes(seen.message, {
        "activation_bytes": r"torch peak memory increase: (-?[\d.]+)GiB",
        "non_torch_bytes": r"non-torch forward increase memory: (-?[\d.]+)GiB",
        "weights_bytes": r"weights memory: ([\d.]+)GiB", "consumed_bytes": r"total consumed[^:]*: ([\d.]+)GiB",
    })  # fmt: skip
    yield MemoryBreakdown(**seen.common, **sizes, seconds=seen.number(1), rank=seen.rank)


def _available(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, kv_bytes=seen.size(1), rank=seen.rank)
    yield seen.mark("memory-profiling", "ended")


def _fixed_kv(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, free_bytes=seen.size(1), kv_bytes=seen.size(2), rank=seen.rank)
    yield seen.mark("memory-profiling", "ended")


def _cpu_kv(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, kv_bytes=seen.size(1), total_bytes=seen.size(2), rank=seen.rank)
    yield seen.mark("memory-profiling", "ended")


def _graph_estimate(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, graph_bytes=seen.size(1), rank=seen.rank)


def _advice(seen: Seen) -> Iterator[Fact]:
    text = seen.message
    share = re.search(r"utilization is \(([\d.]+),", text)
    yield MemoryBreakdown(
        **seen.common, **_sizes(text, _ADVICE), utilisation=figure(share[1]) if share else None, rank=seen.rank
    )
    if best := re.search(r"--kv-cache-memory=(\d+) \([\d.]+ GiB\) to fully utilize", text):
        yield Advice(**seen.common, setting="kv-cache-memory-bytes", direction="set", value=best[1])


def _equivalent_share(seen: Seen) -> Iterator[Fact]:
    """0.18 and later: graphs are part of the budget, and what utilisation would make up for it."""
    raised = re.search(r"increase --gpu-memory-utilization to ([\d.]+)", seen.message)
    if seen.run.once("share-advice") and raised:
        yield Advice(**seen.common, setting="gpu-memory-utilization", direction="raise", value=raised[1].rstrip("."))


def _v0_blocks(seen: Seen) -> Iterator[Fact]:
    blocks = seen.count(1) or 0
    size = seen.run.block_tokens
    yield seen.mark("memory-profiling", "ended")
    yield KvPool(**seen.common, blocks=blocks, block_tokens=size, tokens=blocks * size, rank=seen.rank)
    yield seen.mark("kv-pool", "ended")


def _v1_blocks(seen: Seen) -> Iterator[Fact]:
    yield KvPool(**seen.common, blocks=seen.count(1), rank=seen.rank)


def _tokens(seen: Seen) -> Iterator[Fact]:
    version, one_line = seen.run.version, seen.match[3] is not None
    derived = version >= DERIVED_TOKENS or seen.run.hybrid or (not version and one_line)
    device = seen.match[1] if seen.match[1] in ("CPU", "XPU", "GPU + host") else "GPU"
    yield seen.mark("memory-profiling", "ended")
    yield KvPool(**seen.common, tokens=seen.count(2), device=device, derived=derived, rank=seen.rank)
    yield seen.mark("kv-pool", "ended")


def _concurrency(seen: Seen) -> Iterator[Fact]:
    yield Concurrency(**seen.common, context_tokens=seen.count(1) or 0, ratio=seen.number(2) or 0.0)


def _override(seen: Seen) -> Iterator[Fact]:
    # num_gpu_blocks=0 is vLLM's own step of the graph estimate (0.19); nobody asked for it.
    if seen.count(1):
        yield KvPool(**seen.common, blocks=seen.count(2), rank=seen.rank)


def _capture_begins(seen: Seen) -> Iterator[Fact]:
    yield seen.mark("graph-capture", "began")


def _capture_bar(seen: Seen) -> Iterator[Fact]:
    what, total = seen.match[1], seen.count(4) or 0
    if seen.run.once("captured", what) or seen.run.step != "graph-capture":
        yield seen.mark("graph-capture", "began")
    seen.run.graphs[what] = total
    yield Progress(
        **seen.common, step="graph-capture", what=what, done=seen.count(3) or 0, total=total,
        elapsed_seconds=clock(seen.group(5)), left_seconds=clock(seen.group(6)),
    )  # fmt: skip


def _captured(seen: Seen) -> Iterator[Fact]:
    seen.run.once("captured", "end")
    count = sum(seen.run.graphs.values()) or None
    modes = [m[1] for name in seen.run.graphs if (m := re.search(r"(PIECEWISE|FULL)", name))]
    yield GraphsCaptured(
        **seen.common, count=count, seconds=seen.number(1), bytes=seen.size(2),
        mode=" and ".join(dict.fromkeys(modes)) or None,
    )  # fmt: skip
    yield seen.mark("graph-capture", "ended", seen.number(1))


def _no_graphs(seen: Seen) -> Iterator[Fact]:
    yield GraphsCaptured(**seen.common, skipped=True)
    yield seen.mark("graph-capture", "skipped")


def _graph_pool(seen: Seen) -> Iterator[Fact]:
    yield MemoryBreakdown(**seen.common, graph_bytes=seen.size(1), rank=seen.rank)


PATTERNS = (
    Pattern("Memory profiling takes", r"Memory profiling takes ([\d.]+|…) seconds\.? Total non KV", _debug_object),
    Pattern("Memory profiling takes", r"Memory profiling takes ([\d.]+) seconds(?!\.? Total)", _profile_took),
    Pattern(
        "current vLLM instance can use",
        rf"total_gpu_memory \({_G}\) x gpu_memory_utilization \(([\d.]+)\) = {_G}",
        _share,
    ),
    Pattern(
        "model weights take",
        rf"model weights take {_G}; non_torch_memory takes {_G}; PyTorch activation peak memory takes {_G};"
        rf".*?KV Cache is {_G}",
        _parts,
    ),
    Pattern("Memory profiling results", r"Memory profiling results: ", _one_line),
    Pattern("Available KV cache memory", rf"Available KV cache memory: {_G}", _available),
    Pattern("Initial free memory", rf"Initial free memory {_G}[;,] reserved {_G} memory for KV Cache", _fixed_kv),
    Pattern("for KV cache on node", r"set \(([\d.]+)/([\d.]+)\) GiB for KV cache on node", _cpu_kv),
    Pattern("Estimated CUDA graph memory", rf"Estimated CUDA graph memory: {_G}", _graph_estimate),
    Pattern("Free memory on device", r"on startup\. Desired GPU memory utilization is", _advice),
    Pattern("without CUDA graph memory profiling", r"CUDA graph memory profiling", _equivalent_share),
    Pattern(" blocks: ", r"# (?:GPU|CUDA|cuda) blocks: ([\d,]+)", _v0_blocks),
    Pattern("after num_gpu_blocks is", r"after num_gpu_blocks is: ([\d,]+)", _v1_blocks),
    Pattern(
        "KV cache size: ",
        r"((?:GPU|CPU|XPU)(?: \+ host)?) KV cache size: ([\d,]+) tokens(, Maximum concurrency)?",
        _tokens,
    ),
    Pattern("Maximum concurrency for", r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x", _concurrency),
    Pattern("Overriding num_gpu_blocks", r"num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)", _override),
    Pattern("Capturing cudagraphs for decoding", r"Capturing cudagraphs for decoding", _capture_begins),
    Pattern("Capturing the model for CUDA graphs", r"Capturing the model for CUDA graphs", _capture_begins),
    Pattern(
        "Capturing ",
        r"(Capturing [^:|]*(?:CUDA graph|cudagraph)[^:|]*):\s*(\d+)%.*?(?<!\d)(\d+)/(\d+)"
        r"(?: \[([\d:]+)<([\d:?]+))?",
        _capture_bar,
    ),
    Pattern("Graph capturing finished", rf"Graph capturing finished in ([\d.]+|…) secs?(?:, took {_G})?", _captured),
    Pattern("Skipping CUDA graph capture", r"Skipping CUDA graph capture", _no_graphs),
    Pattern("CUDA graph pool memory", rf"CUDA graph pool memory: {_G} \(actual\)", _graph_pool),
)
