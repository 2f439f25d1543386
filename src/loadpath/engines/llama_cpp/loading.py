"""llama.cpp's start, line by line: devices, fit, weights, context, KV cache, compute buffers.

Samples (ours)::

    load_tensors:   CPU_Mapped model buffer size =     0.71 MiB
    llama_kv_cache: size =    1.00 MiB (  2048 cells,   2 layers,  4/1 seqs), K (f16):    0.50 MiB, V (f16):    0.50 MiB
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    EngineStarted,
    KvPool,
    MemoryBreakdown,
    ModelNamed,
    Setting,
    StepMark,
    WeightsLoaded,
)
from loadpath.core.facts.placement import (
    BufferPart,
    BufferPlaced,
    DeviceFound,
    FreeMemory,
    LayersOffloaded,
    ModelFile,
    OffloadPlan,
    is_gpu,
)
from loadpath.core.units import gib, mib
from loadpath.core.vocabulary import Step
from loadpath.engines.line_table import Row, Seen

ENGINE = "llama.cpp"
# What the context prints → the flag that sets it.
_CONTEXT = {"n_seq_max": "parallel", "n_ctx": "ctx-size", "n_ctx_seq": "n_ctx_seq", "n_ctx_per_seq": "n_ctx_seq",
            "n_batch": "batch-size", "n_ubatch": "ubatch-size", "flash_attn": "flash-attn", "kv_unified": "kv-unified",
            "n_slots": "parallel", "n_ctx_slot": "n_ctx_seq"}  # fmt: skip
_SCALE = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def _started(seen: Seen) -> Iterator[Fact]:
    build = seen.text("build")
    yield EngineStarted(**seen.fields, engine=ENGINE, version=f"b{build}" if build and build != "0" else None)
    yield StepMark(**seen.fields, step="process-start", event="began")


def _verbosity(seen: Seen) -> Iterator[Fact]:
    yield Setting(**seen.fields, name="verbosity", value=seen.match["level"], basis="derived", engine=ENGINE)


def _device(seen: Seen) -> Iterator[Fact]:
    total = seen.number("total")
    library = "rocm" if "gfx" in seen.line.text else "cuda"
    yield DeviceFound(
        **seen.fields, index=seen.whole("index"), name=seen.match["name"], library=library,
        capability=seen.text("capability"), total_bytes=mib(total) if total else None,
    )  # fmt: skip
    yield StepMark(**seen.fields, step="device-enumeration", event="ended")


def _free(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="context-creation", event="ended")
    yield FreeMemory(
        **seen.fields, when="before-weights", device=seen.match["device"], bytes=mib(float(seen.match["free"]))
    )  # fmt: skip


def _projected(seen: Seen) -> Iterator[Fact]:
    planned, free = float(seen.match["planned"]), float(seen.match["free"])
    yield OffloadPlan(**seen.fields, planned_bytes=mib(planned), full_bytes=mib(planned), free_bytes=mib(free))


def _target(seen: Seen) -> Iterator[Fact]:
    yield OffloadPlan(**seen.fields, target_bytes=mib(float(seen.match["target"])))


def _gave_up(seen: Seen) -> Iterator[Fact]:
    yield OffloadPlan(**seen.fields, gave_up=seen.match["reason"])


def _file(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="process-start", event="ended")
    yield StepMark(**seen.fields, step="weight-load", event="began")
    yield ModelNamed(**seen.fields, name=seen.match["path"].rpartition("/")[2])


def _architecture(seen: Seen) -> Iterator[Fact]:
    yield ModelNamed(**seen.fields, architecture=seen.match["name"])


def _file_type(seen: Seen) -> Iterator[Fact]:
    yield ModelFile(**seen.fields, file_type=seen.match["type"].strip())


def _file_size(seen: Seen) -> Iterator[Fact]:
    size = float(seen.match["size"])
    scale = gib if seen.match["unit"] == "GiB" else mib
    yield ModelFile(**seen.fields, bytes=scale(size), bits_per_weight=seen.number("bpw"))


def _parameters(seen: Seen) -> Iterator[Fact]:
    yield ModelFile(**seen.fields, parameters=float(seen.match["count"]) * _SCALE[seen.match["scale"]])


def _trained(seen: Seen) -> Iterator[Fact]:
    yield ModelFile(**seen.fields, trained_tokens=seen.whole("tokens"))


def _layers(seen: Seen) -> Iterator[Fact]:
    yield LayersOffloaded(**seen.fields, on_gpu=int(seen.match["gpu"]), total=int(seen.match["total"]))


def _buffer(part: BufferPart, step: Step) -> Callable[[Seen], Iterator[Fact]]:
    def make(seen: Seen) -> Iterator[Fact]:
        size = mib(float(seen.match["size"]))
        if size <= 0:
            return  # a fitting pass prints the lines with 0.00 MiB before the true ones
        device = seen.match["device"]
        yield StepMark(**seen.fields, step=step, event="progress", what=part)
        yield BufferPlaced(**seen.fields, part=part, device=device, bytes=size)
        if part == "weights" and is_gpu(device):
            yield WeightsLoaded(**seen.fields, bytes=size, device=device)

    return make


def _context(seen: Seen) -> Iterator[Fact]:
    name = _CONTEXT[seen.match["name"]]
    if name == "ctx-size":
        yield StepMark(**seen.fields, step="weight-load", event="ended")
        yield StepMark(**seen.fields, step="kv-pool", event="began")
    value = seen.match["value"].strip("'")
    yield Setting(**seen.fields, name=name, value=value, basis="derived", engine=ENGINE)


def _copies(seen: Seen) -> Iterator[Fact]:
    yield Setting(**seen.fields, name="pipeline-copies", value=seen.match["copies"], basis="derived", engine=ENGINE)


def _slots(seen: Seen) -> Iterator[Fact]:
    pairs = (("n_slots", seen.text("slots")), ("n_ctx_slot", seen.text("each")), ("kv_unified", seen.text("unified")))
    for name, value in pairs:
        if value:
            yield Setting(**seen.fields, name=_CONTEXT[name], value=value, basis="derived", engine=ENGINE)


def _pool(seen: Seen) -> Iterator[Fact]:
    size = float(seen.match["size"])
    if size <= 0:
        return
    cells, streams = seen.whole("cells"), seen.whole("streams") or 1
    yield StepMark(**seen.fields, step="kv-pool", event="ended")
    yield KvPool(
        **seen.fields, bytes=mib(size), tokens=cells * streams if cells else None, dtype=seen.text("dtype"),
        device="all",
    )  # fmt: skip


def _breakdown(seen: Seen) -> Iterator[Fact]:
    def size(name: str) -> int:
        return mib(float(seen.match[name]))

    yield MemoryBreakdown(
        **seen.fields, total_bytes=size("total"), free_bytes=size("free"), weights_bytes=size("model"),
        kv_bytes=size("context"), activation_bytes=size("compute"), non_torch_bytes=size("rest"),
    )  # fmt: skip


def _no_cuda(seen: Seen) -> Iterator[Fact]:
    yield StepMark(**seen.fields, step="device-enumeration", event="failed")


_MIB = r"(?P<size>[\d.]+) MiB"
_OLDER = "llama_new_context_with_model|llama_init_from_model"
_NAMES = "|".join(sorted(_CONTEXT, key=len, reverse=True))
LOADING: tuple[Row, ...] = (
    Row("build", r"(?:^build: |common_params_print_info: build |\bbuild_info: b)(?P<build>\d+)", _started),
    Row("verbosity = ", r"verbosity = (?P<level>\d+) \(adjust with", _verbosity),
    Row("llama_server: initializing", r"llama_server: initializing", _started),
    Row("Device ", r"^\s*Device (?P<index>\d+): (?P<name>.+?), (?:compute capability )?(?P<capability>\d+\.\d+|gfx\w+)"
        r"(?:.*?VRAM: (?P<total>\d+) MiB)?", _device),
    Row("failed to initialize CUDA", r"failed to initialize CUDA", _no_cuda),
    Row("using device ", r"using device (?P<device>\w+) \(.*\) - (?P<free>\d+) MiB free", _free),
    Row("of device memory vs",
        r"projected to use (?P<planned>\d+) MiB of device memory vs\. (?P<free>\d+) MiB", _projected),
    Row("free memory target of", r"cannot meet free memory targets? of (?P<target>\d+) MiB", _target),
    Row("failed to fit params", r"failed to fit params to free device memory: (?P<reason>.+?)(?:, abort)?$", _gave_up),
    Row("loading model '", r"load_model: loading model '(?P<path>[^']+)'", _file),
    Row("llama_model_loader: loaded meta", r"tensors from (?P<path>\S+)", _file),
    Row("general.architecture", r"general\.architecture str\s*= (?P<name>\S+)", _architecture),
    Row("arch", r"(?:print_info: arch|llm_load_print_meta: arch)\s*= (?P<name>\S+)", _architecture),
    Row("print_info: file type", r"file type\s*= (?P<type>.+)", _file_type),
    Row("llm_load_print_meta: model ftype", r"model ftype\s*= (?P<type>.+)", _file_type),
    Row("size", r"(?:print_info: file size|llm_load_print_meta: model size)\s*= (?P<size>[\d.]+) (?P<unit>[GM]iB)"
        r"(?: \((?P<bpw>[\d.]+) BPW\))?", _file_size),
    Row("model params", r"model params\s*= (?P<count>[\d.]+) (?P<scale>[KMBT])", _parameters),
    Row("n_ctx_train", r"n_ctx_train\s*= (?P<tokens>\d+)", _trained),
    Row(" layers to GPU", r"offloaded (?P<gpu>\d+)/(?P<total>\d+) layers to GPU", _layers),
    Row("buffer size", rf"(?:load_tensors|llm_load_tensors):\s+(?P<device>\S+) (?:model )?buffer size =\s*{_MIB}",
        _buffer("weights", "weight-load")),
    Row(" = ", rf"(?:llama_context|{_OLDER}):\s+(?P<name>{_NAMES})\s*= (?P<value>\S+)", _context),
    Row("pipeline parallelism enabled", r"pipeline parallelism enabled \(n_copies=(?P<copies>\d+)\)", _copies),
    Row("n_slots = ",
        r"n_slots = (?P<slots>\d+)(?:, n_ctx_slot = (?P<each>\d+))?(?:, kv_unified = '(?P<unified>\w+)')?",
        _slots),
    Row("KV buffer size", rf"(?P<device>\S+) KV buffer size =\s*{_MIB}", _buffer("kv", "kv-pool")),
    Row("RS buffer size", rf"(?P<device>\S+) RS buffer size =\s*{_MIB}", _buffer("state", "kv-pool")),
    Row("output buffer size", rf"(?P<device>\S+)\s+output buffer size =\s*{_MIB}", _buffer("output", "kv-pool")),
    Row("compute buffer size", rf"(?P<device>\S+) compute buffer size =\s*{_MIB}", _buffer("compute", "kv-pool")),
    Row("KV self size", rf"KV self size\s*=\s*{_MIB}(?:, K \((?P<dtype>\w+)\))?", _pool),
    Row("cells", rf"llama_kv_cache\w*: size =\s*{_MIB} \(\s*(?P<cells>\d+) cells,\s*\d+ layers,"
        r"\s*\d+(?:/\s*(?P<streams>\d+))? seqs\), K \((?P<dtype>\w+)\)", _pool),
    Row("memory_breakdown_print",
        r"- \w+ \(.*\)\s*\|\s*(?P<total>\d+) =\s*(?P<free>\d+) \+ \(\s*\d+ =\s*(?P<model>\d+) "
        r"\+\s*(?P<context>\d+) \+\s*(?P<compute>\d+)\) \+\s*(?P<rest>-?\d+)", _breakdown),
)  # fmt: skip
