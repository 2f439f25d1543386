# ruff: noqa: E501  (samples are lines as programs print them)
"""llama.cpp's and Ollama's logs: our captures of the newest build, and lines of older eras written from the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import read_text, shared_file
from loadpath.core.facts.engine import KvPool, ServerReady, Setting, Stopped
from loadpath.core.facts.placement import BufferPlaced, BufferRefused, LayersOffloaded, OffloadPlan, SidePool
from loadpath.core.report import Report
from loadpath.core.text import Capture
from loadpath.core.units import gib, mib
from loadpath.engines import llama_cpp
from loadpath.engines.llama_cpp import ollama
from loadpath.intake.clean import clean
from loadpath.reading.service import read_bytes


def capture(text: str, kind: str = "llama-cpp-log") -> Capture:
    return Capture(kind, "server.log", tuple(clean(text.encode())))


def read_file(path: Path) -> Report:
    return read_bytes([(path.name, path.read_bytes())])


OLD = """\
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
  Device 1: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
build: 4100 (1234abcd) with gcc for x86_64-linux-gnu
llama_model_loader: loaded meta data with 30 key-value pairs and 723 tensors from /models/big.gguf (version GGUF V3 (latest))
llm_load_print_meta: model size       = 39.59 GiB (4.82 BPW)
llm_load_tensors: offloaded 81/81 layers to GPU
llm_load_tensors:      CUDA0 model buffer size = 19000.00 MiB
llm_load_tensors:      CUDA1 model buffer size = 19000.00 MiB
llama_new_context_with_model: n_ctx         = 32768
llama_new_context_with_model: flash_attn    = 0
llama_kv_cache_init:      CUDA0 KV buffer size =  5120.00 MiB
llama_kv_cache_init:      CUDA1 KV buffer size =  5120.00 MiB
llama_new_context_with_model: KV self size  = 10240.00 MiB, K (f16): 5120.00 MiB, V (f16): 5120.00 MiB
"""
SERVES = (
    "main: server is listening on http://127.0.0.1:8080 - starting the main loop\nsrv  update_slots: all slots are idle\n"
    * 2
)


def test_old_era_is_read_whole() -> None:
    facts = list(llama_cpp.read(capture(OLD + SERVES)))
    (pool,) = [f for f in facts if isinstance(f, KvPool)]
    assert (pool.bytes, pool.dtype) == (mib(10240), "f16")
    weights = [f for f in facts if isinstance(f, BufferPlaced) and f.part == "weights"]
    assert [(b.device, b.on_gpu) for b in weights] == [("CUDA0", True), ("CUDA1", True)]
    assert [(f.on_gpu, f.total) for f in facts if isinstance(f, LayersOffloaded)] == [(81, 81)]
    assert len([f for f in facts if isinstance(f, ServerReady)]) == 1


def test_window_cache_is_a_side_pool() -> None:
    text = (
        "llama_kv_cache: size =  640.00 MiB ( 16384 cells,   5 layers,  2/2 seqs), K (f16):  320.00 MiB, V (f16):  320.00 MiB\n"
        "llama_kv_cache: size =  600.00 MiB (  1536 cells,  25 layers,  2/2 seqs), K (f16):  300.00 MiB, V (f16):  300.00 MiB\n"
    )
    facts = list(llama_cpp.read(capture(text)))
    assert [f.tokens for f in facts if isinstance(f, KvPool)] == [32768]
    assert [(f.what, f.tokens) for f in facts if isinstance(f, SidePool)] == [("sliding", 3072)]


def test_a_failed_load_is_no_orderly_stop() -> None:
    text = "0.00.005.1 E srv  load_model: failed to load model, 'x.gguf'\nsrv    operator(): operator(): cleaning up before exit...\n"
    assert not [f for f in llama_cpp.read(capture(text)) if isinstance(f, Stopped)]


@pytest.mark.parametrize(
    ("lines", "part", "device"),
    [
        (["alloc_tensor_range: failed to allocate CUDA1 buffer of size 9437184000",
          "llama_model_load: error loading model: unable to allocate CUDA1 buffer"], "weights", "CUDA1"),
        (["llama_kv_cache_init: failed to allocate buffer for kv cache"], "kv", "CUDA1"),
        (["ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 9437184000",
          "graph_reserve: failed to allocate compute buffers"], "compute", "CUDA1"),
    ],
)  # fmt: skip
def test_what_a_refused_buffer_was_for(lines: list[str], part: str, device: str) -> None:
    first = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 1: cudaMalloc failed: out of memory"
    (refused,) = [f for f in llama_cpp.read(capture("\n".join([first, *lines]))) if isinstance(f, BufferRefused)]
    assert (refused.part, refused.device, refused.bytes) == (part, device, mib(9000))


@pytest.mark.parametrize(
    "name", ["good", "good-verbose", "embedded-good", "loading-503", "api-key", "bad-context-over-train"]
)
def test_good_captures_are_healthy(name: str) -> None:
    report = read_file(shared_file("captures", "llama-cpp", f"{name}.log"))
    assert report.verdict.state == "healthy"
    assert report.root_cause is None


@pytest.mark.parametrize(
    ("name", "root", "boundary", "step"),
    [
        ("bad-arch", "gguf-architecture-unknown", "framework-engine", "weight-load"),
        ("bad-flag", "llama-flag-unknown", "model-config", "process-start"),
        ("bad-kv-over-ram", "llama-kv-over-memory", "memory-fit", "kv-pool"),
        ("bad-no-file", "gguf-missing", "model-config", "weight-load"),
        ("bad-not-gguf", "gguf-not-gguf", "model-config", "weight-load"),
        ("bad-port-in-use", "llama-port-in-use", "host-limits", "http-server"),
        ("bad-truncated", "gguf-damaged", "model-config", "weight-load"),
    ],
)
def test_bad_captures(name: str, root: str, boundary: str, step: str) -> None:
    report = read_file(shared_file("captures", "llama-cpp", f"{name}.log"))
    assert report.verdict.state == "failed"
    assert report.root is not None
    assert (report.root_cause, report.root.boundary, report.root.step) == (root, boundary, step)
    assert [f.id for f in report.findings if f.severity == "error"] == [root]


def test_no_gpu_in_the_build_is_a_remark() -> None:
    report = read_file(shared_file("captures", "llama-cpp", "gpu-layers-no-gpu.log"))
    assert (report.root_cause, report.verdict.state) == ("llama-without-gpu-backend", "degraded")


def test_driver_too_old_runs_on_the_cpu() -> None:
    report = read_text(
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\n"
        "load_tensors: offloaded 0/33 layers to GPU\n" + SERVES
    )
    assert report.root is not None and report.root.boundary == "runtime-driver"
    assert report.verdict.state == "degraded"


OLLAMA = """\
time=2026-03-01T10:00:00.000Z level=INFO source=routes.go:1742 msg="server config" env="map[CUDA_VISIBLE_DEVICES: OLLAMA_CONTEXT_LENGTH:8192 OLLAMA_NUM_PARALLEL:2 OLLAMA_HOST:http://0.0.0.0:11434]"
time=2026-03-01T10:00:00.100Z level=INFO source=routes.go:1800 msg="Listening on [::]:11434 (version 0.17.1)"
time=2026-03-01T10:00:01.000Z level=INFO source=types.go:42 msg="inference compute" id=GPU-1 library=CUDA compute=8.9 name=CUDA0 description="NVIDIA L4" driver=12.8 type=discrete total="22.5 GiB" available="22.1 GiB"
time=2026-03-01T10:01:00.000Z level=INFO source=server.go:499 msg="loading model" "model layers"=49 requested=-1
time=2026-03-01T10:01:00.001Z level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="14.0 GiB"
time=2026-03-01T10:01:00.001Z level=INFO source=device.go:245 msg="model weights" device=CPU size="3.0 GiB"
time=2026-03-01T10:01:00.001Z level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="5.0 GiB"
time=2026-03-01T10:01:00.001Z level=INFO source=device.go:272 msg="total memory" size="24.0 GiB"
load_tensors: offloaded 41/49 layers to GPU
time=2026-03-01T10:01:09.000Z level=INFO source=server.go:1390 msg="llama runner started in 8.90 seconds"
"""


def test_ollama_settings_and_placement() -> None:
    facts = list(ollama.read(capture(OLLAMA, "ollama-log")))
    settings = {s.name: s.value for s in facts if isinstance(s, Setting)}
    assert settings["OLLAMA_CONTEXT_LENGTH"] == "8192" and settings["OLLAMA_NUM_PARALLEL"] == "2"
    on_host = [b for b in facts if isinstance(b, BufferPlaced) and not b.on_gpu]
    assert [(b.part, b.bytes, b.planned) for b in on_host] == [("weights", gib(3), True)]
    assert [p.full_bytes for p in facts if isinstance(p, OffloadPlan)] == [gib(24)]


def test_partial_offload_is_slow_not_broken() -> None:
    report = read_text(OLLAMA)
    assert report.verdict.state == "degraded"
    root = report.root
    assert root is not None and (root.id, root.boundary, root.severity) == ("partial-offload", "performance", "warning")
    assert "41 of 49 layers" in root.cause and "3.00 GiB of weights" in root.cause


def test_old_estimate_is_only_likely() -> None:
    report = read_text(
        'time=2025-02-01T10:00:00.000Z level=INFO source=memory.go:356 msg="offload to cuda" layers.requested=-1 layers.model=41 '
        'layers.offload=22 memory.available="[7.1 GiB]" memory.required.full="12.6 GiB" memory.required.partial="7.0 GiB" '
        'memory.required.kv="8.0 GiB"\n'
        'time=2025-02-01T10:00:01.000Z level=INFO source=server.go:376 msg="starting llama server" '
        'cmd="/usr/bin/ollama runner --model /blobs/sha256-1 --ctx-size 32768 --n-gpu-layers 22"\n'
    )
    root = report.root
    assert root is not None and (root.id, root.certainty) == ("partial-offload", "likely")
    assert root.remedies[0].command == "num_ctx 9216"  # 5.5 GiB are missing, and the cache of 32,768 tokens takes 8


def test_probes_are_no_restarts() -> None:
    probes = 'time=2026-03-01T10:02:00.000Z level=INFO source=server.go:432 msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --port 4000"\n'
    report = read_text(OLLAMA + probes * 12)
    assert [c.run for c in report.captures] == [1]
