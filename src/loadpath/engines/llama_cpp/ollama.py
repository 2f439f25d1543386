"""Ollama: Go's `key=value` lines around the lines of llama.cpp (or of its own engine, which prints ggml's).

Three ways to say what goes where: `msg="offload to cuda" layers.offload=…` (an estimate, to v0.12.10), `msg="model
weights" device=CUDA0 size=…` (v0.11.5 to v0.24), and llama-server's own lines (from v0.30). One log serves many models,
one after the other; `starting runner` lines are probes, not restarts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    EngineStarted,
    ModelNamed,
    RequestServed,
    ServerListening,
    ServerReady,
    Setting,
    StepMark,
)
from loadpath.core.facts.placement import (
    BufferPart,
    BufferPlaced,
    DeviceFound,
    FreeMemory,
    LayersOffloaded,
    OffloadPlan,
)
from loadpath.core.plan import Plan
from loadpath.core.text import Capture, Line
from loadpath.core.units import parse_size
from loadpath.engines.line_table import Row, Seen, read_table, thinned
from loadpath.engines.llama_cpp.loading import LOADING
from loadpath.engines.llama_cpp.passes import settled
from loadpath.engines.llama_cpp.refusals import read_refusals
from loadpath.planning.deployment import Deployment

ENGINE = "ollama"
_FLAGS = {
    "context-length": "num_ctx {}",
    "kv-dtype": "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE={}",
    "sequences": "OLLAMA_NUM_PARALLEL={}",
    "gpu-layers": "num_gpu {}",
    "batched-tokens": "num_batch {}",
    "attention-backend": "OLLAMA_FLASH_ATTENTION=1",
}


def flag(lever: str, value: object) -> str:
    """`lever` set to `value`: a parameter of the request or Modelfile, or a variable of the server's environment."""
    if lever == "kv-dtype":
        value = {"fp8": "q8_0"}.get(str(value), value)
    return _FLAGS.get(lever, "").format(value)


def starts_run(line: Line) -> bool:
    return 'msg="server config"' in line.text or "INFO server config env=" in line.text


def read(capture: Capture) -> Iterator[Fact]:
    rows = (*OLLAMA, *(row for row in LOADING if row.literal not in ("build", "llama_server: initializing")))
    yield from thinned(settled([*read_table(capture, rows), *read_refusals(capture)]))


def plan(deployment: Deployment) -> Plan:
    """The memory of a model as Ollama loads it, planned (imported only here: reading a log does not need it)."""
    from loadpath.engines.llama_cpp.planning.ollama import plan as planned

    return planned(deployment)


_PAIR = re.compile(r'(?:"(?P<quoted>[^"]+)"|(?P<name>[\w.]+))=(?P<value>"(?:[^"\\]|\\.)*"|\S*)')


def _pairs(seen: Seen) -> dict[str, str]:
    """The `key=value` pairs of one line; lists of one (`"[23.1 GiB]"`) lose their brackets."""
    return {
        match["quoted"] or match["name"]: match["value"].strip('"').strip("[]")
        for match in _PAIR.finditer(seen.line.text)
    }


def _size(text: str | None) -> int | None:
    """Bytes; of a list (`23.1 GiB 22.9 GiB`) the sum."""
    if not text:
        return None
    sizes = [parse_size(size) for size in re.findall(r"[\d.]+ [KMGT]?i?B", text)]
    return sum(size for size in sizes if size is not None) if sizes else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


_KEPT = ("OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL", "OLLAMA_FLASH_ATTENTION", "OLLAMA_KV_CACHE_TYPE",
         "OLLAMA_GPU_OVERHEAD", "OLLAMA_LOAD_TIMEOUT", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_SCHED_SPREAD",
         "OLLAMA_LLM_LIBRARY", "CUDA_VISIBLE_DEVICES", "OLLAMA_HOST")  # fmt: skip


def _config(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE)
    yield StepMark(**seen.fields, step="process-start", event="began")
    for name, value in re.findall(r"([A-Z_]{8,}):(\S*?)(?=\s+[A-Z_]{8,}:|[\]\"]|\s*$)", seen.line.text):
        if name in _KEPT and value not in ("", "0", "false"):
            yield Setting(**seen.fields, name=name, value=value, basis="environment", engine=ENGINE)


def _listening(seen: Seen) -> Iterator[Fact]:
    yield EngineStarted(**seen.fields, engine=ENGINE, version=seen.match["version"])
    yield StepMark(**seen.fields, step="process-start", event="ended")
    yield StepMark(**seen.fields, step="http-server", event="ended")
    yield ServerListening(**seen.fields, address=seen.match["address"])
    yield ServerReady(**seen.fields)


def _device(seen: Seen) -> Iterator[Fact]:
    pairs = _pairs(seen)
    library = pairs.get("library", "").lower()
    yield StepMark(**seen.fields, step="device-enumeration", event="ended" if library != "cpu" else "failed")
    yield DeviceFound(
        **seen.fields, library=library, name=pairs.get("description") or pairs.get("name") or library,
        capability=pairs.get("compute"), driver=pairs.get("driver"),
        total_bytes=_size(pairs.get("total")), free_bytes=_size(pairs.get("available")),
    )  # fmt: skip


