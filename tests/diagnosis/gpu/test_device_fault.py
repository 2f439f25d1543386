"""Device faults: the first hardware fault leads, followers fold, the driver's own recovery action rules."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.report import Finding, Report


def root(text: str) -> Finding:
    report = read_text(text)
    assert report.root is not None, "a root cause"
    return report.root


def said(finding: Finding) -> str:
    return " ".join([finding.title, finding.cause, *(r.action for r in finding.remedies)])


def xid(code: int, rest: str, *, pci: str = "0000:3b:00", at: str = "12:00:00") -> str:
    return f"Jun 14 {at} gpu-17 kernel: NVRM: Xid (PCI:{pci}): {code}, {rest}\n"


@pytest.mark.parametrize(
    ("code", "rest", "expected", "action"),
    [
        (79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "gpu-off-bus", "reboot"),
        (95, "pid=7, name=python3, Uncontained: FBHUB (0x1). RST: Yes", "gpu-memory-uncorrectable", "reset-gpu"),
        (140, "pid='<unknown>', An uncorrectable ECC error detected", "gpu-memory-uncorrectable", "reset-gpu"),
        (94, "pid=7, name=python3, Contained: SM (0x1). RST: No", "gpu-memory-contained", "restart-process"),
        (64, "pid=7, name=python3, Row Remapper: no spare rows", "gpu-memory-repair-failed", "reset-gpu"),
        (119, "pid=7, name=nvidia-smi, Timeout after 45s of waiting for RPC response", "gsp-timeout", "reset-gpu"),
        (62, "pid='<unknown>', name=<unknown>, 2023b230 20238a3a", "gpu-firmware-halted", "reset-gpu"),
        (109, "pid=7, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT", "gpu-hang", "reset-gpu"),
        (31, "pid=7, name=python3, MMU Fault: FAULT_PDE ACCESS_TYPE_VIRT_READ", "gpu-application-fault", "restart-process"),
        (43, "pid=7, name=python3, Ch 00000008", "gpu-application-fault", "restart-process"),
        (69, "pid=7, name=python3, Class Error: ChId 0008", "gpu-application-fault", "restart-process"),
        (74, "pid=7, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)", "nvlink-fault", "reset-gpu"),
        (32, "pid=7, name=python3, Channel ID 00000008 intr0 00040000", "pcie-data-corrupted", "restart-process"),
        (54, "pid='<unknown>', AUX power is not connected", "gpu-power-missing", "service"),
    ],
)  # fmt: skip
def test_each_kind_of_xid_has_its_finding_and_its_action(code: int, rest: str, expected: str, action: str) -> None:
    made = root(xid(code, rest))
    assert (made.id, made.operator_action) == (expected, action)
    assert "0000:3b:00" in said(made) and str(code) in said(made)


def test_a_clean_up_alone_is_no_fault() -> None:
    report = read_text(xid(45, "pid=7, name=python3, Ch 00000008"))
    assert report.root is None


def test_the_hardware_fault_leads_over_a_programs_fault_before_it() -> None:
    text = xid(31, "pid=7, name=plot, MMU Fault: ENGINE CE2") + xid(62, "pid='<unknown>', 2023b230", at="12:00:42")
    text += xid(45, "pid='<unknown>', Ch 00000008", at="12:00:42") + xid(
        45, "pid='<unknown>', Ch 00000009", at="12:00:44"
    )
    made = root(text)
    assert made.id == "gpu-firmware-halted"
    assert "Xid 31 (pid 7 (plot)) on 0000:3b:00 came 42 s earlier" in made.cause
    assert "45 is only the clean-up" in made.cause


def test_a_time_out_after_a_programs_fault_only_follows() -> None:
    made = root(xid(13, "Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter")
                + xid(109, "pid=7, name=train, Ch 00000008, errorString CTX SWITCH TIMEOUT", at="12:00:05"))  # fmt: skip
    assert made.id == "gpu-application-fault"
    assert "109 is only" in made.cause and "Illegal Instruction" in made.cause


def test_contained_memory_error_spares_the_other_processes() -> None:
    made = root(xid(48, "An uncorrectable double bit error (DBE) has been detected")
                + xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
                + xid(94, "Contained: SM (0x1). RST: No, D-RST: No") + xid(94, "pid=9, name=python3, Ch 00000008"))  # fmt: skip
    assert (made.id, made.blast_radius) == ("gpu-memory-contained", "process")
    assert "pid 9 (python3)" in made.cause


def test_uncontained_memory_error_needs_the_reset_first() -> None:
    made = root(
        xid(48, "double bit error") + xid(63, "Row Remapper: New row") + xid(95, "pid=9, name=python3, Uncontained")
    )
    assert (made.id, made.operator_action) == ("gpu-memory-uncorrectable", "reset-gpu")
    assert made.remedies[0].command == "nvidia-smi --gpu-reset -i 0000:3b:00.0"


@pytest.mark.parametrize(
    ("words", "action", "radius"),
    [("GPU Reset Required", "reset-gpu", "gpu"), ("Node Reboot Required", "reboot", "node"), ("OS Reboot", "reboot", "node"),
     ("Drain and Reset", "drain", "gpu"), ("Drain P2P", "drain", "serving-group")],
)  # fmt: skip
def test_the_drivers_own_recovery_action_overrides_the_table(words: str, action: str, radius: str) -> None:
    change = f"GPU recovery action changed from 0x0 (None) to 0x9 ({words})"
    made = root(xid(119, "pid=7, name=nvidia-smi, Timeout after 6s of waiting") + xid(154, change, at="12:00:01"))
    assert (made.id, made.operator_action, made.blast_radius) == ("gsp-timeout", action, radius)
    assert words in made.cause


def test_a_reboot_asked_after_a_programs_fault_is_about_the_node() -> None:
    reboot = "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    made = root(xid(31, "pid=7, name=python3.12, MMU Fault") + xid(154, reboot, pci="0000:01:00", at="12:02:04")
                + xid(154, reboot, at="12:02:04") + xid(154, reboot, pci="0000:71:00", at="12:02:04"))  # fmt: skip
    assert (made.id, made.operator_action) == ("gpu-recovery-required", "reboot")
    assert "Xid 31 on 0000:3b:00" in made.cause and "on 3 GPUs" in made.cause


def test_calls_to_a_dead_gsp_tell_how_long_each_waits() -> None:
    text = "".join(xid(119, "pid=5, name=nvidia-smi, Timeout waiting for RPC from GSP!", at=f"12:0{m}") for m in
                   ("0:00", "0:45", "1:30", "2:15"))  # fmt: skip
    made = root(text)
    assert "45 s" in made.cause and "victim" in made.cause


def test_two_gpus_with_two_faults_are_two_findings() -> None:
    report = read_text(
        xid(79, "GPU has fallen off the bus.") + xid(48, "double bit error", pci="0000:9b:00", at="18:00:00")
    )
    assert {"gpu-off-bus", "gpu-memory-uncorrectable"} <= {
        f.id for f in report.findings if f.severity == "error"
    } | set(consequences(report))


def consequences(report: Report) -> list[str]:
    return [name for f in report.findings for name in f.consequences]


def test_nonfatal_nvlink_events_that_decode_to_nothing_only_warn() -> None:
    report = read_text(
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x0)"
    )
    assert report.root is not None and report.root.severity == "warning" and report.verdict.state == "degraded"


def test_the_gpu_whose_link_died_leads_over_peers_that_report_it() -> None:
    made = root("NVRM: Xid (PCI:0009:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 02 (0x1 0x2)\n"
                "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x021425c6 0x00000000)\n")  # fmt: skip
    assert made.id == "nvlink-fault" and "Xid 149" in made.title


def test_the_cause_that_a_clean_up_names_is_believed() -> None:
    made = root(xid(45, "pid=7, name=python3, Ch 00000001 caused by previous Xid 149"))
    assert made.id == "nvlink-fault" and "149" in made.title


def test_bus_error_just_before_a_lost_gpu_points_at_the_slot() -> None:
    text = ("Jun 14 11:59:58 gpu-17 kernel: pcieport 0000:3a:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), "
            "type=Transaction Layer, (Requester ID)\n")  # fmt: skip
    report = read_text(text + xid(79, "GPU has fallen off the bus."))
    assert report.root is not None and report.root.id == "gpu-off-bus"
    assert "0000:3a:00 reported an uncorrected (fatal) PCIe error" in report.root.cause
    assert "pcie-uncorrected" in report.root.consequences


def test_ordinary_shortage_of_memory_never_asks_for_a_reset() -> None:
    report = read_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                       "79.11 GiB of which 1.22 GiB is free.")  # fmt: skip
    assert all(f.operator_action not in ("reset-gpu", "reboot") for f in report.findings)


def test_uncorrectable_ecc_told_by_cuda_alone() -> None:
    made = root("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert (made.boundary, made.operator_action) == ("device-fault", "reset-gpu")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "gpu-off-bus"),
        ("Unable to determine the device handle for GPU 0000:07:00.0: Not Found", "gpu-handle-not-found"),
        ("NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up,", "gsp-wpr2-up"),
        (
            "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
            "nvlink-driver-wedged",
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 28 sourcetrack timeout error",
            "nvswitch-fatal",
        ),
    ],
)
def test_faults_told_without_an_xid(line: str, expected: str) -> None:
    assert root(line).id == expected
