# ruff: noqa: E501  (samples are lines as programs print them)
"""TensorRT-LLM, Triton, TGI and LMDeploy: main figures and errors, on lines written from their sources."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.facts.engine import Concurrency, KvPool, MemoryBreakdown, Setting, WeightsLoaded
from loadpath.core.facts.placement import SidePool
from loadpath.core.text import Capture
from loadpath.core.units import gib, mib
from loadpath.engines import lmdeploy, registry, tensorrt_llm, tgi
from loadpath.intake.clean import clean


def capture(text: str) -> Capture:
    return Capture("log", "server.log", tuple(clean(text.encode())))


TRTLLM = """\
[TensorRT-LLM] TensorRT LLM version: 1.1.0
[01/05/2026-10:00:00] [TRT-LLM] [I] Using LLM with PyTorch backend
[01/05/2026-10:00:10] [TRT-LLM] [I] Use 15.00 GB for model weights.
Model init total -- 12.50s
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.25 GiB for max tokens in paged KV cache (2080).
[01/05/2026-10:00:24] [TRT-LLM] [I] max_seq_len=2048, max_num_requests=64, max_num_tokens=8192, max_batch_size=64
[01/05/2026-10:00:40] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 15.10 GiB
[01/05/2026-10:00:40] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 18.00 GiB, available KV cache memory when calculating max tokens: 55.00 GiB, fraction is set 0.9, kv size is 131072. device total memory 79.10 GiB, , tmp kv_mem 0.25 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 55.00 GiB for max tokens in paged KV cache (450560).
[01/05/2026-10:00:41] [TRT-LLM] [I] max_seq_len=2048, max_num_requests=64, max_num_tokens=8192, max_batch_size=64
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
"""


def test_trtllm_takes_the_last_pool() -> None:
    facts = list(tensorrt_llm.read(capture(TRTLLM)))
    assert [(p.tokens, p.bytes) for p in facts if isinstance(p, KvPool)] == [(450560, gib(55))]
    assert [(p.what, p.tokens) for p in facts if isinstance(p, SidePool)] == [("measuring", 2080)]
    assert [c.ratio for c in facts if isinstance(c, Concurrency)] == [220.0]
    assert [w.bytes for w in facts if isinstance(w, WeightsLoaded)] == [gib(15.1)]
    assert [b.kv_bytes for b in facts if isinstance(b, MemoryBreakdown)] == [gib(55)]
    assert read_text(TRTLLM).verdict.state == "healthy"


def test_trtllm_engine_backend() -> None:
    text = (
        "[TensorRT-LLM][INFO] Loaded engine size: 6800 MiB\n"
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 23.64 GiB, available: 15.00 GiB\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 13.50 GiB for max tokens in paged KV cache (110592).\n"
    )
    facts = list(tensorrt_llm.read(capture(text)))
    assert [w.bytes for w in facts if isinstance(w, WeightsLoaded)] == [mib(6800)]
    assert [p.tokens for p in facts if isinstance(p, KvPool)] == [110592]


TGI = """\
2025-04-14T10:00:00.000000Z  INFO text_generation_launcher: Args {
    model_id: "org/model-7b",
    num_shard: Some(
        2,
    ),
    quantize: None,
    max_total_tokens: Some(8192),
}
2025-04-14T10:00:05.000000Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0
2025-04-14T10:00:25.000000Z  INFO shard-manager: text_generation_launcher: Shard ready in 20.00s rank=0
2025-04-14T10:00:26.000000Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model
2025-04-14T10:00:30.000000Z  INFO text_generation_launcher: KV-cache blocks: 30000, size: 1
2025-04-14T10:00:31.000000Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: Setting max batch total tokens to 30000
"""
NOISE = (
    "2025-04-14T10:00:31.500000Z ERROR text_generation_router::server: router/src/server.rs:1672: Failed to import python tokenizer"
    " ModuleNotFoundError: No module named 'transformers'\n"
    "2025-04-14T10:00:32.000000Z  INFO text_generation_router::server: router/src/server.rs:2266: Connected\n"
)


def test_tgi_settings_and_pool() -> None:
    facts = list(tgi.read(capture(TGI)))
    assert {s.name: s.value for s in facts if isinstance(s, Setting)}["max-total-tokens"] == "8192"
    assert {p.tokens for p in facts if isinstance(p, KvPool)} == {30000}


def test_tgi_noise_is_no_fault() -> None:
    report = read_text(TGI + NOISE)
    assert report.verdict.state == "healthy"
    assert not [f.id for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("2025-04-14T10:00:05Z ERROR text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0\n"
         "2025-04-14T10:00:05Z ERROR text_generation_launcher: Shard 0 failed to start", "tgi-shard-killed"),
        ('Error: ArgumentValidation("`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: 2048 and 6000")', "tgi-arguments"),
        ("[TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (1 != 4)\n"
         "RuntimeError: Executor worker returned error", "trtllm-world-size"),
        ("Unable to initialize shared memory key 'triton_python_backend_shm_region_1' to requested size (67108864 bytes). If you are "
         "running Triton inside docker, use '--shm-size' flag\n"
         "E0101 10:00:00.000000 1 model_lifecycle.cc:638] failed to load 'pre' version 1: Internal: stub failed", "triton-shared-memory"),
        ("failed to start HTTP service: Unavailable - Socket '0.0.0.0:8000' already in use ", "triton-port-in-use"),
        ("[TM][ERROR] cache out of memory, no request can be admitted; failing head-of-line request", "lmdeploy-cache-full"),
    ],
)  # fmt: skip
def test_errors_lead_to_their_cause(text: str, root: str) -> None:
    assert read_text(text).root_cause == root


def test_lmdeploy_configuration() -> None:
    facts = list(
        lmdeploy.read(capture("pipe = pipeline('/m', backend_config=TurbomindEngineConfig(session_len=8192, tp=2))"))
    )
    assert {s.name: s.value for s in facts if isinstance(s, Setting)} == {"session-len": "8192", "tp": "2"}


@pytest.mark.parametrize(
    ("engine", "lever", "value", "flag"),
    [
        ("sglang", "kv-dtype", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("sglang", "memory-share", 0.8, "--mem-fraction-static 0.8"),
        ("llama.cpp", "context-length", 8192, "-c 8192"),
        ("llama.cpp", "kv-dtype", "fp8", "-fa on -ctk q8_0 -ctv q8_0"),
        ("llama.cpp", "memory-share", 0.9, ""),
        ("ollama", "context-length", 8192, "num_ctx 8192"),
        ("tensorrt-llm", "memory-share", 0.8, "--kv_cache_free_gpu_memory_fraction 0.8"),
        ("tgi", "tensor-parallel", 2, "--num-shard 2"),
        ("lmdeploy", "memory-share", 0.5, "--cache-max-entry-count 0.5"),
    ],
)
def test_levers_in_each_engines_words(engine: str, lever: str, value: object, flag: str) -> None:
    assert registry.flag(engine, lever, value) == flag
