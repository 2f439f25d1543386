"""SIGKILL and its proofs: the OOM killer, exit codes, offload."""

from __future__ import annotations

import pytest

from conftest import read_text, shared_file
from loadpath.reading.service import read_bytes


def test_the_kernel_line_is_proof_and_gives_the_figure() -> None:
    report = read_text(
        "Loading checkpoint shards:  50%|#####     | 2/4 [00:07<00:07,  3.9s/it]Killed\n"
        "[ 8123.4] Out of memory: Killed process 4242 (python3) total-vm:90000000kB, anon-rss:62914560kB, file-rss:0kB, "
        "shmem-rss:0kB, UID:0\n"
    )
    root = report.root
    assert root is not None and root.id == "host-oom-killed" and root.certainty == "established"
    assert "60.00 GiB" in root.cause
    assert "killed-by-signal-9" in root.consequences


def test_a_small_victim_is_not_the_culprit() -> None:
    root = read_text(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods/pod1,task=ray::IDLE,pid=77,uid=0\n"
        "Memory cgroup out of memory: Killed process 77 (ray::IDLE) total-vm:9000kB, anon-rss:30000kB, file-rss:1kB, shmem-rss:0kB\n"
    ).root
    assert root is not None and root.id == "host-oom-killed"
    assert "only 29 MiB" in root.cause and "limit of its cgroup" in root.cause
    assert root.remedies[0].action.startswith("Find the process that grows")


@pytest.mark.parametrize(
    "text",
    [
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
        '{"Status":"exited","Running":false,"OOMKilled":true,"ExitCode":137,"Error":""}\n',
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\n",
        "systemd[1]: vllm.service: A process of this unit has been killed by the OOM killer.\n",
    ],
)
def test_other_proofs(text: str) -> None:
    root = read_text(text).root
    assert root is not None and root.id == "host-oom-killed" and root.certainty == "established"


@pytest.mark.parametrize(
    "text",
    [
        "exits with return code = -9\n",
        "command terminated with exit code 137\n",
        "./start.sh: line 12: 31337 Killed                  python -m vllm.entrypoints.openai.api_server --model x\n",
        "RuntimeError: DataLoader worker (pid 4012) is killed by signal: Killed.\n",
        "  exitcode  : -9 (pid: 3741)\n",
    ],
)
def test_sigkill_without_proof_is_likely_and_asks(text: str) -> None:
    root = read_text(text).root
    assert root is not None and root.id == "killed-by-signal-9" and root.certainty == "likely"
    assert "dmesg" in root.next_checks[0].command


def test_137_that_the_runtime_does_not_call_oom_is_not_called_so() -> None:
    root = read_text("    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    137\n").root
    assert root is not None and root.id == "exited-on-sigkill"
    assert root.certainty == "possible"


@pytest.mark.parametrize(("code", "words"), [(139, "segmentation fault"), (134, "abort"), (143, "SIGTERM")])
def test_other_exit_codes_say_what_they_are(code: int, words: str) -> None:
    root = read_text(f"    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    {code}\n").root
    assert root is not None and words in root.cause


def test_our_own_capture_of_a_container_that_hit_its_limit() -> None:
    data = shared_file("captures", "containers", "docker-inspect-state-oom.json").read_bytes()
    root = read_bytes([("state.json", data)]).root
    assert root is not None and root.id == "host-oom-killed"
    assert "a child was killed" in root.cause


def test_sglang_kills_itself_so_its_9_is_only_possibly_memory() -> None:
    root = read_text("$ python -m sglang.launch_server --model-path m --tp 3\nexit code -9\n").root
    assert root is not None and root.id == "killed-by-signal-9"
    assert root.certainty == "possible" and "SGLang kills its own process group" in root.cause


OFFLOAD = (
    "Rank: 0 partition count [1] and sizes[(2000000000, False)]\n"
    "[2024-01-22 16:50:44,316] [INFO] [utils.py:798:see_memory_usage] MA 3.73 GB         Max_MA 3.73 GB         CA 4.0 GB  "
    "       Max_CA 4 GB\n"
    "[2024-01-22 16:50:44,316] [INFO] [utils.py:799:see_memory_usage] CPU Virtual Memory:  used = 40.0 GB, percent = 80.0%\n"
)


def test_offload_is_reckoned_against_the_hosts_memory() -> None:
    root = read_text(
        OFFLOAD + "[2024-01-22 16:50:50,000] [ERROR] [launch.py:321:sigkill_handler] exits with return code = -9\n"
    ).root
    assert root is not None and root.id == "train-killed-offload"
    assert "22.4 GiB" in root.cause, "2e9 parameters of 12 bytes"
    assert "80.0% of about 50 GiB" in root.cause
    assert "not GPU memory" in root.cause


def test_memory_figures_of_a_training_that_goes_on_are_no_finding() -> None:
    assert read_text(OFFLOAD).root is None