def _gpu_memory(seen: Seen) -> Iterator[Fact]:
    pairs = _pairs(seen)
    if (free := _size(pairs.get("available"))) is not None:
        yield StepMark(**seen.fields, step="context-creation", event="ended")
        yield FreeMemory(**seen.fields, when="before-weights", bytes=free, device=pairs.get("library"))


def _loading(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="began")


def _runner(seen: Seen) -> Iterator[Fact]:
    command = seen.line.text
    if match := re.search(r"--model (\S+?)[\s\"]", command):
        yield ModelNamed(**seen.fields, name=match[1].rpartition("/")[2])
        yield StepMark(**seen.fields, step="weight-load", event="began")
    for name, flag_ in (("ctx-size", "--ctx-size"), ("n-gpu-layers", "--n-gpu-layers"), ("parallel", "--parallel")):
        if value := re.search(rf"{flag_} (-?\d+)", command):
            yield Setting(**seen.fields, name=name, value=value[1], basis="derived", engine=ENGINE)


def _estimate(seen: Seen) -> Iterator[Fact]:
    """The plan of `memory.go`: layers and needs, worked out before the runner starts."""
    pairs = _pairs(seen)
    on_gpu, total = _whole(pairs.get("layers.offload")), _whole(pairs.get("layers.model"))
    if on_gpu is not None and total:
        requested = _whole(pairs.get("layers.requested"))
        yield LayersOffloaded(**seen.fields, on_gpu=on_gpu, total=total, requested=requested, estimate=True)
    yield OffloadPlan(
        **seen.fields,
        full_bytes=_size(pairs.get("memory.required.full")), planned_bytes=_size(pairs.get("memory.required.partial")),
        free_bytes=_size(pairs.get("memory.available")), kv_bytes=_size(pairs.get("memory.required.kv")),
        projector_bytes=(_size(pairs.get("projector.weights")) or 0) + (_size(pairs.get("projector.graph")) or 0) or None,
        graph_bytes=_size(pairs.get("memory.graph.partial")) or _size(pairs.get("memory.graph.full")),
        library=_library(pairs, seen.line.text),
    )  # fmt: skip


def _library(pairs: dict[str, str], text: str) -> str:
    """`library=cuda` of a line, or `offload to cuda` (0.3 to 0.12)."""
    named = re.search(r'msg="?offload to (\w+)', text)
    return (pairs.get("library") or (named[1] if named else "")).lower()


def _placed(part: BufferPart) -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        pairs = _pairs(seen)
        if size := _size(pairs.get("size")):
            yield StepMark(**seen.fields, step="weight-load" if part == "weights" else "kv-pool", event="progress")
            device = pairs.get("device", "")
            yield BufferPlaced(**seen.fields, part=part, device=device, bytes=size, planned=True)

    return make


def _total(seen: Seen) -> Iterator[Fact]:
    yield OffloadPlan(**seen.fields, full_bytes=_size(_pairs(seen).get("size")))


def _request(seen: Seen) -> Iterator[Fact]:
    """The load request of the new engine: context, slots, flash attention."""
    for name, key in (("ctx-size", "KvSize"), ("parallel", "Parallel"), ("flash-attn", "FlashAttention")):
        if value := re.search(rf"\b{key}:(\w+)", seen.line.text):
            yield Setting(**seen.fields, name=name, value=value[1], basis="derived", engine=ENGINE)


def _loaded(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="weight-load", event="ended", seconds=seen.number("seconds"))
    yield StepMark(**seen.fields, step="warm-up", event="ended")
    yield ServerReady(**seen.fields)
    yield StepMark(**seen.fields, step="serving", event="began")


def _default_context(seen: Seen) -> Iterator[Fact]:
    if value := _pairs(seen).get("default_num_ctx"):
        yield Setting(**seen.fields, name="num_ctx", value=value, basis="derived", engine=ENGINE)


def _answered(seen: Seen) -> Iterator[Fact]:
    match = seen.match
    yield RequestServed(**seen.fields, method=match["method"], path=match["path"], status=int(match["status"]))


OLLAMA: tuple[Row, ...] = (
    Row("server config", r"server config", _config),
    Row("Listening on", r"Listening on (?P<address>\S+) \(version (?P<version>[\w.+-]+)\)", _listening),
    Row("inference compute", r'msg="inference compute"', _device),
    Row("gpu memory", r'msg="gpu memory"', _gpu_memory),
    Row("loading model", r'msg="loading model(?: via llama-server)?"', _loading),
    Row("starting ", r'msg="starting (?:runner|llama[- ]server)"', _runner),
    Row("offload", r'msg="?offload(?: to \w+)?"? ', _estimate),
    Row("model weights", r'msg="model weights"', _placed("weights")),
    Row("kv cache", r'msg="kv cache"', _placed("kv")),
    Row("compute graph", r'msg="compute graph"', _placed("compute")),
    Row("total memory", r'msg="total memory"', _total),
    Row("msg=load request", r"msg=load request=.*Operation:commit", _request),
    Row("started in", r'msg="llama(?:-server| runner) started in (?P<seconds>[\d.]+) seconds"', _loaded),
    Row("vram-based default", r"vram-based default context", _default_context),
    Row("[GIN]", r'\|\s*(?P<status>\d{3})\s*\|.*\|\s*(?P<method>[A-Z]+)\s+"(?P<path>[^"]+)"', _answered),
)
