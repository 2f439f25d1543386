"""Out of memory: the same message means another thing in each step, and each has its own remedy."""

from __future__ import annotations

from importlib import resources

import pytest

from conftest import read_text
from loadpath.core.report import Finding


def oom(asked: str = "512.00 MiB", free: str = "96.50 MiB", total: str = "44.40 GiB", own: str = "44.30 GiB",
        allocated: str = "43.10 GiB", idle: str = "60.00 MiB", more: str = "") -> str:  # fmt: skip
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of {total} of which "
        f"{free} is free. {more}Including non-PyTorch memory, this process has {own} memory in use. Of the allocated memory "
        f"{allocated} is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated. If reserved but unallocated "
        "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
    )


def vllm(function: str, file: str = "v1/worker/gpu_worker.py", message: str = "") -> str:
    head = "(EngineCore_DP0 pid=7) ERROR 11-02 10:44:52 [core.py:708] "
    return (
        f"{head}Traceback (most recent call last):\n"
        f'{head}  File "/opt/vllm/lib/python3.12/site-packages/vllm/{file}", line 12, in {function}\n'
        f"{head}    result = step()\n{head}{message or oom()}"
    )


def training(function: str, file: str) -> str:
    return f'Traceback (most recent call last):\n  File "/env/site-packages/{file}", line 8, in {function}\n    x()\n{oom()}'


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None
    assert report.root.boundary == "memory-fit"
    return report.root


def advice(found: Finding) -> str:
    return " ".join(f"{r.action} {r.command}" for r in found.remedies)


@pytest.mark.parametrize(
    ("text", "row", "step", "best"),
    [
        (vllm("create_weights", "model_executor/layers/linear.py"), "gpu-oom-weights", "weight-load", "quantised"),
        (vllm("process_weights_after_loading", "model_executor/layers/quantization/fp8.py"), "gpu-oom-weights", "weight-load",
         "already quantised"),
        (vllm("init_device", message="torch.AcceleratorError: CUDA error: out of memory\n"), "gpu-oom-context", "context-creation",
         "End what holds the GPU"),
        (vllm("determine_available_memory"), "gpu-oom-profiling", "memory-profiling", "--max-num-batched-tokens"),
        (vllm("capture_model"), "gpu-oom-graph-capture", "graph-capture", "cudagraph_capture_sizes"),
        (vllm("run_busy_loop", "v1/engine/core.py"), "gpu-oom-serving", "serving", "Lower the memory share"),
        (training("_init_group", "torch/optim/adamw.py"), "gpu-oom-training", "serving", "optimizer's states"),
        (training("training_step", "transformers/trainer.py"), "gpu-oom-training", "serving", "gradient checkpointing"),
        (training("convert", "torch/nn/modules/module.py"), "gpu-oom-weights", "weight-load", "quantised"),
    ],
)  # fmt: skip
def test_each_step_has_its_own_remedy(text: str, row: str, step: str, best: str) -> None:
    found = root(text)
    assert (found.id, found.step) == (row, step)
    assert best in f"{found.remedies[0].action} {found.remedies[0].command}"


def test_weights_that_do_not_fit_are_not_a_matter_of_settings() -> None:
    found = root(vllm("create_weights", "model_executor/layers/linear.py"))
    assert "max-model-len" not in advice(found)
    assert "gpu-memory-utilization" not in advice(found)
    assert "do not help" in found.cause


def test_allocator_settings_only_where_the_pool_is_in_pieces() -> None:
    whole = root(vllm("run_busy_loop", "v1/engine/core.py"))
    assert "expandable_segments" not in advice(whole)
    assert "fragmentation is negligible" in whole.cause
    pieces = root(vllm("run_busy_loop", "v1/engine/core.py", oom(allocated="35.00 GiB", idle="8.40 GiB")))
    assert pieces.id == "gpu-oom-fragmented"
    assert "expandable_segments:True" in pieces.remedies[0].command


def test_another_process_with_figure_and_pid() -> None:
    text = (resources.files("loadpath") / "examples" / "oom-other-process.log").read_text("utf-8")
    found = root(text)
    assert found.id == "gpu-oom-other-process"
    assert "27.64 GiB" in found.title
    assert "31877" in found.remedies[0].command


