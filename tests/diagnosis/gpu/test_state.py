"""What is said of GPUs by one nvidia-smi output: busy, waiting, held by nobody visible, free, in slices."""

from __future__ import annotations

import pytest

from conftest import read_text
from smi_text import EMPTY, EXAMPLES, HEAD, NONE, found, gpu, ids, process, table


def test_walk_through_after_the_installation() -> None:
    report = read_text((EXAMPLES / "installed-idle.txt").read_text())
    assert report.verdict.state == "healthy" and report.root_cause is None
    free = found(report, "gpu-free")
    assert "4 of 97,887 MiB" in free.title
    assert "no CUDA context" in free.cause and "driver's own" in free.cause
    assert "CUDA Version 13.0 is the newest CUDA that this driver accepts" in free.cause


def test_walk_through_a_server_that_waits() -> None:
    report = read_text((EXAMPLES / "idle-server-smi.txt").read_text())
    assert report.verdict.state == "healthy"
    held = found(report, "gpu-memory-held-idle")
    assert held.title == "GPU 0 holds 87,920 of 97,887 MiB at 0 % and 78 of 600 W: a loaded server that waits"
    assert "VLLM::EngineCore (pid 28814) holds 87,906 MiB" in held.cause and "not a leak" in held.cause


def test_several_gpus_are_one_sentence() -> None:
    rows = [gpu(i, used=40000 + i, power="60W /  350W") for i in range(4)]
    report = table(
        *rows, "| Processes: |\n", *[process(i, 100 + i, f"VLLM::Worker_TP{i}", "39990MiB") for i in range(4)]
    )
    assert report.verdict.sentence.startswith(
        "GPUs 0-3 hold 40,000-40,003 of 46,068 MiB at 0 % and 60 of 350 W: loaded and waiting"
    )


@pytest.mark.parametrize("box", [NONE, EMPTY])
def test_memory_without_an_owner_is_another_namespace_first(box: str) -> None:
    report = table(gpu(used=40000), box)
    held = found(report, "gpu-memory-held-unseen")
    assert report.verdict.state == "healthy" and held.certainty == "likely"
    assert "PID namespace" in held.cause
    assert any("fuser" in check.command for check in held.next_checks)
    assert not held.remedies, "nothing to kill or reset on this evidence"


def test_busy_and_at_the_power_limit() -> None:
    busy = found(
        table(
            gpu(used=40000, util="100%", power="349W /  350W", perf="P0"),
            "| Processes: |\n",
            process(0, 7, "python3", "39990MiB"),
        ),
        "gpu-busy",
    )
    assert "power limit, which is normal" in busy.cause
    assert "not how much of the chip" in busy.cause


def test_full_utilisation_at_a_fifth_of_the_power_is_not_called_busy() -> None:
    report = table(
        gpu(used=900, util="100%", power="70W /  350W", perf="P0"), "| Processes: |\n", process(0, 7, "spin", "880MiB")
    )
    spin = found(report, "gpu-not-filled-once")
    assert "70 of 350 W" in spin.title and any("1002" in check.command for check in spin.next_checks)
    assert "gpu-busy" not in ids(report)


def test_a_stale_sample_is_no_work() -> None:
    report = table(gpu(used=0, util="100%", power="240W /  350W", on="Off", perf="P0"), NONE)
    assert report.verdict.state == "healthy" and "stale" in found(report, "gpu-stale-utilisation").title


def test_free_and_busy_side_by_side() -> None:
    report = table(
        gpu(0, used=40000, util="97%", power="300W /  350W"),
        gpu(1),
        "| Processes: |\n",
        process(0, 7, "python3", "39990MiB"),
    )
    assert {"gpu-busy", "gpu-free"} <= ids(report)
    assert found(report, "gpu-free").title.startswith("GPU 1 is free")


def test_a_header_alone_is_no_health() -> None:
    report = read_text(HEAD)
    assert report.verdict.state == "unknown"


def test_mig_counts_memory_per_instance() -> None:
    report = table(
        gpu(used=11125, total=81559, util="N/A", mig="Enabled", ecc="On", name="NVIDIA H100 80GB HBM3"),
        "| MIG devices: |\n|  0    2   0   0  |  11091MiB / 40448MiB | 60  0 |  3   0    3    0    3 |\n"
        "|  0    3   0   1  |     17MiB / 20096MiB | 32  0 |  2   0    2    0    2 |\n",
        NONE,
    )
    slices = found(report, "gpu-mig-slices")
    assert "2 GPU instances" in slices.title and "at most 29,357 MiB" in slices.title
    assert "GI 2 11,091 of 40,448 MiB" in slices.cause


def test_two_compute_instances_share_their_memory_figure() -> None:
    row = "|  0    1   {ci}   {ci}  |   5120MiB / 40448MiB | 30  0 |  1   0    1    0    1 |\n"
    report = table(
        gpu(used=5200, total=81559, util="N/A", mig="Enabled", ecc="On"),
        "| MIG devices: |\n" + row.format(ci=0) + row.format(ci=1), NONE,
    )  # fmt: skip
    assert "1 GPU instance on GPU 0, 1 in use" in found(report, "gpu-mig-slices").title


def test_mig_without_instances_offers_nothing() -> None:
    report = table(
        gpu(used=0, util="N/A", mig="Enabled", ecc="On"), "| MIG devices: |\n|  No MIG devices found |\n", NONE
    )
    assert report.root_cause == "gpu-mig-without-instances"
    assert "-cgi" in found(report, "gpu-mig-without-instances").remedies[0].command


def test_unified_memory_is_no_fault() -> None:
    report = table(gpu(used="Not Supported", util="3%", power="9W /  N/A", name="NVIDIA GB10"), NONE)
    assert report.verdict.state == "healthy" and ids(report) == {"gpu-memory-unified"}


def test_windows_and_wsl_do_not_show_owners() -> None:
    report = read_text(HEAD.replace("580.95.05      CUDA", "581.29      CUDA") + gpu(used=1274, total=8192) + NONE)
    assert "Windows side" in found(report, "gpu-memory-held-idle").cause
    assert "no mismatch" in found(report, "smi-tool-differs-from-driver").title


def test_idle_gpus_say_nothing_of_a_start_that_did_not_end() -> None:
    log = "".join((EXAMPLES / "kv-fp8-healthy.log").read_text().splitlines(keepends=True)[:8])
    report = read_text(log + (EXAMPLES / "idle-server-smi.txt").read_text())
    assert report.verdict.state == "starting"


def test_a_row_without_its_name_line() -> None:
    report = read_text("| N/A   55C    P0      98W /  400W |   89079MiB /  95830MiB |      0%      Default |\n")
    assert "89,079 of 95,830 MiB" in report.verdict.sentence


def test_a_process_that_cannot_be_named() -> None:
    held = found(
        table(gpu(used=40000), "| Processes: |\n", process(0, 7, "[Not Found]", "39990MiB")), "gpu-memory-held-idle"
    )
    assert "cannot be named" in held.cause and "PID namespace" in held.cause
