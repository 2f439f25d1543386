"""Every engine by name: what gives its logs away, and the package that knows it.

An engine's package (or module) has

    starts_run(line: Line) -> bool                  # does a new start of the server begin with this line?
    read(capture: Capture) -> Iterable[Fact]        # one run's lines → facts
    flag(lever: str, value: object) -> str          # this engine's own spelling of a lever, see `levers`
    plan(deployment: Deployment) -> Plan            # its memory model, where there is one

and is imported only when one of its sniffs is in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Protocol, cast

import msgspec

from loadpath.core.extensions import extensions
from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line


class EngineEntry(msgspec.Struct, frozen=True):
    """`sniffs`: literals (any case) that only this engine's logs contain. `carries`: engines whose lines this one's
    logs hold as well, because it runs them inside: they are not looked for beside it."""

    engine: str
    kind: str
    module: str
    sniffs: tuple[str, ...]
    carries: tuple[str, ...] = ()
    package: str = "loadpath.engines"


class EngineModule(Protocol):
    starts_run: Callable[[Line], bool]
    read: Callable[[Capture], Iterable[Fact]]
    flag: Callable[[str, object], str]


ENGINES: tuple[EngineEntry, ...] = (
    EngineEntry(
        "sglang", "sglang-log", "sglang",
        ("sglang/srt/", "sglang.srt", "sglang.launch_server", "sglang serve", "sgl_kernel", "mem-fraction-static",
         "mem_fraction_static", "load weight begin.", "load weight end.", "memory pool end.", "capture cuda graph ",
         "server is fired up", "max_total_num_tokens=", "kv cache is allocated. ", "alloc_req_slots",
         "token_to_kv_pool", "prefill out of memory. try to lower", "decode out of memory. try to lower",
         "retract requests. #retracted", "scheduler hit an exception", "modelworkerclient hit an exception",
         "received sigquit from a child", "decode batch. #", "decode batch, #", "prefill batch. #", "prefill batch, #",
         "watchdog timeout (self.watchdog_timeout", "sglang::", "kvtransfererror", "transfer failed for request rank="),
    ),
    EngineEntry(
        "ollama", "ollama-log", "llama_cpp.ollama",
        ("source=routes.go", "source=server.go", "source=sched.go", "source=gpu.go", "source=runner.go",
         "source=ggml.go", "source=types.go", "source=memory.go", "source=device.go", "source=images.go",
         "source=download.go", "source=llama_server.go", "source=backend.go", "source=amd_linux.go",
         "source=cuda_common.go", "source=payload_common.go", "cuda_compat.go", "[gin]",
         "ollama_host", "ollama_debug", "ollama_context", "ollama_num", "ollama serve", "ollama run",
         "/ollama/", "\\ollama\\",
         "ollama[", "llama runner process", "llama runner started", "llama-server process has", "inference compute",
         "llama-server gpu discovery", "model requires more system memory"),
        carries=("llama.cpp",),
    ),
    EngineEntry(
        "llama.cpp", "llama-cpp-log", "llama_cpp",
        ("llama_model_load", "llm_load_", "load_tensors:", "print_info:", "llama_context:", "llama_new_context",
         "llama_kv_cache", "llama_init_from", "llama_params_fit", "common_fit_params", "common_init_from_params",
         "llama_server:", "llama-server", "gguf_init", "ggml_cuda", "ggml-cuda.cu", "ggml_backend", "ggml_gallocr",
         "ggml_init_cublas", "ggml_assert(", "ggml_vulkan", "ggml_metal", "srv    load_model", "srv  update_slots",
         "srv         start", "llama_decode", "--gpu-layers option", "alloc_tensor_range"),
    ),
    EngineEntry(
        "triton-server", "triton-log", "tensorrt_llm.triton_server",
        ("tritonserver", "triton inference server", "model_lifecycle.cc", "model_repository_manager.cc", "server.cc:",
         "backend_model_instance.cc", "pb_stub", "triton python backend", "tensorrtllm_backend", "model_config_utils.cc",
         "failed to create instance: ", "modelinstancestate", "config.pbtxt"),
        carries=("tensorrt-llm",),
    ),
    EngineEntry(
        "tensorrt-llm", "tensorrt-llm-log", "tensorrt_llm",
        ("[tensorrt-llm]", "[trt-llm", "trtllm-serve", "tensorrt_llm/", "max_tokens_in_paged_kv_cache",
         "maxtokensinpagedkvcache", "kv_cache_free_gpu_mem"),
    ),
    EngineEntry(
        "tgi", "tgi-log", "tgi",
        ("text_generation_launcher", "text_generation_router", "text_generation_server", "text-generation-launcher",
         "text_generation_client", "text-generation-inference", "warmup(generation(", "warmup(notenoughmemory"),
    ),
    EngineEntry(
        "lmdeploy", "lmdeploy-log", "lmdeploy",
        ("lmdeploy", "[tm][", "turbomind"),
    ),
    EngineEntry(
        "vllm", "vllm-log", "vllm",
        ("vllm", "mqllmengine", "enginecore", "[core.py:", "model_executor/", "gpu_model_runner", "kv_cache_utils",
         "multiproc_executor", "kv cache size:", "available kv cache memory",
         "maximum concurrency for ", "# gpu blocks:", "# cuda blocks:",
         "loading model weights took", "model loading took", "init engine (profile", "graph capturing finished in",
         "shared memory broadcast block", "bytecode transform time", "max seq len (", "for the cache blocks",
         "desired gpu memory utilization", "workerproc ", "worker proc ", "worker_tp", "capturing cuda graph shapes",
         "capturing cuda graphs (", "native fp8 kernels unavailable", "leveraging the marlin kernel", "non_torch_memory takes",
         "avg prompt throughput", "kv cache usage:", "apiserver pid=", "gpu_worker.py", "default_loader.py",
         "total_num_cumulative_preemption", "using max model len", "resolved architecture:", "non-default args:",
         "specdecoding metrics", "cache_config_info", "mamba page size", "memory profiling takes", "failed core proc(s)",
         "failed to load model - not enough gpu",
         "memory profiling results", "llm engine (v", "args: namespace(", "gpu_memory_utilization ("),
    ),
)  # fmt: skip


def load(entry: EngineEntry) -> EngineModule:
    return cast(EngineModule, import_module(f"{entry.package}.{entry.module}" if entry.package else entry.module))


@cache
def known() -> tuple[EngineEntry, ...]:
    """Ours and those of other packages (entry points of the group `loadpath.engines`: an EngineEntry each)."""
    return ENGINES + tuple(extensions("loadpath.engines"))


def present(text_lower: str) -> list[EngineEntry]:
    """The engines, one of whose sniffs is in the (lower-cased) text."""
    found = [entry for entry in known() if any(s.lower() in text_lower for s in entry.sniffs)]
    carried = {engine for entry in found for engine in entry.carries}
    return [entry for entry in found if entry.engine not in carried]


def by_engine(engine: str | None) -> EngineEntry | None:
    return next((entry for entry in known() if entry.engine == engine), None)


def by_kind(kind: str) -> EngineEntry | None:
    return next((entry for entry in known() if entry.kind == kind), None)


def flag(engine: str | None, lever: str, value: object) -> str:
    """`lever` set to `value` in the engine's own flags; "" where the engine is unknown or has no such flag.

    Levers: `context-length`, `memory-share`, `kv-dtype`, `batched-tokens`, `sequences`, `eager`, `tensor-parallel`,
    `pipeline-parallel`, `quantisation`, `attention-backend`, `chunked-prefill`, `cpu-offload`, `gpu-layers`,
    `moe-on-cpu`, `dtype`, `graph-sizes`, `kv-bytes`, `trust-remote-code`, `disable-custom-all-reduce`.
    """
    entry = by_engine(engine)
    return load(entry).flag(lever, value) if entry else ""
