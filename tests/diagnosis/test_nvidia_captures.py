"""The shared captures of NVIDIA's tools are read as their README says (tests skip where the folder is not there)."""

from __future__ import annotations

import pytest

from conftest import shared_file
from loadpath.core.report import Report
from loadpath.reading.service import read_bytes

# file → verdict, the finding that leads (a fault, or the note that tells the state), and words that have to be in what is said
READINGS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "smi-table/driver-375-gtx980-fan-and-power-err.txt": ("degraded", "gpu-sensor-error", ("GPU 1", "fan and power")),
    "smi-table/driver-440-p100x8-training.txt": ("healthy", "gpu-memory-held-idle", ("GPUs 4-7", "10,245-13,684")),
    "smi-table/driver-450-mig-a100-no-instances.txt": ("failed", "gpu-mig-without-instances", ("no instance",)),
    "smi-table/driver-460-a100-index-1-only.txt": ("healthy", "gpu-busy", ("GPU 1", "78 %", "64 of 250 W")),
    "smi-table/driver-470-p100-inforom-corrupted.txt": ("degraded", "gpu-inforom-corrupted", ("0000:0B:00.0",)),
    "smi-table/driver-470-wsl-limited-card.txt": ("healthy", "gpu-limited-report", ("not from a fault",)),
    "smi-table/driver-510-t4-time-slicing-processes.txt": ("healthy", "gpu-busy", ("70 of 70 W", "power limit, which is normal")),
    "smi-table/driver-515-fan-err-in-container.txt": ("degraded", "gpu-sensor-error", ("fan reads ERR!",)),
    "smi-table/driver-525-fan-err-eproc.txt": ("degraded", "gpu-sensor-error", ("fan reads ERR!",)),
    "smi-table/driver-540-jetson-orin.txt": ("healthy", "gpu-memory-unified", ("host's",)),
    "smi-table/driver-545-rtx3090-one-full-load.txt": ("healthy", "gpu-busy", ("336 of 350 W",)),
    "smi-table/driver-550-a100-pcie.txt": ("healthy", "gpu-not-filled-once", ("69 of 300 W",)),
    "smi-table/driver-550-h100x8-idle.txt": ("healthy", "gpu-free", ("GPUs 0-7",)),
    "smi-table/driver-550-mps-a100x2.txt": ("healthy", "gpu-busy", ("121 of 250 W",)),
    "smi-table/driver-565-h200x8-process-box-without-rows.txt": (
        "healthy", "gpu-memory-held-unseen", ("131,840-134,402 of 143,771", "PID namespace", "GPU 0 holds 2,082 MiB more"),
    ),
    "smi-table/driver-570-h100x8-one-hot.txt": ("degraded", "gpu-hotter-than-peers", ("GPU 6", "86 °C", "226 W")),
    "smi-table/driver-570-h200x8-weights-loaded.txt": ("healthy", "gpu-memory-held-idle", ("loaded and waiting",)),
    "smi-table/driver-575-rtx5080-loaded-idle.txt": ("healthy", "gpu-memory-held-idle", ("14,134 of 16,303", "waits")),
    "smi-table/driver-580-gb10-desktop.txt": ("healthy", "gpu-memory-unified", ()),
    "smi-table/driver-580-mig-h100-memory-na.txt": ("healthy", "gpu-mig-slices", ("10,993", "N/A because")),
    "smi-table/driver-590-h200-load.txt": ("healthy", "gpu-busy", ("628 of 700 W", "28,234 MiB")),
    "smi-table/driver-590-mig-h100-load.txt": ("healthy", "gpu-mig-slices", ("1 in use", "29,357")),
    "smi-table/driver-595-a100-two-gpus-err.txt": ("failed", "gpu-error-cells", ("GPUs 2 and 3", "CA:00.0")),
    "smi-table/driver-595-l40s-util100-nothing-running.txt": ("healthy", "gpu-stale-utilisation", ("no leak and no hang",)),
    "smi-table/driver-595-rtx4080s-desktop.txt": ("healthy", "gpu-desktop-only", ()),
    "smi-table/driver-610-b300x7-process-memory-cut.txt": ("healthy", "gpu-busy", ("844-882 of 1,100 W", "table cuts off")),
    "smi-table/driver-610-windows-wddm-rtx2080s.txt": ("healthy", "gpu-desktop-only", ("unknown, not zero",)),
    "smi-q/driver-510-a100-remap-pending.txt": ("degraded", "gpu-remap-pending", ("no reason to exchange",)),
    "smi-q/driver-535-h100-power-brake.txt": ("degraded", "gpu-power-brake", ("86 of 1,980 MHz",)),
    "smi-q/driver-560-titanv.txt": ("healthy", "gpu-desktop-only", ()),
    "smi-q/driver-590-h200-load.txt": ("healthy", "gpu-busy", ("627 of 700 W",)),
    "smi-q/driver-595-l40s-idle.txt": ("healthy", "gpu-stale-utilisation", ()),
    "smi-xml/driver-515-t4.xml": ("healthy", "gpu-memory-held-idle", ("1,032 of 15,360",)),
    "smi-xml/driver-595-rtx3080-busy.xml": ("healthy", "gpu-busy", ("65 %", "9,184 of 10,240")),
    "smi-xml/driver-510-a100-40-mig.xml": ("healthy", "gpu-mig-slices", ("2 GPU instances",)),
    "smi-csv/query-gpu-all-fields-driver-590-h200-load.csv": ("healthy", "gpu-busy", ("627 of 700 W",)),
    "smi-csv/clock-reason-masks-noheader.csv": ("degraded", "gpu-power-brake", ("GPU 2",)),
    "smi-list/rtx8000x8.txt": ("healthy", "gpu-listed", ("8 × Quadro RTX 8000",)),
    "smi-list/a100-mig-old-uuid-form.txt": ("healthy", "gpu-listed", ("7 × 1g.5gb",)),
    "dmon/driver-590-h200-load.txt": ("healthy", "dmon-busy", ("628-632 W",)),
    "dmon/driver-590-mig-h100-load.txt": ("healthy", "dmon-utilisation-hidden", ("437-440 W",)),
    "pmon/driver-590-h200-load.txt": ("unknown", "pmon-activity", ("gpu_burn (pid 10309, GPU 0) 95 % sm",)),
    "topo/h100x8-nv18-two-numa.txt": ("unknown", "topology-nvlink", ("All 28 GPU pairs", "NV18")),
    "topo/l40x4-two-sockets-two-nics.txt": ("unknown", "topology-pcie", ("GPU0+GPU1 and GPU2+GPU3", "GPU0 and GPU1 have no NIC")),
    "topo/phb-two-gpus.txt": ("unknown", "topology-pcie", ("virtual machine",)),
    "topo/p2p-read-l4x2-cns.txt": ("unknown", "p2p-not-supported", ("CNS",)),
    "nvlink/status-a100x8.txt": ("healthy", "nvlink-up", ("GPUs 0-7", "12 NVLink links", "600 GB/s")),
    "nvlink/status-inactive-rtx2080s.txt": ("unknown", "nvlink-no-bridge", ("no fault",)),
}  # fmt: skip
HEALTHY_TABLES = (
    "390-k80-pair", "410-tool-418-colab-t4", "418-gtx760-not-supported", "450-t4-idle", "455-t4-in-docker", "460-t4-podman",
    "470-t4-openshift", "510-laptop-power-na", "510-t4-openshift", "515-rtx4090-docker", "530-t4", "535-mig-a30-three-slices",
    "535-mig-h100x8-32-instances", "535-t4-edited-old-layout", "540-jetson-driver-na-in-container", "550-vgpu-grid-a100d-80c",
    "555-gh200-idle", "560-wsl-rtx3060ti", "565-a100-80-pcie", "570-cuda13-compat-t4g", "570-gh200-idle", "570-vgpu-48gb-fan-99",
    "570-wsl-rtx4090-busy", "580-gb200x4-idle", "580-rtx3090-full-load", "580-rtx4090d-pair-idle", "580-wsl-rtx5060",
    "590-mig-h100-idle", "595-jetson-orin", "610-rtx2080s-load",
)  # fmt: skip


