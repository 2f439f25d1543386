"""The lines of every era give the same facts."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import read_text
from loadpath.core.report import Report
from loadpath.core.units import gib


def facts(report: Report, kind: str) -> list[dict[str, Any]]:
    return [fact for fact in report.facts if fact["type"] == kind]


def only(text: str, kind: str) -> dict[str, Any]:
    found = facts(read_text(text), kind)
    assert len(found) == 1, f"{kind}: {found}"
    return found[0]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("INFO 05-20 10:00:00 api_server.py:151] vLLM API server version 0.4.3", "0.4.3"),
        ("INFO 03-19 06:27:09 api_server.py:528] vLLM API server version 0.6.3.post1", "0.6.3.post1"),
        ("(APIServer pid=7) INFO 09-10 23:26:12 [api_server.py:1805] vLLM API server version 0.10.1.1", "0.10.1.1"),
        ("(APIServer pid=7) INFO 11-30 01:20:02 [api_utils.py:347]  ▄▄ ▄█ █     █ ▀▄▀ █  version 0.32.0", "0.32.0"),
        ("INFO 02-03 04:05:06 llm_engine.py:98] Initializing an LLM engine (v0.4.3) with config: model='m'", "0.4.3"),
        ("INFO [core.py:71] Initializing a V1 LLM engine (v0.10.0) with config: model='m', dtype=torch.half", "0.10.0"),
        ("INFO [core.py:1] Initializing a V1 LLM engine (v0.13.0+faa43dbf.nv26.01) with config: model='m'",
         "0.13.0+faa43dbf.nv26.01"),
    ],
)  # fmt: skip
def test_version(line: str, version: str) -> None:
    assert only(line, "EngineStarted")["version"] == version


@pytest.mark.parametrize(
    ("line", "size", "seconds"),
    [
        ("INFO 03-19 06:35:16 model_runner.py:1067] Loading model weights took 15.3916 GB", 15.3916, None),
        ("INFO [gpu_model_runner.py:1276] Model loading took 7.1217 GB and 6.543210 seconds", 7.1217, 6.54321),
        ("INFO [gpu_model_runner.py:1892] Model loading took 27.6656 GiB and 119.554644 seconds", 27.6656, 119.554644),
        ("INFO [gpu_model_runner.py:4338] Model loading took 5.79 GiB memory and 2.564047 seconds", 5.79, 2.564047),
        (
            "(Worker_TP1 pid=9) INFO [gpu_model_runner.py:9] Model loading took 51.4 GiB memory and 9.5 seconds",
            51.4,
            9.5,
        ),
    ],
)
def test_weights_are_gib_whatever_they_are_called(line: str, size: float, seconds: float | None) -> None:
    fact = only(line, "WeightsLoaded")
    assert fact["bytes"] == gib(size)
    assert fact["seconds"] == seconds


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("(VllmWorker rank=3 pid=40) ", 3),
        ("(VllmWorker TP2 pid=40) ", 2),
        ("(Worker_TP5 pid=40) ", 5),
        ("(Worker_DP1_TP1_EP3 pid=40) ", 1),
        ("(EngineCore_DP0 pid=40) ", None),
        ("", None),
    ],
)
def test_rank_is_told_by_the_prefix(prefix: str, rank: int | None) -> None:
    line = f"{prefix}INFO 08-16 02:06:31 [gpu_model_runner.py:1892] Model loading took 1.5 GiB and 2.0 seconds"
    assert only(line, "WeightsLoaded")["rank"] == rank


def test_v0_profile_in_three_lines() -> None:
    report = read_text(
        "INFO 11-04 22:02:48 worker.py:267] Memory profiling takes 4.16 seconds\n"
        "INFO 11-04 22:02:48 worker.py:267] the current vLLM instance can use total_gpu_memory (79.25GiB) x "
        "gpu_memory_utilization (0.90) = 71.33GiB\n"
        "INFO 11-04 22:02:48 worker.py:267] model weights take 15.63GiB; non_torch_memory takes 0.09GiB; PyTorch "
        "activation peak memory takes 1.98GiB; the rest of the memory reserved for KV Cache is 53.63GiB.\n"
        "INFO 11-04 22:02:48 executor_base.py:111] # cuda blocks: 62766, # CPU blocks: 4681\n"
        "INFO 11-04 22:02:48 executor_base.py:116] Maximum concurrency for 128000 tokens per request: 7.85x\n"
    )
    ledger = report.memory[0]
    assert (ledger.total_bytes, ledger.budget_bytes, ledger.utilisation) == (gib(79.25), gib(71.33), 0.9)
    parts = {part.name: part.bytes for part in ledger.parts}
    assert parts == {
        "weights": gib(15.63), "non-torch": gib(0.09), "activation peak": gib(1.98), "KV cache": gib(53.63),
    }  # fmt: skip
    pool = facts(report, "KvPool")[0]
    assert (pool["blocks"], pool["tokens"], pool["derived"]) == (62766, 62766 * 16, False)
    assert facts(report, "Concurrency")[0]["ratio"] == 7.85


def test_v0_profile_in_one_line() -> None:
    fact = only(
        "INFO 12-01 [worker.py:232] Memory profiling results: total_gpu_memory=23.64GiB initial_memory_usage=0.31GiB "
        "peak_torch_memory=16.50GiB memory_usage_post_profile=0.35GiB non_torch_memory=0.33GiB kv_cache_size=4.44GiB "
        "gpu_memory_utilization=0.90",
        "MemoryBreakdown",
    )
    assert (fact["total_bytes"], fact["kv_bytes"], fact["utilisation"]) == (gib(23.64), gib(4.44), 0.9)


def test_advice_line_is_a_whole_breakdown() -> None:
    fact = only(
        "INFO [gpu_worker.py:390] Free memory on device (92.1/95.0 GiB) on startup. Desired GPU memory utilization is "
        "(0.9, 85.5 GiB). Actual usage is 27.31 GiB for weight, 4.41 GiB for peak activation, 0.89 GiB for non-torch "
        "memory, and 0.62 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with --kv-cache-memory="
        "56900000000 (52.99 GiB) to fit into requested memory, or --kv-cache-memory=63000000000 (58.67 GiB) to fully "
        "utilize gpu memory. Current kv cache memory in use is 52.89 GiB.",
        "MemoryBreakdown",
    )
    assert fact["weights_bytes"] == gib(27.31)
    assert fact["activation_bytes"] == gib(4.41)
    assert fact["non_torch_bytes"] == gib(0.89)
    assert fact["graph_bytes"] == gib(0.62)
    assert fact["kv_bytes"] == gib(52.89)


@pytest.mark.parametrize(
    ("version", "line", "derived"),
    [
        ("0.17.1", "GPU KV cache size: 429,328 tokens", False),
        ("0.20.0", "GPU KV cache size: 429,328 tokens", False),
        ("0.20.1", "GPU KV cache size: 429,328 tokens", True),
        (
            "0.28.0",
            "GPU KV cache size: 429,328 tokens, Maximum concurrency for 4,096 tokens per request: 104.82x",
            True,
        ),
        (
            "0.32.0",
            "CPU KV cache size: 429,328 tokens, Maximum concurrency for 4,096 tokens per request: 104.82x",
            True,
        ),
    ],
)
def test_token_figure_is_derived_from_0_20_1(version: str, line: str, derived: bool) -> None:
    report = read_text(
        f"INFO [core.py:1] Initializing a V1 LLM engine (v{version}) with config: model='m'\n"
        f"INFO 03-09 09:32:20 [kv_cache_utils.py:1314] {line}"
    )
    pool = facts(report, "KvPool")[0]
    assert (pool["tokens"], pool["derived"]) == (429328, derived)


@pytest.mark.parametrize(
    ("line", "count", "seconds", "size"),
    [
        ("INFO 03-19 model_runner.py:1523] Graph capturing finished in 28 secs.", None, 28, None),
        ("INFO [model_runner.py:1562] Graph capturing finished in 15 secs, took 0.37 GiB", None, 15, 0.37),
        ("INFO [gpu_model_runner.py:9] Graph capturing finished in 4 secs, took -0.41 GiB", None, 4, -0.41),
        ("Capturing CUDA graph shapes: 100%|██████████| 35/35 [00:47<00:00,  1.34s/it]\n"
         "INFO [gpu_model_runner.py:9] Graph capturing finished in 47 secs, took 0.62 GiB", 35, 47, 0.62),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|█| 51/51 [00:01<00:00, 30.37it/s]\n"
         "Capturing CUDA graphs (decode, FULL): 100%|█| 35/35 [00:01<00:00, 29.7it/s]\n"
         "INFO [gpu_model_runner.py:9] Graph capturing finished in 3 secs, took 0.51 GiB", 86, 3, 0.51),
    ],
)  # fmt: skip
def test_graph_capture(line: str, count: int | None, seconds: float, size: float | None) -> None:
    fact = only(line, "GraphsCaptured")
    assert (fact["count"], fact["seconds"]) == (count, seconds)
    assert fact["bytes"] == (None if size is None else gib(size))


def test_init_time_in_both_spellings() -> None:
    old = "INFO [core.py:172] init engine (profile, create kv cache, warmup model) took 94.22 seconds"
    new = "INFO [core.py:302] init engine (profile, create kv cache, warmup model) took 6.78 s (compilation: 4.27 s)"
    assert only(old, "InitTook")["seconds"] == 94.22
    assert only(new, "InitTook")["compile_seconds"] == 4.27


def test_stats_line_of_both_engines() -> None:
    v0 = only(
        "INFO 11-04 22:04:00 metrics.py:455] Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 88.0 "
        "tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 41.5%, CPU KV cache usage: "
        "0.0%.",
        "ServingStats",
    )
    assert (v0["running"], v0["waiting"], v0["kv_usage"]) == (3, 2, 0.415)
    v1 = only(
        "(APIServer pid=1) INFO 03-17 15:38:10 [loggers.py:259] Engine 000: Avg prompt throughput: 998.2 tokens/s, Avg "
        "generation throughput: 18.1 tokens/s, Running: 10 reqs, Waiting: 90 reqs, Deferred: 4 reqs, Preemptions: 7, "
        "GPU KV cache usage: 19.3%, Prefix cache hit rate: 12.0%",
        "ServingStats",
    )
    assert (v1["waiting"], v1["preemptions"], v1["prefix_hit_rate"]) == (90, 7, 0.12)


def test_settings_of_every_dump() -> None:
    namespace = read_text(
        "INFO api_server.py:529] args: Namespace(host=None, port=9210, api_key='secret', model='org/m', "
        "tensor_parallel_size=2, max_model_len=4096, gpu_memory_utilization=0.85, enforce_eager=False)"
    )
    settings = {f["name"]: f["value"] for f in facts(namespace, "Setting")}
    assert settings["tensor-parallel-size"] == "2"
    assert settings["max-model-len"] == "4096"
    assert settings["gpu-memory-utilization"] == "0.85"
    assert "api-key" not in settings
    given = read_text("(APIServer pid=1) INFO [utils.py:328] non-default args: {'model': 'org/m', 'max_num_seqs': 64}")
    assert {f["name"]: f["value"] for f in facts(given, "Setting")} == {"model": "org/m", "max-num-seqs": "64"}
    config = read_text(
        "INFO [core.py:71] Initializing a V1 LLM engine (v0.10.0) with config: model='org/m', dtype=torch.bfloat16, "
        "max_seq_len=32768, tensor_parallel_size=4, quantization=fp8, enforce_eager=False, kv_cache_dtype=auto"
    )
    settings = {f["name"]: f["value"] for f in facts(config, "Setting")}
    assert (settings["max-model-len"], settings["quantization"], settings["dtype"]) == ("32768", "fp8", "bfloat16")


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: 8.11 GiB",
        "GPU KV cache size: 178,880 tokens",
        "# GPU blocks: 1952, # CPU blocks: 2048",
        "Maximum concurrency for 20000 tokens per request: 1.56x",
        "Model loading took 7.1217 GiB and 198.94 seconds",
    ],
)
def test_a_single_pasted_line_is_enough(line: str) -> None:
    report = read_text(line)
    assert [capture.kind for capture in report.captures] == ["vllm-log"]
    assert any(f["type"] in ("MemoryBreakdown", "KvPool", "Concurrency", "WeightsLoaded") for f in report.facts)
