"""A plan as llama-server prints it, in the lines of its build; refusals of the allocator included."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadpath.core.units import MIB
from loadpath.engines.llama_cpp.planning import builds
from loadpath.engines.llama_cpp.planning.options import Options
from loadpath.engines.llama_cpp.planning.placement import Fitted, Load, Use


class Start(msgspec.Struct, frozen=True):
    """Everything that the lines state. `refused`: (GPU, part) of the first buffer that finds no room."""

    model: str
    architecture: str
    file_type: str
    file_bytes: int
    parameters: int
    trained: int
    cards: tuple[tuple[str, str, int, int], ...]
    """Name, capability, total and free bytes of each GPU."""
    options: Options
    fitted: Fitted
    refused: tuple[int, str] | None = None


def _mib(size: float) -> str:
    return f"{size / MIB:8.2f} MiB"


def lines(start: Start) -> tuple[str, ...]:
    stamp = start.options.build >= builds.TIMED_LINES
    return tuple(f"0.00.000.000 {_level(line)} {line}" if stamp else line for line in _lines(start))


def _level(line: str) -> str:
    return "E" if "fail" in line or "unable to" in line or "error" in line else "I"


def _lines(start: Start) -> Iterator[str]:
    o = start.options
    if o.build < builds.TIMED_LINES:
        yield f"build: {o.build} (0000000) with cc for x86_64-linux-gnu"
    else:
        yield f"cmn  common_param: common_params_print_info: build {o.build} (0000000) with cc for x86_64-linux-gnu"
        yield "cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N` CLI arg)"
    yield from _devices(start)
    yield f"srv    load_model: loading model '{start.model}'"
    if o.fit and o.build >= builds.FIT and start.cards:
        yield from _fit(start)
    for index, (name, _, _, free) in enumerate(start.cards):
        yield f"llama_model_load_from_file_impl: using device CUDA{index} ({name}) - {free // MIB} MiB free"
    yield f"print_info: file type   = {start.file_type}"
    yield f"print_info: file size   = {start.file_bytes / 2**30:.2f} GiB ({_bits(start):.2f} BPW)"
    yield f"print_info: arch                  = {start.architecture}"
    yield f"print_info: n_ctx_train           = {start.trained}"
    yield f"print_info: model params          = {start.parameters / 1e9:.2f} B"
    yield from _tensors(start)
    if start.refused and start.refused[1] == "weights":
        return
    yield from _context(start)


def _bits(start: Start) -> float:
    return start.file_bytes * 8 / start.parameters if start.parameters else 0.0


def _devices(start: Start) -> Iterator[str]:
    if not start.cards:
        return
    many = start.options.build >= builds.FIT
    total = sum(card[2] for card in start.cards) // MIB
    yield f"ggml_cuda_init: found {len(start.cards)} CUDA devices" + (f" (Total VRAM: {total} MiB):" if many else ":")
    for index, (name, capability, size, _) in enumerate(start.cards):
        memory = f", VRAM: {size // MIB} MiB" if many else ""
        yield f"  Device {index}: {name}, compute capability {capability}, VMM: yes{memory}"


def _fit(start: Start) -> Iterator[str]:
    """The fit step's account of the settings first tried, and what it changed."""
    o, first, chosen = start.options, start.fitted.first, start.fitted.load
    name = "common_params_fit_impl" if o.build >= builds.TIMED_LINES else "llama_params_fit_impl"
    used, free = sum(use.total for use in first.gpus), sum(card[3] for card in start.cards)
    margin = o.fit_margin // MIB
    yield f"{name}: projected to use {used // MIB} MiB of device memory vs. {free // MIB} MiB of free device memory"
    short = [use.total + o.fit_margin - card[3] for use, card in zip(first.gpus, start.cards, strict=False)]
    if max(short, default=0) <= 0:
        yield f"{name}: will leave {(free - used) // MIB} >= {margin} MiB of free device memory, no changes needed"
    else:
        missing = sum(max(0, size) for size in short) // MIB
        yield (f"{name}: cannot meet free memory target of {margin} MiB, need to reduce device memory by {missing} MiB")
        if start.fitted.reduced:
            saved = used - sum(use.total for use in chosen.gpus)
            yield (
                f"{name}: context size reduced from {first.caches.context} to {chosen.caches.context} -> need "
                f"{saved // MIB} MiB less memory in total"
            )
        elif o.context_given:
            yield f"{name}: context size set by user to {o.context} -> no change"
    done = name.removesuffix("_impl").replace("common_params_fit", "common_fit_params")
    if max(short, default=0) > 0 and chosen is first:
        reason = "n_gpu_layers already set by user to " + f"{o.layers}, abort" if o.layers is not None else "abort"
        yield f"{done}: failed to fit params to free device memory: {reason}"
    else:
        yield f"{done}: successfully fit params to free device memory"


