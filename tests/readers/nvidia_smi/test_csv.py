"""CSV queries: header or none, units or none, once or in a loop."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.facts.base import Fact
from loadpath.core.facts.gpu import GpuClocks, GpuProcess, GpuSeries, GpuState
from loadpath.core.text import Capture
from loadpath.core.units import mib
from loadpath.intake.clean import clean
from loadpath.readers.nvidia_smi import csv


def facts_in(text: str) -> list[Fact]:
    lines = clean(text.encode())
    end = csv.extent(lines, 0)
    assert end == len([line for line in lines if line.text]), "claims every line"
    return list(csv.read(Capture("nvidia-smi-csv", "paste", tuple(lines[:end]))))


def gpus(text: str) -> list[GpuState]:
    return [fact for fact in facts_in(text) if isinstance(fact, GpuState)]


@pytest.mark.parametrize(
    "text",
    [
        "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n3, NVIDIA L4, 9214 MiB, 23034 MiB, 55 %\n",
        "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n3, NVIDIA L4, 9214, 23034, 55\n",
        "nvidia-smi --query-gpu=index,name,memory.used,memory.total,utilization.gpu --format=csv,noheader\n"
        "3, NVIDIA L4, 9214 MiB, 23034 MiB, 55 %\n",
    ],
    ids=["units", "nounits", "noheader"],
)
def test_same_figures_in_every_form(text: str) -> None:
    (gpu,) = gpus(text)
    assert (gpu.index, gpu.name, gpu.used_bytes, gpu.total_bytes, gpu.utilisation) == (
        3,
        "NVIDIA L4",
        mib(9214),
        mib(23034),
        0.55,
    )


def test_a_row_alone_is_read_by_the_form_of_its_cells() -> None:
    (gpu,) = gpus("1, NVIDIA A40, 00000000:C1:00.0, 71.20 W, 46068 MiB, 30112 MiB\n")
    assert (gpu.index, gpu.bus_id, gpu.power_w) == (1, "00000000:C1:00.0", 71.2)
    assert (gpu.used_bytes, gpu.total_bytes) == (mib(30112), mib(46068))


def test_reason_masks() -> None:
    facts = facts_in("NVIDIA L4, 0x0000000000000001\nNVIDIA H100, 0x0000000000000088\n")
    assert [c.reasons for c in facts if isinstance(c, GpuClocks)] == [("idle",), ("hw-slowdown", "power-brake")]


def test_processes() -> None:
    facts = facts_in(
        "gpu_bus_id, pid, process_name, used_gpu_memory [MiB]\n00000000:17:00.0, 4711, /opt/vllm/bin/python3, 69608 MiB\n"
    )
    (process,) = facts
    assert isinstance(process, GpuProcess)
    assert (process.pid, process.bus_id, process.used_bytes) == (4711, "00000000:17:00.0", mib(69608))


def test_a_loop_is_a_series_and_its_last_round_the_state() -> None:
    rows = "".join(f"2026/11/12 10:00:0{n}.000, 0, {10 * n} %, {100 + n} W\n" for n in range(5))
    facts = facts_in("timestamp, index, utilization.gpu [%], power.draw [W]\n" + rows)
    series = next(fact for fact in facts if isinstance(fact, GpuSeries))
    assert series.columns["sm"] == (0, 10, 20, 30, 40) and series.columns["pwr"][-1] == 104
    assert gpus("timestamp, index, utilization.gpu [%], power.draw [W]\n" + rows)[0].utilisation == 0.4


def test_what_could_not_be_read_is_named() -> None:
    (gpu,) = gpus("index, name, power.draw [W], fan.speed [%]\n0, NVIDIA L4, [Unknown Error], [N/A]\n")
    assert gpu.failed_cells == ("power",)


def test_prose_with_commas_is_not_csv() -> None:
    lines = clean(b"I tried vllm, sglang, and llama.cpp on the GPU, none of them works\n")
    assert csv.extent(lines, 0) == 0


def test_the_compute_capability_is_read_with_the_name() -> None:
    report = read_text(
        "$ nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader\nNVIDIA GeForce GTX 1080 Ti, 6.1\n"
    )
    (model,) = [fact for fact in report.facts if fact["type"] == "GpuModel"]
    assert (model["name"], model["capability"]) == ("NVIDIA GeForce GTX 1080 Ti", "6.1")
