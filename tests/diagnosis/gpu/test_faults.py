"""Faults that nvidia-smi shows by itself, and what only looks like one."""

from __future__ import annotations

import pytest

from conftest import read_text
from smi_text import HEAD, NONE, found, gpu, ids, table

DEAD = gpu(2, used=0, util="N/A", power="N/A  /  N/A", fan="ERR!", mig="ERR!", ecc="N/A")
QUERY = """\
Attached GPUs                             : 1
GPU 00000000:3A:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
"""


def test_a_gpu_in_an_error_state_is_not_idle() -> None:
    report = table(gpu(0), gpu(1), DEAD, NONE)
    root = report.root
    assert root is not None and root.id == "gpu-error-cells" and report.verdict.state == "failed"
    assert "GPU 2" in root.title and "00000000:03:00.0" in root.cause and "GPUs 0 and 1 still answer" in root.cause
    assert root.operator_action == "reset-gpu"
    assert "GPUs 0 and 1 are free" in found(report, "gpu-free").title


def test_a_dead_fan_sensor_is_a_warning() -> None:
    report = table(gpu(fan="ERR!", name="NVIDIA GeForce RTX 4090", total=24564), NONE)
    assert report.verdict.state == "degraded"
    assert "fan reads ERR!" in found(report, "gpu-sensor-error").title


def test_an_old_card_under_wsl_is_fine() -> None:
    head = HEAD.replace("580.95.05      CUDA", "474.64      CUDA")
    report = read_text(head + gpu(used=351, total=3072, util="N/A", power="N/A /  N/A", fan="ERR!", temp="0C") + NONE)
    assert report.verdict.state == "healthy" and "gpu-sensor-error" not in ids(report)


def test_corrupted_inforom_is_found_under_a_healthy_table() -> None:
    report = table(gpu(), NONE, "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n14\n")
    assert report.root_cause == "gpu-inforom-corrupted"
    assert "GPU 0 (0000:01:00.0)" in report.findings[0].title


@pytest.mark.parametrize(
    ("lines", "id", "action", "state"),
    [
        ("    Remapped Rows\n        Uncorrectable Error : 2\n        Pending : Yes\n        Remapping Failure Occurred : No\n",
         "gpu-remap-pending", "reset-gpu", "degraded"),
        ("    Remapped Rows\n        Pending : No\n        Remapping Failure Occurred : Yes\n", "gpu-remap-failed", "service", "failed"),
        ("    GPU Recovery Action : Reset\n", "gpu-recovery-action", "reset-gpu", "failed"),
        ("    GPU Recovery Action : Node Reboot\n", "gpu-recovery-action", "reboot", "failed"),
        ("    GPU Recovery Action : Drain and Reset\n", "gpu-recovery-action", "drain", "failed"),
        ("    GPU Reset Status\n        Reset Required : Yes\n", "gpu-recovery-action", "reset-gpu", "failed"),
        ("    ECC Errors\n        Aggregate\n            SRAM Threshold Exceeded : Yes\n", "gpu-sram-threshold", "service", "failed"),
        ("    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 4\n", "gpu-uncorrected-errors", "reset-gpu", "degraded"),
        ("    Retired Pages\n        Double Bit ECC : 3\n        Pending Page Blacklist : Yes\n", "gpu-retirement-pending", "reset-gpu",
         "degraded"),
        ("    Fabric\n        State : In Progress\n        Status : N/A\n", "fabric-state-incomplete", "change-settings", "failed"),
    ],
)  # fmt: skip
def test_what_q_prints_of_the_board(lines: str, id: str, action: str, state: str) -> None:
    report = read_text(QUERY + lines)
    root = report.root
    assert root is not None and root.id == id and root.operator_action == action
    assert report.verdict.state == state


def test_corrected_errors_and_a_healthy_board_raise_nothing() -> None:
    healthy = (
        "    GPU Recovery Action : None\n    ECC Errors\n        Volatile\n            DRAM Correctable : 177\n"
        "            DRAM Uncorrectable : 0\n    Remapped Rows\n        Pending : No\n        Remapping Failure Occurred : No\n"
        "    Fabric\n        State : Completed\n        Status : Success\n"
    )
    assert read_text(QUERY + healthy).root_cause is None


def test_a_cut_listing_and_a_missing_eighth() -> None:
    cut = read_text(QUERY.replace(": 1\n", ": 8\n"))
    assert "1 of 8" in found(cut, "gpu-listing-cut").title
    seven = table(*[gpu(i, name="NVIDIA H200", total=143771) for i in range(7)], NONE)
    missing = found(seven, "gpu-one-of-eight-missing")
    assert missing.certainty == "possible" and missing.severity == "info"
    assert any("lspci" in check.command for check in missing.next_checks)


def test_uncorrected_errors_in_the_table_cell() -> None:
    report = table(gpu(ecc="3"), NONE)
    assert report.root_cause == "gpu-uncorrected-errors" and report.findings[0].title.startswith(
        "3 uncorrected ECC error"
    )