def _tensors(start: Start) -> Iterator[str]:
    o, load = start.options, start.fitted.load
    mode = "load_mode = mmap" if o.build >= builds.TIMED_LINES else f"mmap = {str(o.map_file).lower()}"
    yield f"load_tensors: loading model tensors, this can take a while... ({mode})"
    total = len(load.caches.layer_bytes) + 1
    if start.cards:
        on_gpu = load.placement.on_gpu
        if on_gpu:
            yield f"load_tensors: offloading {min(on_gpu, total - 1)} repeating layers to GPU"
        yield f"load_tensors: offloaded {on_gpu}/{total} layers to GPU"
    if load.mapped:
        host = "CPU_Mapped" if o.map_file else "CUDA_Host" if start.cards else "CPU"
        yield f"load_tensors: {host:>12} model buffer size = {_mib(load.mapped)}"
    for device, use in enumerate(load.gpus):
        if start.refused == (device, "weights"):
            yield from _refusal(device, use.weights)
            yield f"llama_model_load: error loading model: unable to allocate CUDA{device} buffer"
            yield "llama_model_load_from_file_impl: failed to load model"
            yield "main: exiting due to model loading error"
            return
        if use.weights:
            yield f"load_tensors: {f'CUDA{device}':>12} model buffer size = {_mib(use.weights)}"


def _context(start: Start) -> Iterator[str]:
    o, load = start.options, start.fitted.load
    kept = load.caches
    per_slot = "n_ctx_seq    " if o.build >= builds.FIT else "n_ctx_per_seq"
    for name, value in (
        ("n_seq_max    ", o.slots), ("n_ctx        ", kept.context), (per_slot, kept.slot_context),
        ("n_batch      ", min(o.batch, kept.context)), ("n_ubatch     ", o.ubatch),
        ("flash_attn   ", "enabled" if o.flash else "disabled"), ("kv_unified   ", str(o.unified).lower()),
    ):  # fmt: skip
        yield f"llama_context: {name} = {value}"
    for device, use in (*enumerate(load.gpus), (-1, load.host)):
        if start.refused == (device, "kv"):
            yield from _refusal(device, use.cache + use.state)
            yield "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"
            yield from _given_up(start)
            return
        yield from _cache(device, use)
    yield from _totals(start, load)
    for device, use in (*enumerate(load.gpus), (-1, load.host)):
        if start.refused == (device, "compute"):
            yield from _refusal(device, use.compute, "ggml_gallocr_reserve_n")
            yield "graph_reserve: failed to allocate compute buffers"
            yield "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers"
            yield from _given_up(start)
            return
        if use.compute:
            prefix = "sched_reserve" if o.build >= builds.FIT else "llama_context"
            name = f"CUDA{device}" if device >= 0 else "CUDA_Host" if start.cards else "CPU"
            yield f"{prefix}: {name:>10} compute buffer size = {_mib(use.compute)}"
    if start.refused and start.refused[1] == "pass":
        yield "common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)"
        yield "CUDA error: out of memory"
        yield f"  current device: {start.refused[0]}, in function alloc at ggml-cuda/ggml-cuda.cu:1"
        yield "  cuMemCreate(&handle, reserve_size, &prop, 0)"


def _cache(device: int, use: Use) -> Iterator[str]:
    name = f"CUDA{device}" if device >= 0 else "CPU"
    if use.cache:
        yield f"llama_kv_cache: {name:>10} KV buffer size = {_mib(use.cache)}"
    if use.state:
        yield f"llama_memory_recurrent: {name:>10} RS buffer size = {_mib(use.state)}"


def _totals(start: Start, load: Load) -> Iterator[str]:
    o, kept = start.options, load.caches
    for part in (kept.full, kept.window):
        if part is not None and part[1]:
            cells, layers, keys, values = part
            yield (
                f"llama_kv_cache: size = {(keys + values) / MIB:7.2f} MiB ({cells:6d} cells, {layers:3d} layers, "
                f"{o.slots:2d}/{kept.streams} seqs), K ({o.key_type}): {keys / MIB:7.2f} MiB, "
                f"V ({o.value_type}): {values / MIB:7.2f} MiB"
            )


def _refusal(device: int, size: int, function: str = "alloc_tensor_range") -> Iterator[str]:
    yield (
        f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {size / MIB:.2f} MiB on device {device}: "
        "cudaMalloc failed: out of memory"
    )
    yield f"{function}: failed to allocate CUDA{device} buffer of size {size}"


def _given_up(start: Start) -> Iterator[str]:
    yield f"common_init_from_params: failed to create context with model '{start.model}'"
    yield f"srv    load_model: failed to load model, '{start.model}'"
    yield "main: exiting due to model loading error"
