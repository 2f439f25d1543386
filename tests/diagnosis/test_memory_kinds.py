"""Look-alikes of plain want of memory: whose it is, which buffer it was, and what the figures contradict."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None
    return report.root


def words(found: Finding) -> str:
    return " ".join([*(f"{r.action} {r.command}" for r in found.remedies)])


def test_a_pool_of_no_block_is_a_failed_start() -> None:
    text = (
        "INFO 03-03 08:00:05 worker.py:267] the current vLLM instance can use total_gpu_memory (16.00GiB) x gpu_memory_utilization "
        "(0.60) = 9.60GiB\n"
        "INFO 03-03 08:00:05 worker.py:267] model weights take 9.10GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak "
        "memory takes 1.25GiB; the rest of the memory reserved for KV Cache is -0.80GiB.\n"
        "INFO 03-03 08:00:05 executor_base.py:111] # cuda blocks: 0, # CPU blocks: 1024\n"
        "INFO 03-03 08:00:05 executor_base.py:116] Maximum concurrency for 8192 tokens per request: 0.00x\n"
    )
    report = read_text(text)
    assert report.verdict.state == "failed"
    found = root(text)
    assert found.id == "kv-no-room"
    assert "0.8" in found.cause or "819 MiB" in found.cause
    assert "--gpu-memory-utilization 0.95" in found.remedies[0].command


def test_an_implausible_graph_estimate_is_named() -> None:
    found = root(
        "(Worker_TP0 pid=7) INFO 09-01 10:00:00 [gpu_model_runner.py:6936] Estimated CUDA graph memory: 96.40 GiB total\n"
        "(EngineCore pid=6) ERROR 09-01 10:00:00 [core.py:1346] ValueError: No available memory for the cache blocks.\n"
    )
    assert "96.40 GiB" in found.title
    assert found.certainty == "likely"
    assert "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0" in found.remedies[0].command


def test_tgis_total_is_told_from_its_prefill() -> None:
    found = root(
        'INFO text_generation_launcher: Args { model_id: "/m", num_shard: Some(2), quantize: None, max_total_tokens: 2048, '
        "max_batch_total_tokens: 24000, port: 80 }\n"
        'Error: Warmup(Generation("Not enough memory to handle 24000 total tokens with 4 prefill tokens. You need to decrease '
        '`--max-batch-total-tokens` or `--max-batch-prefill-tokens`"))\n'
    )
    assert found.id == "tgi-kv-no-room"
    assert "24,000" in found.title
    assert "not below --max-total-tokens 2,048" in found.remedies[0].action
    assert "--num-shard 4" in words(found)


def test_sibling_ranks_are_not_to_be_ended() -> None:
    found = root(
        "[TRT-LLM] [RANK 1] [E] Error executing load_weights with args (): CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a "
        "total capacity of 23.64 GiB of which 30.25 MiB is free. Process 611 has 5.71 GiB memory in use. Process 612 has 5.80 GiB memory "
        "in use. Process 613 has 5.92 GiB memory in use. Including non-PyTorch memory, this process has 5.60 GiB memory in use. Of the "
        "allocated memory 5.20 GiB is allocated by PyTorch, and 11.00 MiB is reserved by PyTorch but unallocated.\n"
    )
    assert found.id == "gpu-oom-ranks-share-gpu"
    assert found.step == "weight-load"
    assert "kill" not in words(found)


def test_flashinfers_workspace_is_not_gpu_memory() -> None:
    found = root(
        "(EngineCore pid=3) ERROR 02-02 02:02:02 [core.py:866] RuntimeError: Error in function 'aligned_alloc': Buffer overflow when "
        "allocating memory for batch_prefill_tmp_v with size 536870912 and alignment 16, but only 413138944 bytes available in "
        "AlignedAllocator. Increase the workspace buffer size.\n"
    )
    assert (found.id, found.boundary) == ("flashinfer-workspace-too-small", "framework-engine")
    assert "394 MiB of it was left" in found.cause
    assert "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE=1073741824" in found.remedies[0].command


@pytest.mark.parametrize(
    ("frame", "boundary", "certainty"),
    [("    self.draft_worker = EAGLEWorker(\n", "framework-engine", "established"), ("", "memory-fit", "likely")],
)
def test_unbalanced_memory_under_a_draft_worker_is_the_servers_own(frame: str, boundary: str, certainty: str) -> None:
    found = root(
        "[2026-01-01 00:00:00 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "/sglang/srt/managers/scheduler.py", line 300, in __init__\n{frame}'
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=6.25, "
        "local_gpu_memory=9.50, local_gpu_memory * 0.9=8.55\n"
    )
    assert (found.boundary, found.certainty) == (boundary, certainty)
    assert "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1" in words(found)


def test_a_refusal_with_tokens_free_is_a_matter_of_pages() -> None:
    found = root(
        "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 900 tokens.\nAvailable tokens: 4096\n"
    )
    assert found.certainty == "likely"
    assert "900" in found.cause
    assert "4,096" in found.cause
    assert "--page-size" in words(found)


def test_ollamas_plan_without_a_layer_is_want_of_memory() -> None:
    report = read_text(
        "time=2026-01-01T00:00:00.000Z level=INFO source=server.go:168 msg=offload library=cuda layers.requested=-1 layers.model=29 "
        'layers.offload=0 layers.split="" memory.available="[2.1 GiB]" memory.required.full="1.9 GiB" memory.required.kv="112.0 MiB" '
        'memory.graph.full="420.0 MiB" memory.graph.partial="0.9 GiB" projector.weights="700.0 MiB" projector.graph="1.1 GiB"\n'
    )
    assert report.verdict.state == "degraded"
    found = report.root
    assert found is not None
    assert found.boundary == "memory-fit"
    assert "0 of 29 layers" in found.title
    assert "vision projector" in found.cause


def test_a_retry_that_fitted_is_no_fault() -> None:
    report = read_text(
        "1.02.500.011 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20480.00 MiB on device 2: cudaMalloc failed: out of memory\n"
        "1.02.500.018 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA2 buffer of size 21474836480\n"
        "1.02.500.040 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
        "1.03.100.130 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 32768, kv_unified = 'false'\n"
    )
    assert report.root is None
    assert report.verdict.state == "starting"
    assert "20.00 GiB" in report.findings[0].cause


def test_the_kv_cache_of_llama_cpp_is_told_from_its_weights() -> None:
    found = root(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12288.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 12884901888\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    assert found.id == "llama-kv-over-memory"


def test_a_pipeline_of_pictures_has_its_own_levers() -> None:
    found = root(
        "Traceback (most recent call last):\n"
        '  File "/env/diffusers/pipelines/wan/pipeline_wan.py", line 610, in __call__\n    video = self.vae.decode(latents)[0]\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.80 GiB. GPU 0 has a total capacity of 23.64 GiB of which 2.10 GiB "
        "is free.\n"
    )
    assert found.id == "gpu-oom-image-generation"
    assert "enable_tiling" in found.remedies[0].command


def test_the_notice_of_large_images_is_no_fault() -> None:
    report = read_text(
        "WARNING 05-05 05:05:05 profiling.py:184] The context length (32768) of the model is too short to hold the multi-modal embeddings "
        "in the worst case (49152 tokens in total, out of which {'image': 16384, 'video': 32768} are reserved).\n"
        "INFO 05-05 05:05:15 worker.py:266] Memory profiling takes 9.10 seconds\n"
    )
    assert report.root is None
    assert "49,152" in report.findings[0].title
