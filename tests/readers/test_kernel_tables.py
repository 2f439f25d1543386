"""Nsight Compute's CSV and printed pages, and the sums of `nsys stats`."""

from __future__ import annotations

import pytest

from conftest import read_text
from loadpath.core.facts.profile import ApiTime, CopyTime, KernelProfile, KernelTime
from loadpath.readers.profile.ncu_metrics import number, scale
from recordings import details, printed, raw

METRICS = {
    "gpu__time_duration.sum": ("us", "812.40"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "31.2"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "27.9"),
    "dram__bytes.sum.per_second": ("Gbyte/s", "41.5"),
    "launch__registers_per_thread": ("register/thread", "128"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("", "31,500,000"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("", "1,000,000"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "8.4"),
    "smsp__inst_executed.sum": ("inst", "n/a"),
}


def only(text: str) -> dict[str, object]:
    (found,) = [fact for fact in read_text(text).facts if fact["type"] == KernelProfile.__name__]
    return found


@pytest.mark.parametrize(
    ("unit", "factor"),
    [("%", 0.01), ("us", 1e-6), ("usecond", 1e-6), ("ms", 1e-3), ("s", 1), ("Gbyte/s", 1e9), ("Tbyte/second", 1e12), ("byte/block", 1),
     ("Kbyte/block", 1e3), ("cycle/nsecond", 1e9), ("Ghz", 1e9), ("", 1), ("inst", 1), ("register/thread", 1)],
)  # fmt: skip
def test_units(unit: str, factor: float) -> None:
    assert scale(unit) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("text", "value"), [("1,205.00", 1205), ("3,000,000", 3e6), ("9,00", 9), ("1.024,5", 1024.5), ("n/a", None)]
)
def test_figures_of_either_locale(text: str, value: float | None) -> None:
    assert number(text) == value


def test_the_raw_page_has_a_launch_a_line_and_its_units_under_the_head() -> None:
    told = only(raw("void sgemm<float>(float *)", METRICS))
    assert told["name"] == "sgemm" and told["threads"] == 256 and told["blocks"] == 4096 and told["capability"] == "8.9"
    assert told["figures"] == pytest.approx({
        "seconds": 812.4e-6, "memory": 0.312, "compute": 0.279, "dram_rate": 41.5e9, "registers": 128,
        "sectors_per_request_ld": 31.5, "dram_bytes": 41.5e9 * 812.4e-6,
    })  # fmt: skip
    assert told["stalls"] == {"long_scoreboard": 8.4}


def test_the_details_page_has_a_metric_a_line_and_two_memory_throughputs() -> None:
    told = only(details("copy(float *)", [
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "91.67"),
        ("GPU Speed Of Light Throughput", "Duration", "ms", "3.81"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "846.41"),
        ("Occupancy", "Block Limit Registers", "block", "4"),
    ]))  # fmt: skip
    assert told["figures"]["memory"] == pytest.approx(0.9167)  # type: ignore[index]
    assert told["figures"]["dram_rate"] == pytest.approx(846.41e9)  # type: ignore[index]
    assert told["figures"]["limit_registers"] == 4  # type: ignore[index]


def test_the_printed_page_gives_the_same_figures() -> None:
    told = only(printed("copy(float *, int)", [
        ("Memory Throughput", "%", "91.67"), ("Duration", "ms", "3.81"), ("Compute (SM) Throughput", "%", "15.54"),
        ("Elapsed Cycles", "cycle", "5,330,013"), ("Registers Per Thread", "register/thread", "16"),
    ]))  # fmt: skip
    assert told["name"] == "copy" and told["blocks"] == 4096 and told["capability"] == "8.6"
    assert told["figures"] == pytest.approx({"memory": 0.9167, "seconds": 3.81e-3, "compute": 0.1554, "registers": 16})
    assert "greater than 80" in next(iter(told["said"].values()))  # type: ignore[attr-defined]


CSV = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,750000000,1000,750000.0,740000.0,700000,990000,1000.0,"void gemm<int, float>(T1)"
25.0,250000000,500,500000.0,500000.0,400000,600000,900.0,softmax_kernel
"""
TEXT = """ ** CUDA API Summary (cuda_api_sum):

 Time (%)  Total Time (ns)  Num Calls   Avg (ns)   Med (ns)  Min (ns)  Max (ns)   StdDev (ns)          Name
 --------  ---------------  ---------  ----------  --------  --------  ---------  -----------  ---------------------
     80.0    1,610,220,114        900  1,789,133.5  1,702,210     2,210  12,004,113    301,220.2  cudaStreamSynchronize
     20.0      400,000,000     80,000      5,000.0      4,800     3,310     440,020      1,210.0  cudaLaunchKernel_v7000

 ** CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):

 Time (%)  Total Time (ns)  Count  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)           Operation
 --------  ---------------  -----  --------  --------  --------  --------  -----------  ----------------------------
    100.0          756,390      2   378,195   378,195   374,915   381,475      4,638.6  [CUDA memcpy Host-to-Device]
"""


def test_sums_as_csv_and_as_tables() -> None:
    facts = read_text(CSV).facts
    kernels = [f for f in facts if f["type"] == KernelTime.__name__]
    told = [(k["name"], k["count"], k["seconds"], k["share"]) for k in kernels]
    assert told == [("gemm", 1000, 0.75, 0.75), ("softmax_kernel", 500, 0.25, 0.25)]
    facts = read_text(TEXT).facts
    calls = {f["name"]: f for f in facts if f["type"] == ApiTime.__name__}
    assert calls["cudaStreamSynchronize"]["role"] == "sync" and calls["cudaStreamSynchronize"][
        "longest_seconds"
    ] == pytest.approx(12.004113e-3)
    assert calls["cudaLaunchKernel"]["median_seconds"] == pytest.approx(4.8e-6)
    (copy,) = [f for f in facts if f["type"] == CopyTime.__name__]
    assert copy["direction"] == "host-to-device" and copy["seconds"] == pytest.approx(756_390e-9)


def test_one_kind_of_tensor_instruction_proves_only_that_it_ran() -> None:
    kinds = {
        "sm__inst_executed_pipe_tensor_op_imma.sum": ("inst", "0"),
        "sm__inst_executed_pipe_tensor_op_hmma.sum": ("inst", "8,192"),
    }
    assert only(raw("gemm", kinds))["figures"] == {"tensor_instructions": 8192}
    assert only(raw("gemm", {"sm__inst_executed_pipe_tensor_op_imma.sum": ("inst", "0")}))["figures"] == {}


def test_a_long_raw_page_is_read_to_its_last_launch() -> None:
    many = {f"smsp__counter_{n}.sum": ("inst", "1,234") for n in range(400)}
    page = raw("sgemm", METRICS | many)
    head, line = page.rsplit("\n", 2)[0], page.rsplit("\n", 2)[1]
    text = head + "\n" + "".join(line.replace('"0"', f'"{n}"', 1) + "\n" for n in range(1, 500))
    assert len(text) > 1 << 20
    assert len([f for f in read_text(text).facts if f["type"] == KernelProfile.__name__]) == 499
