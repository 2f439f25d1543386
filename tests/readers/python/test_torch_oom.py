"""Out-of-memory messages of every era and allocator → figures."""

from __future__ import annotations

import pytest

from loadpath.core.facts.errors import OutOfMemory
from loadpath.core.text import Capture
from loadpath.core.units import GIB, MIB
from loadpath.intake.clean import clean
from loadpath.readers.python import torch_oom


def read(text: str) -> list[OutOfMemory]:
    return list(torch_oom.read(Capture("log", "paste", tuple(clean(text.encode())))))


def only(text: str) -> OutOfMemory:
    facts = read(text)
    assert len(facts) == 1, facts
    return facts[0]


HEAD = "CUDA out of memory. Tried to allocate 1.50 GiB"
ERAS = {
    "1.2": f"RuntimeError: {HEAD} (GPU 1; 15.75 GiB total capacity; 13.20 GiB already allocated; 512.00 MiB free; 70.00 MiB cached)",
    "1.9": f"RuntimeError: {HEAD} (GPU 1; 15.75 GiB total capacity; 13.20 GiB already allocated; 512.00 MiB free; "
    "13.27 GiB reserved in total by PyTorch)",
    "2.1": f"torch.cuda.OutOfMemoryError: {HEAD}. GPU 1 has a total capacty of 15.75 GiB of which 512.00 MiB is free. "
    "Including non-PyTorch memory, this process has 15.24 GiB memory in use. Of the allocated memory 13.20 GiB is "
    "allocated by PyTorch, and 70.00 MiB is reserved by PyTorch but unallocated.",
    "2.6": f"torch.OutOfMemoryError: {HEAD}. GPU 1 has a total capacity of 15.75 GiB of which 512.00 MiB is free. "
    "Process 31 has 15.24 GiB memory in use. Of the allocated memory 13.20 GiB is allocated by PyTorch, with 24.00 MiB "
    "allocated in private pools (e.g., CUDA Graphs), and 70.00 MiB is reserved by PyTorch but unallocated.",
}


@pytest.mark.parametrize("era", ERAS)
def test_every_era_gives_the_same_figures(era: str) -> None:
    fact = only(ERAS[era])
    assert (fact.requested_bytes, fact.gpu) == (1.5 * GIB, 1)
    assert fact.total_bytes == pytest.approx(15.75 * GIB)
    assert fact.free_bytes == 512 * MIB
    assert fact.allocated_bytes == pytest.approx(13.2 * GIB, rel=1e-6)
    assert not fact.cut
    if era != "1.2":
        assert fact.reserved_unallocated_bytes == pytest.approx(70 * MIB, abs=2 * MIB)


def test_processes_limits_and_pools() -> None:
    fact = only(ERAS["2.6"])
    assert fact.others == ((31, round(15.24 * GIB)),)
    assert fact.private_pool_bytes == 24 * MIB
    limited = only(f"{HEAD}. GPU 0 has a total capacity of 79.10 GiB of which 2.00 GiB is free. 75.15 GiB allowed; Of the "
                   "allocated memory 74.90 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.")  # fmt: skip
    assert limited.limit_bytes == round(75.15 * GIB)


def test_cut_title_without_a_unit_is_read_as_mib() -> None:
    fact = only(f"torch.OutOfMemoryError: {HEAD}. GPU 0 has a total capacity of 31.36 GiB of which 187.44")
    assert fact.cut
    assert fact.free_bytes == round(187.44 * MIB)


def test_wrapped_message_is_one() -> None:
    fact = only(
        f"{HEAD}. GPU 0 has a total capacity of\n15.75 GiB of which 512.00 MiB is free. Including non-PyTorch memory,\n"
        "this process has 15.24 GiB memory in use."
    )
    assert fact.own_bytes == round(15.24 * GIB)


def test_wsl_overflow_is_no_figure() -> None:
    fact = only(f"{HEAD}. GPU 0 has a total capacity of 6.00 GiB of which 0 bytes is free. Including non-PyTorch memory, "
                "this process has 17179869184.00 GiB memory in use.")  # fmt: skip
    assert fact.own_bytes is None
    assert fact.free_bytes == 0


@pytest.mark.parametrize(
    ("text", "allocator", "kind"),
    [
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 80.00 MiB.", "torch", "hip"),
        ("RuntimeError: CUDA error: out of memory", "cuda", "cuda"),
        ("torch.AcceleratorError: CUDA error: out of memory", "cuda", "cuda"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cublas", "cuda"),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn", "cuda"),
        ("  what():  [TM][ERROR] CUDA runtime error: out of memory /src/turbomind/utils/allocator.h:99", "turbomind", "cuda"),
        ("CUDA Error: out of memory at csrc/cumem_allocator.cpp:62", "cumem", "cuda"),
        ("[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(p, n, s): out of memory", "tensorrt", "cuda"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1024 bytes.", "xla", "cuda"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "nccl", "cuda"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1024 bytes.", "torch", "host"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 9.54 GiB for an array with shape (1,)", "numpy", "host"),
    ],
)  # fmt: skip
def test_allocators(text: str, allocator: str, kind: str) -> None:
    fact = only(text)
    assert (fact.allocator, fact.kind) == (allocator, kind)


def test_malloc_async_figures_on_the_lines_below() -> None:
    fact = only(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.81 GiB\n"
        "Requested               : 2.50 GiB\nDevice limit            : 11.99 GiB\nFree (according to CUDA): 19.31 MiB"
    )
    assert fact.requested_bytes == 2.5 * GIB
    assert fact.free_bytes == round(19.31 * MIB)


@pytest.mark.parametrize(
    "text",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory",
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.",
        "Decode out of memory happened. #retracted_reqs: 1",
        "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`",
        "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider enforcing eager.",
        "[812.1] Out of memory: Killed process 4242 (python3) total-vm:184549376kB",
    ],
)
def test_texts_that_are_no_gpu_out_of_memory(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        ('File "/v/vllm/v1/worker/gpu_worker.py", line 2, in determine_available_memory', "profiling"),
        ('File "/v/vllm/v1/worker/gpu_worker.py", line 2, in capture_model', "graph-capture"),
        ('File "/v/vllm/model_executor/layers/linear.py", line 2, in create_weights', "weights"),
        ('File "/v/vllm/model_executor/layers/quantization/fp8.py", line 2, in process_weights_after_loading', "conversion"),
        ('File "/v/vllm/v1/engine/core.py", line 2, in run_busy_loop', "serving"),
        ('File "/s/sglang/srt/model_executor/model_runner.py", line 2, in init_memory_pool', "kv-pool"),
        ('File "/s/sglang/srt/managers/scheduler.py", line 2, in event_loop_overlap', "serving"),
        ('File "/t/torch/optim/adamw.py", line 2, in _init_group', "optimizer-step"),
        ('File "/t/torch/_tensor.py", line 2, in backward', "training-backward"),
        ('File "/t/transformers/trainer.py", line 2, in training_step', "training-forward"),
    ],
)  # fmt: skip
def test_frames_tell_the_phase(frame: str, phase: str) -> None:
    fact = only(f"Traceback (most recent call last):\n  {frame}\n    x()\ntorch.OutOfMemoryError: {HEAD}.")
    assert fact.phase == phase


def test_pinned_memory_is_the_hosts() -> None:
    fact = only(
        'Traceback (most recent call last):\n  File "/t/loader.py", line 2, in load\n    x = torch.empty(n).pin_memory()\n'
        "RuntimeError: CUDA error: out of memory"
    )
    assert fact.kind == "pinned"
