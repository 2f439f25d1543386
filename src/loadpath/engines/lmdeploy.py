"""LMDeploy: TurboMind (C++, `[TM][INFO] …`) and its PyTorch engine.

Its default log level is WARNING, so a healthy start shows little. `cache_max_entry_count` is a share (0.8) of the memory
that is free after the weights: it cannot make room for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import EngineStarted, KvPool, ServerListening, ServerReady, Setting, StepMark
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.engines.line_table import Row, Seen, read_table, thinned
from loadpath.planning.deployment import Deployment

ENGINE = "lmdeploy"
_FLAGS = {
    "context-length": "--session-len {}",
    "memory-share": "--cache-max-entry-count {}",
    "kv-dtype": "--quant-policy 8",
    "batched-tokens": "--max-prefill-token-num {}",
    "sequences": "--max-batch-size {}",
    "eager": "--eager-mode",
    "tensor-parallel": "--tp {}",
    "quantisation": "--model-format {}",
    "dtype": "--dtype {}",
    "trust-remote-code": "--trust-remote-code",
}
_KEPT = r"session_len|cache_max_entry_count|tp|max_batch_size|quant_policy|model_format|max_prefill_token_num"


def flag(lever: str, value: object) -> str:
    """`lever` set to `value` in `lmdeploy serve api_server`'s flags; "" where it has none."""
    return _FLAGS.get(lever, "").format(value)


def plan(deployment: Deployment) -> Plan:
    """The memory of a start, planned (imported only here: reading a log does not need it)."""
    from loadpath.engines.lmdeploy_planning import plan as planned

    return planned(deployment)


def starts_run(line: Line) -> bool:
    return "lmdeploy serve" in line.text or "TurbomindEngineConfig(" in line.text


def read(capture: Capture) -> Iterator[Fact]:
    yield from thinned(list(read_table(capture, LMDEPLOY)))


def _config(seen: Seen) -> Iterator[Fact]:
    """A configuration in Python: `TurbomindEngineConfig(session_len=8192, …)`, in code or as the engine prints it."""
    yield EngineStarted(**seen.fields, engine=ENGINE)
    for name, value in re.findall(rf"\b({_KEPT})=([\w.]+)", seen.line.text):
        if value != "None":
            yield Setting(**seen.fields, name=name.replace("_", "-"), value=value, basis="command", engine=ENGINE)


def _building(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="began")


def _cache(seen: Seen) -> Iterator[Fact]:
    blocks, size = int(seen.match["blocks"]), seen.whole("size")
    yield StepMark(**seen.fields, step="weight-load", event="ended")
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield KvPool(**seen.fields, blocks=blocks, block_tokens=size, tokens=blocks * size if size else None)


def _warm_up(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="warm-up", event="began")


def _warmed_up(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="warm-up", event="ended", seconds=seen.number("seconds"))


def _ready(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield ServerListening(**seen.fields, address=seen.match["address"])
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


LMDEPLOY: tuple[Row, ...] = (
    Row("EngineConfig(", r"(?:Turbomind|Pytorch)EngineConfig\(", _config),
    Row("Building Model", r"Building Model\.", _building),
    Row("num_gpu_blocks=", r"num_gpu_blocks=(?P<blocks>\d+)(?=(?:.*?\bblock_size=(?P<size>\d+))?)", _cache),
    Row("max_block_count", r"\[BlockManager\] max_block_count = (?P<blocks>\d+)", _cache),
    Row("Starting engine warmup", r"Starting engine warmup", _warm_up),
    Row("completed in", r"Engine warmup completed in (?P<seconds>[\d.]+) seconds", _warmed_up),
    Row("Warm-up finished", r"Warm-up finished in (?P<seconds>[\d.]+) seconds", _warmed_up),
    Row("Uvicorn running on", r"Uvicorn running on (?P<address>\S+)", _ready),
)
