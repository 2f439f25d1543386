"""The shared kernel, DCGM and nvidia-smi samples read as their README expects: root cause, state, and a figure or word."""

from __future__ import annotations

import pytest

from conftest import read_text, shared_file

EXPECTED = [
    ("kernel/aer-forms-not-gpu.txt", "pcie-uncorrected", "degraded", "0000:00:01"),
    ("kernel/api-mismatch-535-client-newer.txt", "driver-library-mismatch", "failed", "535.161.07"),
    ("kernel/fallen-off-bus-no-xid.txt", "gpu-off-bus", "failed", "0000:29:00"),
    ("kernel/gsp-firmware-missing-550.txt", "gsp-firmware-missing", "failed", "/lib/firmware"),
    ("kernel/gsp-wpr2-already-up.txt", "gsp-wpr2-up", "failed", "rescan"),
    ("kernel/nouveau-owns-device.txt", "gpu-owned-by-other-driver", "failed", "nouveau"),
    ("kernel/nvlink-postrx-wedge-h100.txt", "nvlink-driver-wedged", "failed", "reset"),
    ("kernel/rminit-failed-passthrough-p40.txt", "gpu-init-failed", "failed", "0x24:0x72:1447"),
    ("kernel/xid-119-gsp-timeout-h100.txt", "gsp-timeout", "failed", "0000:9b:00"),
    ("kernel/xid-13-31-109-training.txt", "gpu-application-fault", "failed", "dcgmi diag"),
    ("kernel/xid-13-31-119-154-h100.txt", "gsp-timeout", "failed", "GPU Reset Required"),
    ("kernel/xid-13-43-warp-exception.txt", "gpu-application-fault", "failed", "Out Of Range Address"),
    ("kernel/xid-13-then-rminit-failed.txt", "gpu-init-failed", "failed", "Xid 13"),
    ("kernel/xid-145-149-nvlink5-without-times.txt", "nvlink-fault", "failed", "Xid 149"),
    ("kernel/xid-149-154-nvlink5-gb200.txt", "nvlink-fault", "failed", "GPU Reset Required"),
    ("kernel/xid-48-63-94-contained-ecc.txt", "gpu-memory-contained", "failed", "1248209"),
    ("kernel/xid-79-sxid-20034.txt", "gpu-off-bus", "failed", "0000:91:00"),
    ("dcgm/diag-r1-persistence-fail-h100x8.txt", "gpu-diagnosis-setting", "degraded", "nvidia-smi -pm 1"),
    ("dcgm/diag-r2-gpu0-thermal-fail.txt", "gpu-thermal-violation", "failed", "13.3 seconds"),
    ("dcgm/diag-remap-pending.txt", "gpu-diagnosis-memory", "failed", "GPU 3"),
    ("fabric-manager/fabricmanager-log-many-12028.txt", "nvswitch-nonfatal", "degraded", "12028"),
    ("fabric-manager/fabricmanager-log-nonfatal-12028.txt", "nvswitch-nonfatal", "degraded", "12028"),
    ("smi-error/csv-row-then-gpu-lost.txt", "gpu-off-bus", "failed", "0000:0a:00"),
    ("smi-error/device-handle-not-found.txt", "gpu-handle-not-found", "failed", "0000:07:00"),
    ("smi-error/driver-library-mismatch-with-nvml-version.txt", "driver-library-mismatch", "failed", "580.126"),
    ("smi-error/gpu-is-lost.txt", "gpu-off-bus", "failed", "0000:05:00"),
    ("smi-error/no-communication-with-driver.txt", "driver-not-loaded", "failed", "dkms"),
    ("smi-error/no-libnvidia-ml-in-container.txt", "nvml-library-missing", "failed", "utility"),
]
QUIET = (
    "kernel/driver-load-535-healthy.txt", "kernel/kmsg-raw-nvswitch-open.txt", "kernel/pcie-limited-by-gen4-switch.txt",
    "kernel/peermem-invalid-context.txt", "dcgm/discovery-l-h800-cut.txt", "mig/lgip-lgi-lcip-a30.txt",
    "nvlink/status-inactive-rtx2080s.txt", "nvlink/status-no-nvlink-l40s.txt", "proc/driver-nvidia-version-open-580.txt",
)  # fmt: skip


@pytest.mark.parametrize(("name", "root", "state", "word"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_faulty_capture(name: str, root: str, state: str, word: str) -> None:
    report = read_text(shared_file("captures", "nvidia", *name.split("/")).read_text())
    assert (report.root_cause, report.verdict.state) == (root, state)
    made = report.root
    assert made is not None
    told = " ".join([made.title, made.cause, *(f"{r.action} {r.command}" for r in made.remedies),
                     *(f"{c.why} {c.command}" for c in made.next_checks)])  # fmt: skip
    assert word in told


@pytest.mark.parametrize("name", QUIET)
def test_healthy_or_harmless_capture_makes_no_error(name: str) -> None:
    report = read_text(shared_file("captures", "nvidia", *name.split("/")).read_text())
    assert [f.id for f in report.findings if f.severity == "error"] == []