def report_on(name: str) -> Report:
    path = shared_file("captures", "nvidia", *name.split("/"))
    return read_bytes([(path.name, path.read_bytes())])


@pytest.mark.parametrize("name", list(READINGS))
def test_reading(name: str) -> None:
    state, leads, words = READINGS[name]
    report = report_on(name)
    assert report.verdict.state == state, report.verdict.sentence
    first = report.findings[0]
    assert first.id == leads
    said = f"{first.title} {first.cause}"
    for word in words:
        assert word in said


@pytest.mark.parametrize("name", HEALTHY_TABLES)
def test_healthy_tables_raise_nothing(name: str) -> None:
    report = report_on(f"smi-table/driver-{name}.txt")
    assert report.verdict.state == "healthy" and report.root_cause is None, report.verdict.sentence


def test_second_findings() -> None:
    hot = report_on("smi-table/driver-570-h100x8-one-hot.txt")
    assert any(f.id == "gpu-extra-contexts" and "7 processes" in f.title for f in hot.findings)
    missing = report_on("smi-table/driver-610-b300x7-process-memory-cut.txt")
    assert any(f.id == "gpu-one-of-eight-missing" for f in missing.findings)
    compat = report_on("smi-table/driver-570-cuda13-compat-t4g.txt")
    assert any(f.id == "cuda-compat-in-sight" and "12.8" in f.cause for f in compat.findings)
