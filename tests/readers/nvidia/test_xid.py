"""Xid and SXid lines in every form in which they are printed or pasted."""

from __future__ import annotations

import pytest

from loadpath.core.facts.kernel import GpuIdentity, SxidEvent, XidEvent
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.nvidia import xid


def events(text: str) -> list[XidEvent]:
    facts = xid.read(Capture("log", "paste", tuple(clean(text.encode()))))
    return [fact for fact in facts if isinstance(fact, XidEvent)]


@pytest.mark.parametrize(
    ("line", "pci", "code", "pid", "name"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:3b:00", 79,
         None, None),
        ("NVRM: Xid (PCI:0000:18:00): 31, pid=4321, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
         "0000:18:00", 31, 4321, "python3"),
        ("NVRM: Xid (PCI:0018:01:00): 145, pid=77, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)",
         "0018:01:00", 145, 77, "ray::Worker"),
        ("NVRM: Xid (0000:03:00): 13, 0001 00000000 000090c0 00001b0c 00000000 00000000", "0000:03:00", 13, None, None),
        ("[ 12.345678] NVRM: Xid (PCI:0000:02:00): 13, pid=25450, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 1): "
         "Illegal Instruction Encoding", "0000:02:00", 13, 25450, None),
        ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=99, name=nvidia-smi, Timeout after 6s of waiting",
         "0000:9b:00", 119, 99, "nvidia-smi"),
        ("E0701 10:11:12.1 1 nvidia.go:188] XidCriticalError: Xid=48 on Device=GPU-11111111-2222; marking device as unhealthy.",
         "GPU-11111111-2222", 48, None, None),
        ("XID 79 (GPU has fallen off the bus) detected on PCI:0000:ae:00", "0000:ae:00", 79, None, None),
        ("kernel: NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)", "(not named)", 145, None, None),
        ("kernel: NVRM: Xid (PCI:0000:01:00): 62", "0000:01:00", 62, None, None),
        ("node-health: GPU 00000000:3B:00.0 Xid=119", "0000:3b:00", 119, None, None),
        ("19:15:34  Xid 31 PCI:0000:f0:00 pid=4774 UNRECOGNIZED_CLIENT", "0000:f0:00", 31, 4774, None),
    ],
)  # fmt: skip
def test_reads_an_xid_line(line: str, pci: str, code: int, pid: int | None, name: str | None) -> None:
    (event,) = events(line)
    assert (event.pci, event.code, event.pid, event.name) == (pci, code, pid, name)


def test_mig_instance_is_read() -> None:
    (event,) = events(
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    )
    assert (event.pci, event.code, event.gi) == ("0000:01:00", 94, 5)


def test_recovery_action_is_read() -> None:
    (event,) = events("NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")
    assert event.recovery == "OS Reboot"


def test_nvlink5_fields_are_read_through_runs_of_blanks() -> None:
    (event,) = events("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x021425c6 0x00000000)")
    assert (event.unit, event.fatal, event.link, event.words) == ("NETIR_LINK_EVT", True, -1, (0x021425C6, 0))


def test_cause_named_by_a_clean_up_is_read() -> None:
    (event,) = events("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149")
    assert event.caused_by == 149


def test_message_wrapped_by_an_editor_is_one_event() -> None:
    text = """\
Aug 19 11:36:35  NVRM: Xid (PCI:0000:02:00): 31, pid=56543, name=python3,
  channel 0x01000005. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x100_07600000.
  Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE
Aug 19 11:36:36  NVRM: Xid (PCI:0000:02:00): 45, pid=56543, name=python3, Ch 00000008
"""
    first, second = events(text)
    assert "FAULT_PTE ACCESS_TYPE_VIRT_WRITE" in first.detail and first.span.last_line == 3
    assert second.code == 45


def test_advice_that_mentions_an_xid_is_no_event() -> None:
    assert events("check dmesg for Xid 79 and reseat the card") == []
    assert events("DCGM_FI_DEV_XID_ERRORS 0") == []


def test_sxid_and_identity() -> None:
    text = """\
[12.5] NVRM: GPU at PCI:0000:91:00: GPU-00000001-0000-4000-8000-000000000001
[13.5] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
[13.6] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Severity 1 Engine instance 30
[13.7] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
"""
    facts = list(xid.read(Capture("log", "paste", tuple(clean(text.encode())))))
    assert [fact.fatal for fact in facts if isinstance(fact, SxidEvent)] == [True, None, False]
    (identity,) = (fact for fact in facts if isinstance(fact, GpuIdentity))
    assert identity.pci == "0000:91:00"
