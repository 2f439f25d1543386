"""`topo -m` and `topo -p2p`."""

from __future__ import annotations

import pytest

from conftest import shared_file
from loadpath.core.facts.gpu import Topology
from loadpath.core.text import Capture
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import topo


def topology(text: str) -> Topology:
    lines = clean(text.encode())
    start = next(i for i in range(len(lines)) if topo.extent(lines, i) > i)
    return next(iter(topo.read(Capture("topo", "paste", tuple(lines[start : topo.extent(lines, start)])))))


@pytest.mark.parametrize("sep", ["\t", "    "], ids=["tabs", "blanks"])
def test_matrix(sep: str) -> None:
    rows = [
        ["", "GPU0", "GPU1", "NIC0", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"],
        ["GPU0", " X ", "NV4", "PIX", "0-31", "0", "", "N/A"],
        ["GPU1", "NV4", " X ", "SYS", "32-63", "1", "", "N/A"],
        ["NIC0", "PIX", "SYS", " X "],
    ]
    found = topology(
        "\n".join(sep.join(row) for row in rows) + "\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    assert (found.gpus, found.nics) == (("GPU0", "GPU1"), ("NIC0",))
    assert (found.between("GPU0", "GPU1"), found.between("GPU1", "NIC0")) == ("NV4", "SYS")
    assert found.numa == {"GPU0": "0", "GPU1": "1"}


def test_a_matrix_that_was_cut() -> None:
    found = topology("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNODE\tSYS\t0-47\n")
    assert found.between("GPU0", "GPU2") == "SYS"


def test_peer_access() -> None:
    found = topology("        GPU0    GPU1\n GPU0   X       CNS\n GPU1   CNS     X\n")
    assert (found.what, found.between("GPU0", "GPU1")) == ("p2p", "CNS")


def test_inside_an_environment_report_and_with_underline_codes() -> None:
    folder = ("captures", "nvidia", "topo")
    inside = topology(shared_file(*folder, "inside-vllm-collect-env-two-nics.txt").read_text())
    assert inside.between("GPU0", "GPU1") == "NODE"
    assert topology(shared_file(*folder, "one-gpu-ansi-escapes-h200.txt").read_text()).gpus == ("GPU0",)
    assert topology(shared_file(*folder, "gb200x4-eight-nics-spaces.txt").read_text()).numa["GPU2"] == "1,18-33"
