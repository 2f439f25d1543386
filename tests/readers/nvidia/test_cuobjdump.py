"""cuobjdump's list of a library's GPU code, and what it means for the card in the same paste."""

from __future__ import annotations

from conftest import read_text

LISTED = """$ cuobjdump --list-elf --list-ptx libkernels.so
ELF file    1: libkernels.1.sm_80.cubin
ELF file    2: libkernels.2.sm_90a.cubin
ELF file    3: libkernels.3.sm_80.cubin
PTX file    1: libkernels.1.sm_80.ptx
"""


def test_entries_are_counted_by_architecture() -> None:
    (fact,) = [f for f in read_text(LISTED).facts if f["type"] == "GpuCodeFound"]
    assert (fact["native"], fact["ptx"]) == ({"sm_80": 2, "sm_90a": 1}, {"compute_80": 1})


def test_a_library_without_code_for_the_card_is_the_cause() -> None:
    listed = LISTED.replace("PTX file    1: libkernels.1.sm_80.ptx\n", "")
    gpu = "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-5c1a6a3e-1111-2222-3333-444455556666)\n"
    report = read_text(listed + "\n" + gpu)
    assert report.root_cause == "gpu-code-missing"
    assert "libkernels has no code for NVIDIA GeForce RTX 5090 (sm_120)" in report.findings[0].title