def test_own_process_named_by_its_host_pid() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 31.36 GiB of which "
        "402.50 MiB is free. Process 5150 has 30.97 GiB memory in use. Of the allocated memory 28.44 GiB is allocated by PyTorch, "
        "and 92.70 MiB is reserved by PyTorch but unallocated.\n"
    )
    found = root(vllm("run_busy_loop", "v1/engine/core.py", text))
    assert found.id == "gpu-oom-serving"
    assert "this process itself" in found.cause


def test_holder_that_the_message_does_not_name() -> None:
    found = root(oom(own="2.40 GiB", allocated="1.90 GiB"))
    assert found.id == "gpu-oom-unseen-holder"
    assert found.certainty == "likely"


def test_sampler_warm_up_with_the_allocators_figures() -> None:
    head = "(Worker_TP1 pid=3) ERROR 07-21 13:40:02 [multiproc_executor.py:597] "
    found = root(
        "vllm serve org/model-8b --gpu-memory-utilization 0.95\n"
        + head + oom(asked="1.45 GiB")
        + head + "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n"
    )  # fmt: skip
    assert found.id == "gpu-oom-sampler-warm-up"
    assert "1.45 GiB was asked with 96.50 MiB free" in found.cause
    assert "0.95" in found.cause
    assert found.remedies[0].command == "--max-num-seqs 256"
    assert found.remedies[1].command == "--gpu-memory-utilization 0.9"


def test_never_raise_the_share_where_what_lies_outside_it_ran_out() -> None:
    for function in ("capture_model", "run_busy_loop"):
        assert "Raise" not in advice(root(vllm(function)))


def test_profiling_with_images_limits_them_first() -> None:
    found = root(
        "(VllmWorkerProcess pid=4) WARNING 05-12 11:02:31 [profiling.py:210] The sequence length used for profiling (8192) is too "
        "short to hold the multi-modal embeddings in the worst case (24576 tokens in total, out of which {'image': 16384, 'video': "
        "8192} are reserved for multi-modal embeddings). To avoid this, you should increase `max_model_len`\n"
        "(VllmWorkerProcess pid=4) ERROR 05-12 11:02:44 [multiproc_worker_utils.py:240] Exception in worker VllmWorkerProcess while "
        "processing method determine_num_available_blocks.\n"
    )
    assert found.id == "profiling-broke-off"
    assert "24,576 multimodal tokens" in found.cause
    assert "--limit-mm-per-prompt" in found.remedies[0].command
    assert "last lines" in found.next_checks[0].why


def test_nothing_known_of_the_step_is_said() -> None:
    found = root("RuntimeError: CUDA error: out of memory\n")
    assert found.id == "gpu-oom"
    assert "no figures" in found.cause
    assert found.next_checks


def test_turbomind_by_the_models_name() -> None:
    crash = "  what():  [TM][ERROR] CUDA runtime error: out of memory /src/turbomind/utils/allocator.h:99\n"
    large = root(f"pipe = pipeline('/models/Some-VL-40B', session_len=4096)\n{crash}")
    small = root(f"pipe = pipeline('/models/some-7b', session_len=4096)\n{crash}")
    assert "tp" in large.remedies[0].command
    assert "0.4" in small.remedies[0].command


def test_wrong_gpu_beside_an_empty_one() -> None:
    row = "|   {i}  NVIDIA L40S                    Off |   00000000:{bus}:00.0 Off |                    0 |\n"
    use = "| N/A   46C    P0             64W /  350W |   {used}MiB /  46068MiB |      0%      Default |\n"
    found = root(
        vllm("load_model", "v1/worker/gpu_model_runner.py", oom(own="6.20 GiB", allocated="5.80 GiB", total="44.40 GiB"))
        + "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |\n"
        + row.format(i=0, bus="17") + use.format(used="41210") + row.format(i=1, bus="65") + use.format(used="    3")
    )  # fmt: skip
    assert found.id == "engine-on-occupied-gpu"
    assert found.remedies[0].command.startswith("CUDA_VISIBLE_DEVICES=1")


def test_host_memory_is_not_the_gpus() -> None:
    report = read_text("RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to "
                       "allocate 234881024 bytes. Error code 12 (Cannot allocate memory)\n")  # fmt: skip
    assert report.root is not None
    assert report.root.boundary == "host-limits"
