"""nvidia-smi's table in every layout, and as people paste it."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import pytest

from conftest import SHARED, shared_file
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import (
    DriverVersions,
    GpuProcess,
    GpuState,
    InforomCorrupted,
    MigInstance,
    SmiSnapshot,
)
from loadpath.core.text import Capture
from loadpath.core.units import MIB, mib
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import table

F = TypeVar("F", bound=Fact)
EXPECTED = SHARED / "captures" / "nvidia" / "expected-tables.json"
SAMPLES: dict[str, Any] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}


def facts_in(text: str) -> list[Fact]:
    """The facts of every table in `text`."""
    lines = clean(text.encode())
    facts: list[Fact] = []
    i = 0
    while i < len(lines):
        end = table.extent(lines, i)
        if end > i:
            facts += table.read(Capture("nvidia-smi", "paste", tuple(lines[i:end])))
        i = max(end, i + 1)
    return facts


def only(facts: list[Fact], kind: type[F]) -> list[F]:
    return [fact for fact in facts if isinstance(fact, kind)]


def whole(size: int | None) -> int | None:
    return None if size is None else size // MIB


@pytest.mark.skipif(not SAMPLES, reason="the project's shared samples are not here")
@pytest.mark.parametrize("name", list(SAMPLES))
def test_figures_of_every_shared_sample(name: str) -> None:
    facts = facts_in(shared_file("captures", "nvidia", name).read_text(errors="replace"))
    expected = SAMPLES[name]
    versions = only(facts, DriverVersions)[0]
    for key in ("driver", "tool", "cuda"):
        assert (getattr(versions, key) or "N/A") == (expected[key] or "N/A")
    shown = [
        {
            "index": g.index, "name": g.name, "bus": g.bus_id or "N/A", "used": whole(g.used_bytes),
            "total": whole(g.total_bytes), "util": None if g.utilisation is None else round(g.utilisation * 100),
        }
        for g in only(facts, GpuState)
    ]  # fmt: skip
    assert shown == expected["gpus"]
    processes = [
        {"gpu": p.index, "pid": p.pid, "type": p.kind, "mib": whole(p.used_bytes)} for p in only(facts, GpuProcess)
    ]
    assert processes == expected["processes"]


OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:15:00.0 Off |                    2 |
| N/A   58C    P0   214W / 300W |  30112MiB / 32510MiB |     88%      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     40217      C   python3                                    30101MiB |
+-----------------------------------------------------------------------------+
"""

NEW = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA B200                    On  |   00000000:1B:00.0 Off |                    0 |
| N/A   44C    P0            311W / 1000W |  161022MiB / 183359MiB |      0%      Default |
|                                         |                        |            Disabled* |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA B200                    On  |   00000000:43:00.0 N/A |                  N/A |
|ERR!   41C    P0            N/A  /  N/A  |       0MiB / 183359MiB |     N/A   E. Process |
|                                         |                        |                 ERR! |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A          812345      C   VLLM::Worker_TP0                      16101... |
|    0   N/A  N/A          812400      C   /opt/my tools/probe                     512MiB |
+-----------------------------------------------------------------------------------------+
WARNING: infoROM is corrupted at gpu 0000:43:00.0
14
"""

MIG = """\
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:9B:00.0 Off |                   On |
| N/A   33C    P0             95W /  700W |                  N/A   |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
| MIG devices:                                                                            |
|  0    1   0   0  |            5120MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |
|                  |               0MiB / 24739MiB    |           |                       |
|  0    1   1   1  |            5120MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |
|                  |               0MiB / 24739MiB    |           |                       |
| Processes:                                                                              |
|    0    1    0            21180      C   python3                                2296MiB |
"""


def test_old_layout_without_instance_columns() -> None:
    facts = facts_in(OLD)
    gpu = only(facts, GpuState)[0]
    assert (gpu.name, gpu.name_cut, gpu.uncorrected_errors) == ("Tesla V100-SXM2...", True, 2)
    assert (gpu.power_w, gpu.power_cap_w, gpu.temperature_c, gpu.performance_state) == (214, 300, 58, "P0")
    process = only(facts, GpuProcess)[0]
    assert (process.pid, process.kind, process.name, process.used_bytes) == (40217, "C", "python3", mib(30101))
    assert only(facts, SmiSnapshot)[0].processes == "rows"


def test_new_words_a_dead_gpu_and_a_figure_that_does_not_fit() -> None:
    facts = facts_in(NEW)
    assert only(facts, DriverVersions)[0].driver == "610.43.02"
    alive, dead = only(facts, GpuState)
    assert alive.mig == "Disabled" and alive.mig_pending
    assert set(dead.failed_cells) == {"fan", "MIG"} and dead.utilisation is None and dead.compute_mode == "E. Process"
    cut, spaced = only(facts, GpuProcess)
    assert cut.used_bytes is None and cut.cut, "16101... is 161,01x MiB, never 16,101"
    assert spaced.name == "/opt/my tools/probe"
    assert only(facts, InforomCorrupted)[0].bus_id == "0000:43:00.0"


def test_instances_and_a_table_without_its_head() -> None:
    facts = facts_in(MIG)
    gpu = only(facts, GpuState)[0]
    assert (gpu.mig, gpu.memory, gpu.used_bytes) == ("Enabled", "hidden", None)
    assert [(m.gpu_instance, m.compute_instance, m.used_bytes) for m in only(facts, MigInstance)] == [
        (1, 0, mib(5120)), (1, 1, mib(5120)),
    ]  # fmt: skip
    assert only(facts, GpuProcess)[0].gpu_instance == 1


def mangled(text: str, how: str) -> str:
    lines = text.splitlines()
    if how == "blanks collapsed":
        return re.sub(" +", " ", text)
    if how == "indented":
        return "\n".join("      " + line for line in lines)
    if how == "quoted":
        return "\n".join("> " + line for line in lines)
    if how == "with times":
        return "\n".join("2026-11-12T11:02:55.123456789Z " + line for line in lines)
    return "\n".join(part for line in lines for part in (line[:80], line[80:]) if part)


@pytest.mark.parametrize("how", ["blanks collapsed", "indented", "quoted", "with times", "wrapped at 80"])
@pytest.mark.parametrize("text", [OLD, NEW], ids=["old", "new"])
def test_a_paste_that_lost_its_shape_keeps_its_figures(text: str, how: str) -> None:
    def figures(facts: list[Fact]) -> list[object]:
        return [
            *[
                (g.index, g.name, g.bus_id, g.used_bytes, g.utilisation, g.mig, g.failed_cells)
                for g in only(facts, GpuState)
            ],
            *[(p.pid, p.name, p.used_bytes, p.cut) for p in only(facts, GpuProcess)],
        ]

    assert figures(facts_in(mangled(text, how))) == figures(facts_in(text))


def test_two_tables_of_a_loop_are_two_captures() -> None:
    lines = clean((OLD + OLD).encode())
    end = table.extent(lines, 0)
    assert end < len(lines) and table.extent(lines, end) == len(lines)


def test_other_tables_with_bars_are_not_claimed() -> None:
    lines = clean(b"| model | tokens/s |\n|-------|----------|\n| a     | 12       |\n")
    assert table.extent(lines, 0) == 0
