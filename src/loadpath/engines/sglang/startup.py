"""SGLang's start, line by line: distributed init, weights, pools, graphs, server, warm-up.

Samples (ours, 0.5.23)::

    [2026-11-30 01:55:09] Load weight end. elapsed=0.01 s, type=LlamaForCausalLM, avail mem=19.55 GB, mem usage=0.00 GB.
    [2026-11-30 01:55:09] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 65536, K size: 0.02 GB, V size: 0.02 GB
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    Concurrency,
    GraphsCaptured,
    KernelChoice,
    KvPool,
    ModelNamed,
    Progress,
    ServerListening,
    ServerReady,
    Setting,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.facts.placement import FreeMemory, Milestone, SidePool
from loadpath.core.units import gib
from loadpath.core.vocabulary import Step
from loadpath.engines.line_table import Row, Seen

NUMBER = r"-?[\d.]+"


def _mark(step: Step, event: str, what: str = "") -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        seconds = seen.number("seconds")
        yield StepMark(**seen.fields, step=step, event=event, seconds=seconds, what=what)  # type: ignore[arg-type]

    return make


def _free(seen: Seen, when: Milestone) -> Iterator[Fact]:
    if (free := seen.number("avail")) is not None:
        yield FreeMemory(**seen.fields, when=when, bytes=gib(free), rank=seen.rank)


def _init_began(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="process-start", event="ended")
    yield StepMark(**seen.fields, step="device-enumeration", event="ended")
    yield StepMark(**seen.fields, step="context-creation", event="began")


def _weights_began(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="began")
    yield from _free(seen, "before-weights")


def _weights_ended(seen: Seen) -> Iterator[Fact]:
    used, seconds = seen.number("used"), seen.number("seconds")
    yield StepMark(**seen.fields, step="weight-load", event="ended", seconds=seconds)
    yield StepMark(
        **seen.fields, step="memory-profiling", event="ended", what="sized from free memory, no profiling pass"
    )
    yield WeightsLoaded(
        **seen.fields, bytes=gib(used) if used is not None else None, seconds=seconds, rank=seen.rank
    )  # fmt: skip
    if name := seen.text("type"):
        yield ModelNamed(**seen.fields, architecture=name)
    yield from _free(seen, "after-weights")


def _shards(seen: Seen) -> Iterator[Fact]:
    done, total = int(seen.match["done"]), int(seen.match["total"])
    yield Progress(**seen.fields, step="weight-load", what="shards", done=done, total=total)


def _pool(seen: Seen) -> Iterator[Fact]:
    parts = [seen.number(name) for name in ("k", "v", "kv")]
    size = sum(part for part in parts if part is not None)
    yield StepMark(**seen.fields, step="kv-pool", event="progress")
    yield KvPool(
        **seen.fields, tokens=seen.whole("tokens"), dtype=seen.text("dtype"), rank=seen.rank,
        bytes=gib(size) if any(part is not None for part in parts) else None,
    )  # fmt: skip


def _window_pools(seen: Seen) -> Iterator[Fact]:
    """Both parts of a sliding-window model's cache together; the full part's tokens are the capacity."""
    yield KvPool(**seen.fields, tokens=seen.whole("full"), bytes=gib(float(seen.match["size"])), rank=seen.rank)


def _pool_ended(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield from _free(seen, "after-kv-pool")


def _state_pool(seen: Seen) -> Iterator[Fact]:
    size = sum(seen.number(name) or 0 for name in ("conv", "ssm"))
    yield StepMark(**seen.fields, step="kv-pool", event="progress")
    yield SidePool(**seen.fields, what="state", bytes=gib(size), rank=seen.rank)


def _sizes(seen: Seen) -> Iterator[Fact]:
    tokens, context = seen.whole("tokens"), seen.whole("context")
    yield KvPool(**seen.fields, tokens=tokens, rank=seen.rank)
    if tokens is not None and context:
        yield Concurrency(**seen.fields, context_tokens=context, ratio=tokens / context)
        yield Setting(**seen.fields, name="context-length", value=str(context), basis="derived", engine="sglang")
    if requests := seen.text("requests"):
        yield Setting(**seen.fields, name="max-running-requests", value=requests, basis="derived", engine="sglang")
    yield from _free(seen, "after-start")


def _capture_began(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="began", what=(seen.text("what") or "").strip())
    yield from _free(seen, "before-graphs")


def _capture_ended(seen: Seen) -> Iterator[Fact]:
    seconds, used, what = seen.number("seconds"), seen.number("used"), (seen.text("what") or "").strip()
    yield StepMark(**seen.fields, step="graph-capture", event="ended", seconds=seconds, what=what)
    yield GraphsCaptured(
        **seen.fields, seconds=seconds, bytes=gib(used) if used is not None else None, mode=what or None
    )  # fmt: skip
    yield from _free(seen, "after-graphs")


def _capture_progress(seen: Seen) -> Iterator[Fact]:
    done, total = seen.whole("done"), seen.whole("total")
    if done is not None and total:
        yield Progress(**seen.fields, step="graph-capture", what="graphs", done=done, total=total)
    yield from _free(seen, "before-graphs")


def _capture_failed(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="failed")


def _no_graphs(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="graph-capture", event="skipped")
    yield GraphsCaptured(**seen.fields, skipped=True)


def _listening(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield StepMark(**seen.fields, step="warm-up", event="began")
    yield ServerListening(**seen.fields, address=seen.match["address"])


def _ready(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="warm-up", event="ended")
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


def _attention(seen: Seen) -> Iterator[Fact]:
    yield KernelChoice(**seen.fields, area="attention", kernel=seen.match["backend"])


_AVAIL = rf"avail mem=(?P<avail>{NUMBER}) GB"
_GRAPH = r"(?P<what>(?:target |draft )?(?:[\w-]+ )*?)?"
_POOL = (
    rf"KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]+), )?(?:#tokens: (?P<tokens>\d+))?"
    rf"(?:(?:, )?K size: (?P<k>{NUMBER}) GB)?(?:, V size: (?P<v>{NUMBER}) GB)?(?:, KV size: (?P<kv>{NUMBER}) GB)?"
)
STARTUP: tuple[Row, ...] = (
    Row("Init ", r"Init (?:torch distributed|nccl|parallel) begin", _init_began),
    Row("Init ", rf"Init (?:torch distributed|parallel) ends\.(?: elapsed=(?P<seconds>{NUMBER}) s)?",
        _mark("context-creation", "ended")),
    Row("Load weight begin", rf"Load weight begin\.(?: {_AVAIL})?", _weights_began),
    Row("Load weight end",
        rf"Load weight end\.(?: elapsed=(?P<seconds>{NUMBER}) s,)?(?: type=(?P<type>\w+),)?.*?{_AVAIL}"
        rf"(?:, mem usage=(?P<used>{NUMBER}) GB)?", _weights_ended),
    Row("Completed |", r"shards:\s*\d+% Completed \| (?P<done>\d+)/(?P<total>\d+)(?!.*Completed \|)", _shards),
    Row("KV Cache is allocated", _POOL, _pool),
    Row("SWAKVPool mem usage", rf"SWAKVPool mem usage: (?P<size>{NUMBER}) GB, swa size: \d+, full size: (?P<full>\d+)",
        _window_pools),
    Row("Mamba Cache is allocated",
        rf"conv_state size: (?P<conv>{NUMBER})\s?GB, ssm_state size: (?P<ssm>{NUMBER})\s?GB",
        _state_pool),
    Row("Memory pool end", rf"Memory pool end\.(?: {_AVAIL})?", _pool_ended),
    Row("max_total_num_tokens=", r"max_total_num_tokens=(?P<tokens>\d+), .*?max_running_requests=(?P<requests>\d+), "
        rf"context_len=(?P<context>\d+)(?:, available_[cg]pu_mem=(?P<avail>{NUMBER}) GB)?", _sizes),
    Row("raph begin", rf"Capture {_GRAPH}(?:cuda|CUDA|cpu|npu) graph begin.*?(?:{_AVAIL}|$)", _capture_began),
    Row("raph end",
        rf"Capture {_GRAPH}(?:cuda|CUDA|cpu|npu) graph end\..*?(?:elapsed=|Time elapsed: )(?P<seconds>{NUMBER}) s"
        rf"(?:.*?mem usage=(?P<used>{NUMBER}) GB)?(?:.*?avail mem=(?P<avail>{NUMBER}) GB)?", _capture_ended),
    Row("Capturing ", rf"Capturing (?:batches|num tokens) \(\w+=\d+ avail_mem=(?P<avail>{NUMBER}) GB\)"
        r"(?!.*Capturing )(?:.*?\| (?P<done>\d+)/(?P<total>\d+))?", _capture_progress),
    Row("Capture ", r"Capture (?:cuda|CUDA) graph failed", _capture_failed),
    Row("Engine startup timings", r"cuda_graph=\{(?:\w+=0\.00(?:, )?)+\}", _no_graphs),
    Row("raph is disabled", r"[Cc]uda graph is disabled", _no_graphs),
    Row("Uvicorn running on", r"Uvicorn running on (?P<address>\S+)", _listening),
    Row("fired up and ready", r"The server is fired up and ready to roll", _ready),
    Row("ttention backend",
        r"(?:Overriding draft attention backend to|Attention backend not .*? Use) (?P<backend>\w+)", _attention),
)  # fmt: skip
