"""Whose the memory is."""

from __future__ import annotations

from conftest import read_text
from smi_text import EXAMPLES, NONE, found, gpu, ids, process, table


def test_walk_through_the_log_and_nvidia_smi_together() -> None:
    both = (EXAMPLES / "kv-fp8-healthy.log").read_text() + (EXAMPLES / "idle-server-smi.txt").read_text()
    explained = found(read_text(both), "gpu-memory-explained")
    for part in ("87,906 MiB", "27.31 GiB", "54.79 GiB", "CUDA context"):
        assert part in explained.cause
    assert explained.severity == "info"


def test_ranks_that_touched_gpu_0_first() -> None:
    rows = [gpu(i, used=26000, total=81559) for i in range(4)]
    lists = [process(0, 10, "python3", "24000MiB")]
    lists += [process(i, 10 + i, "python3", "24000MiB") for i in range(1, 4)] + [
        process(0, 10 + i, "python3", "500MiB") for i in range(1, 4)
    ]
    extra = found(table(*rows, "| Processes: |\n", *lists), "gpu-extra-contexts")
    assert "3 processes of other GPUs each hold about 500 MiB on GPU 0" in extra.title
    assert "GPUs 1-3" in extra.cause and "set_device" in extra.remedies[0].command


def test_one_process_over_several_gpus_is_no_stray_context() -> None:
    rows = [gpu(i, used=20000) for i in range(2)]
    report = table(
        *rows, "| Processes: |\n", process(0, 9, "llama-server", "19990MiB"), process(1, 9, "llama-server", "18000MiB")
    )
    assert "gpu-extra-context" not in ids(report)


def test_time_slicing_and_mps() -> None:
    shared = table(
        gpu(used=3000, util="90%"), "| Processes: |\n", *[process(0, 50 + n, "python3", "990MiB") for n in range(3)]
    )
    assert "3 processes share GPU 0 (990 + 990 + 990 MiB)" in found(shared, "gpu-shared").title
    mps = table(
        gpu(used=600, util="90%", mode="E. Process"), "| Processes: |\n",
        process(0, 5, "nvidia-cuda-mps-server", "30MiB"), process(0, 6, "python3", "456MiB", kind="M+C"),
    )  # fmt: skip
    assert "1 client" in found(mps, "gpu-mps").title
    assert "gpu-compute-exclusive" not in ids(mps), "exclusive mode is usual with MPS"


LOG = (
    "INFO 11-05 12:19:20 [__init__.py:216] Automatically detected platform cuda.\n"
    "INFO 11-05 12:19:25 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='org/m'\n"
    "(EngineCore_DP0 pid=999) ERROR 11-05 12:19:32 [core.py:708] EngineCore failed to start.\n"
)


def test_a_full_gpu_beside_a_free_one() -> None:
    report = read_text(LOG + gpu(0, used=89079, total=95830) + gpu(1, used=14, total=95830))
    made = found(report, "gpu-full-beside-free")
    assert made.boundary == "memory-fit" and made.certainty == "likely"
    assert "GPU 0 is full (89,079 of 95,830 MiB)" in made.title and "GPU 1 is free" in made.title
    assert "CUDA_VISIBLE_DEVICES=1" in made.remedies[0].command


def test_without_a_server_log_two_gpus_are_just_two_states() -> None:
    assert "gpu-full-beside-free" not in ids(table(gpu(0, used=45000), gpu(1), NONE))


def test_the_owner_in_the_same_paste_is_named_in_the_shortage() -> None:
    log = LOG + (
        "(EngineCore_DP0 pid=999) ERROR 11-05 12:19:32 [core.py:708] ValueError: Free memory on device (5.21/23.64 GiB) on startup is "
        "less than desired GPU memory utilization (0.9, 21.28 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
        "other processes.\n"
    )
    rows = gpu(0, used=18870, total=24564) + gpu(1, used=4, total=24564)
    root = read_text(log + rows + "| Processes: |\n" + process(0, 5123, "/usr/local/bin/ollama", "18862MiB")).root
    assert root is not None and root.id == "gpu-memory-not-free"
    assert "ollama (pid 5123) holds 18,862 MiB on GPU 0" in root.cause
    assert any("CUDA_VISIBLE_DEVICES=1" in remedy.command for remedy in root.remedies)
