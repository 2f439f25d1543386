"""Hugging Face Text Generation Inference: launcher, shards and router in one log.

`text` keeps the Rust target (`text_generation_launcher: …`). The batch budget comes from one warm-up prefill; a build
without flash attention has no automatic budget and falls back to a fixed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    EngineStarted,
    GraphsCaptured,
    KernelChoice,
    KvPool,
    ModelNamed,
    ServerReady,
    Setting,
    StepMark,
)
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.engines.line_table import Row, Seen, read_table, thinned
from loadpath.planning.deployment import Deployment

ENGINE = "tgi"
_FLAGS = {
    "context-length": "--max-total-tokens {}",
    "memory-share": "--cuda-memory-fraction {}",
    "kv-dtype": "--kv-cache-dtype fp8_e4m3fn",
    "batched-tokens": "--max-batch-prefill-tokens {}",
    "sequences": "--max-batch-size {}",
    "eager": "--cuda-graphs 0",
    "tensor-parallel": "--num-shard {}",
    "quantisation": "--quantize {}",
    "dtype": "--dtype {}",
    "trust-remote-code": "--trust-remote-code",
    "graph-sizes": "--cuda-graphs {}",
}
_KEPT = ("num_shard", "quantize", "dtype", "kv_cache_dtype", "max_input_tokens", "max_total_tokens",
         "max_batch_prefill_tokens", "max_batch_total_tokens", "cuda_memory_fraction", "cuda_graphs", "port")  # fmt: skip


_ON_ONE_LINE = re.compile(r'\b([a-z_]+): (Some\([^()]*\)|"[^"]*"|[^\s,{}]+)(?=[,\s])')


def flag(lever: str, value: object) -> str:
    """`lever` set to `value` in the launcher's flags; "" where it has none."""
    return _FLAGS.get(lever, "").format(value)


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (imported only here: reading a log does not need it)."""
    from loadpath.engines.tgi_planning import plan as planned

    return planned(deployment)


def starts_run(line: Line) -> bool:
    return bool(re.search(r"text_generation_launcher: Args \{", line.text))


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(list(read_table(capture, TGI)))


def _started(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE)
    yield StepMark(**seen.fields, step="process-start", event="began")
    for name, value in _ON_ONE_LINE.findall(seen.line.text):  # up to 1.x
        yield from _setting(seen, name, value)


def _argument(seen: Seen) -> Iterator[Fact]:
    yield from _setting(seen, seen.match["name"], seen.match["value"])


def _setting(seen: Seen, name: str, value: str) -> Iterator[Fact]:
    value = re.sub(r"^Some\(\s*(.*?),?\s*\)$", r"\1", value.strip('"')).strip('"')
    if value == "None":
        return
    if name == "model_id":
        yield ModelNamed(**seen.fields, name=value)
    elif name in _KEPT:
        yield Setting(**seen.fields, name=name.replace("_", "-"), value=value, basis="dump", engine=ENGINE)


def _shard(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="process-start", event="ended")
    yield StepMark(**seen.fields, step="device-enumeration", event="ended")
    yield StepMark(**seen.fields, step="context-creation", event="ended")
    yield StepMark(**seen.fields, step="weight-load", event="began")


def _shard_ready(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="ended", seconds=seen.number("seconds"))


def _shard_failed(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="failed")


def _warm_up(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="memory-profiling", event="began", what="warm-up prefill")


def _budget(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="memory-profiling", event="ended")
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield KvPool(**seen.fields, tokens=int(seen.match["tokens"]))


def _blocks(seen: Seen) -> Iterator[Fact]:
    blocks, size = int(seen.match["blocks"]), int(seen.match["size"])
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield KvPool(**seen.fields, blocks=blocks, block_tokens=size, tokens=blocks * size, rank=seen.rank)


def _graphs(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="began")
    yield GraphsCaptured(**seen.fields, count=seen.match["sizes"].count(",") + 1)


def _attention(seen: Seen) -> Iterator[Fact]:
    yield KernelChoice(**seen.fields, area="attention", kernel=seen.match["kernel"])


def _connected(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


def _limit(seen: Seen) -> Iterator[Fact]:
    yield Setting(**seen.fields, name=f"max-{seen.match['what']}-tokens", value=seen.match["tokens"], basis="derived",
                  engine=ENGINE)  # fmt: skip


TGI: tuple[Row, ...] = (
    Row("Args {", r"text_generation_launcher: Args \{", _started),
    Row(": ", r"^\s{4}(?P<name>[a-z_]+): (?P<value>.+?),?$", _argument),
    Row("Starting shard", r"Starting shard", _shard),
    Row("Shard ready in", r"Shard ready in (?P<seconds>[\d.]+)s", _shard_ready),
    Row("failed to start", r"Shard \d+ failed to start", _shard_failed),
    Row("Warming up model", r"Warming up model", _warm_up),
    Row("max batch total tokens to", r"Setting max batch total tokens to (?P<tokens>\d+)", _budget),
    Row("KV-cache blocks", r"KV-cache blocks: (?P<blocks>\d+), size: (?P<size>\d+)", _blocks),
    Row("Cuda Graphs are enabled", r"Cuda Graphs are enabled for sizes \[(?P<sizes>[\d, ]+)\]", _graphs),
    Row("Using Attention", r"Using Attention = (?P<kernel>\w+)", _attention),
    Row("tokens defaulted to", r"Maximum (?P<what>input|total) tokens defaulted to (?P<tokens>\d+)", _limit),
    Row("Connected", r"(?:^|: )Connected$", _connected),
)
