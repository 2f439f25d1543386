# ruff: noqa: E501  (samples are lines as programs print them)
"""Rules about SGLang, llama.cpp and Ollama: the cause in figures, and no advice that does not help."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding

CAPTURE = """\
[2025-05-01 10:00:00 TP0] Memory pool end. avail mem=9.10 GB
[2025-05-01 10:00:01 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB
[2025-05-01 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/model_executor/cuda_graph_runner.py", line 300, in __init__
    self.capture()
  File "/opt/sglang/srt/layers/attention/flashinfer_backend.py", line 800, in call_begin_forward
    wrapper.begin_forward(
"""


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None, report.verdict
    return report.root


def test_capture_that_fails_with_memory_free_is_the_kernel() -> None:
    found = root(CAPTURE)
    assert (found.id, found.boundary, found.certainty) == ("sglang-graph-capture-kernel", "framework-engine", "likely")
    assert "9.00 GiB" in found.cause
    assert found.remedies[0].command == "--attention-backend triton"
    assert not any("mem-fraction" in r.command for r in found.remedies)


def test_another_error_in_capture_is_not_called_a_head_size() -> None:
    text = CAPTURE + "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    assert root(text).boundary == "arch"


def test_request_slots_are_not_gpu_memory() -> None:
    found = root(
        "[2025-05-01 10:00:00 TP0] Decode batch. #running-req: 12, #token: 800, token usage: 0.02, #queue-req: 0\n"
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. "
        "self.req_to_token_pool.available_size()=0, num_reqs=3, \n"
    )
    assert found.id == "sglang-request-slots-exhausted"
    assert "0 slot(s) left and the next batch needs 3" in found.cause and "0.02" in found.cause
    assert not any("mem-fraction" in r.command for r in found.remedies)


def test_full_token_pool_is_not_cuda_out_of_memory() -> None:
    found = root(
        "[2025-05-01 10:00:00 TP0] Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\n"
        "[2025-05-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    )
    assert (found.id, found.boundary) == ("sglang-kv-slots-crash", "framework-engine")
    assert "CUDA memory is not short" in found.cause


def test_start_that_ends_without_a_word() -> None:
    found = root(
        "[2026-08-01 10:00:00] server_args=ServerArgs(model_path='/m')\n"
        "[2026-08-01 10:00:01] Load weight begin. avail mem=110.00 GB\n"
        "resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n"
    )
    assert (found.id, found.step, found.certainty) == ("sglang-silent-end", "weight-load", "likely")


REFUSED = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 90000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
WEIGHTS = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 94371840000\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
COMPUTE = "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 94371840000\nllama_new_context_with_model: failed to allocate compute buffers\n"


@pytest.mark.parametrize(
    ("lines", "found_id", "lever"),
    [(WEIGHTS, "llama-weights-over-gpu", "-ngl"), (COMPUTE, "llama-compute-over-gpu", "-c ")],
)
def test_each_buffer_has_its_own_lever(lines: str, found_id: str, lever: str) -> None:
    found = root(REFUSED + lines)
    assert (found.id, found.boundary) == (found_id, "memory-fit")
    assert "90000 MiB (87.89 GiB)" in found.cause
    assert lever in found.remedies[0].command


def test_refusal_that_was_coped_with_is_no_error() -> None:
    report = read_text(
        REFUSED + COMPUTE + "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
        "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'false'\n"
        "srv  llama_server: listening on http://127.0.0.1:8080\n"
    )
    assert report.verdict.state == "healthy"


@pytest.mark.parametrize(
    ("text", "found_id", "boundary"),
    [
        ("Error: model requires more system memory (18.4 GiB) than is available (11.2 GiB)", "ollama-needs-host-memory", "host-limits"),
        ("Error: llama runner process has terminated: signal: killed", "ollama-runner-killed", "host-limits"),
        ("Error: llama runner process has terminated: cudaMalloc failed: out of memory", "ollama-runner-out-of-memory", "memory-fit"),
        ("llama_model_load: error loading model: missing tensor 'blk.3.ffn_norm.weight'", "gguf-does-not-match-build", "model-config"),
        ("error loading model: unknown (magic, version) combination: 46554747, 00000003; is this really a GGML file?",
         "gguf-newer-than-build", "framework-engine"),
        ("/b/ggml/src/ggml-cuda/mmq.cu:118: GGML_ASSERT(ne00 % 256 == 0) failed", "ggml-assert-failed", "framework-engine"),
    ],
)  # fmt: skip
def test_lines_pasted_alone(text: str, found_id: str, boundary: str) -> None:
    found = root(text)
    assert (found.id, found.boundary) == (found_id, boundary)
