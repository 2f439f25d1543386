"""PCIe links, NVLink and topology: what is power saving, what is lost, who can talk to whom."""

from __future__ import annotations

from conftest import read_text
from smi_text import found, ids

LINK = "    LnkCap: Port #0, Speed 32GT/s, Width x16, ASPM L1\n    LnkSta: Speed {speed}GT/s (downgraded), Width x{width} ({state})\n"
CSV = (
    "index, utilization.gpu [%], pcie.link.gen.gpucurrent, pcie.link.gen.gpumax, pcie.link.gen.hostmax, "
    "pcie.link.width.current, pcie.link.width.max\n"
)


def test_low_speed_at_full_width_is_power_saving() -> None:
    report = read_text(LINK.format(speed="2.5", width=16, state="ok"))
    assert report.verdict.state == "healthy" and report.root_cause is None
    idle = found(report, "pcie-link-idle")
    assert "2.5 GT/s" in idle.title and "x16" in idle.cause and "under load before blaming" in idle.cause


def test_lost_lanes_are_real_at_any_time() -> None:
    report = read_text(LINK.format(speed="2.5", width=4, state="downgraded"))
    root = report.root
    assert root is not None and root.id == "pcie-link-narrow" and root.certainty == "likely"
    assert "x4" in root.title and "x4 of x16 gives 25%" in root.cause


def test_the_status_line_alone_is_enough() -> None:
    for line in (
        "LnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)",
        "LnkSta: Speed 2.5GT/s, Width x16, TrErr- Train- SlotClk+",
    ):
        report = read_text(f"\t\t{line}\n")
        assert report.verdict.state == "healthy" and "pcie-link-idle" in ids(report)
    assert read_text("\tLnkSta: Speed 16GT/s (ok), Width x8 (downgraded)\n").root_cause == "pcie-link-narrow"


def test_speed_counts_only_under_load_and_against_what_both_ends_can() -> None:
    assert read_text(CSV + "0, 98 %, 2, 4, 5, 16, 16\n").root_cause == "pcie-slow-under-load"
    assert "pcie-slow-under-load" not in ids(read_text(CSV + "0, 98 %, 4, 4, 5, 16, 16\n"))
    assert read_text(CSV + "0, 0 %, 1, 4, 5, 16, 16\n").verdict.state == "healthy"


def nvlink(*speeds: str, name: str = "NVIDIA H200") -> str:
    return f"GPU 0: {name} (UUID: GPU-0000)\n" + "".join(f"\t Link {n}: {speed}\n" for n, speed in enumerate(speeds))


def test_nvlink() -> None:
    assert read_text(nvlink(*["26.562 GB/s"] * 18)).verdict.sentence.startswith("GPU 0 has all 18 NVLink links up")
    lost = read_text(nvlink("26.562 GB/s", "<inactive>"))
    assert lost.root_cause == "nvlink-links-inactive" and "GPU 0: link 1" in lost.findings[0].title
    silent = "GPU 0: {} (UUID: GPU-0000)\nNVML: Unable to retrieve Nvlink information as all links are inActive\n"
    assert read_text(silent.format("NVIDIA GeForce RTX 3090")).root_cause is None
    assert read_text(silent.format("NVIDIA H100 80GB HBM3")).root_cause == "nvlink-all-inactive"


def matrix(*cells: str) -> str:
    names = [f"GPU{n}" for n in range(len(cells))]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    lines += [f"{name}\t" + "\t".join(row.split()) + "\t0-31\t0" for name, row in zip(names, cells, strict=True)]
    return "\n".join(lines) + "\n"


def test_topology() -> None:
    joined = read_text(matrix("X NV18", "NV18 X"))
    assert "joined by NVLink (NV18)" in joined.findings[0].title
    sockets = read_text(matrix("X NODE SYS SYS", "NODE X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"))
    apart = found(sockets, "topology-pcie")
    assert (
        "4 × SYS" in apart.title and "GPU0+GPU1 and GPU2+GPU3" in apart.cause and "virtual machine" not in apart.cause
    )
    bridges = read_text(matrix("X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"))
    assert "GPU0+GPU1 and GPU2+GPU3" in found(bridges, "topology-mixed").cause
    assert "virtual machine" in found(read_text(matrix("X PHB", "PHB X")), "topology-pcie").cause


def test_no_peer_access() -> None:
    none = found(read_text("        GPU0    GPU1\n GPU0   X       CNS\n GPU1   CNS     X\n"), "p2p-not-supported")
    assert "CNS: chipset not supported" in none.title and "host memory" in none.cause
