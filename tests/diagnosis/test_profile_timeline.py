"""Timelines judged: what a GPU's gaps waited for, copies and kernels; figures are those that were put in."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loadpath.core.report import Finding, Report
from loadpath.reading.service import read_bytes
from recordings import Call, Work, eager_decode, torch_trace


def judged(work: list[Work], calls: list[Call] = [], **more: str) -> Report:  # noqa: B006 (never changed)
    return read_bytes([("trace.json", torch_trace(work, calls).encode()), *((n, t.encode()) for n, t in more.items())])


def one(report: Report, id: str) -> Finding:
    return next(f for f in report.findings if f.id == id)


def fed(
    count: int = 40, kernel: float = 400.0, every: float = 410.0, ahead: float = 900.0
) -> tuple[list[Work], list[Call]]:
    """Long kernels whose launches come well before they can start."""
    work = [Work("gemm_bf16", every * n, every * n + kernel, n + 1) for n in range(count)]
    return work, [Call("cudaLaunchKernel", w.start - ahead, w.start - ahead + 6, w.number) for w in work]


def test_small_kernels_launched_one_by_one_are_the_root_and_graphs_the_remedy() -> None:
    report = judged(*eager_decode())
    assert report.root_cause == "profile-launch-bound" and report.verdict.state == "degraded"
    root = report.findings[0]
    assert "A kernel runs 3 µs, the call that launches one takes 6 µs" in root.cause
    assert "profile-gpu-idle" in root.consequences
    assert "graph" in root.remedies[0].action and "48 %" in root.remedies[0].effect


def test_the_remedy_names_the_flag_of_the_engine_at_hand() -> None:
    log = "INFO 11-30 07:41:02 [api_server.py:1977] vLLM API server version 0.11.0\n"
    root = judged(*eager_decode(), server=log).findings[0]
    assert "--enforce-eager" in root.remedies[0].action and "SGLang" not in root.remedies[0].action


def test_a_supplied_gpu_is_healthy_and_the_next_tool_is_named() -> None:
    report = judged(*fed())
    assert report.verdict.state == "healthy"
    busy = one(report, "profile-gpu-busy")
    assert busy.next_checks[0].command.startswith("ncu --set full --kernel-name regex:gemm_bf16")
    assert not {f.id for f in report.findings} & {"profile-gpu-idle", "profile-launch-bound", "profile-host-bound"}


def test_work_that_was_queued_in_time_is_not_blamed_on_the_host() -> None:
    work, calls = fed(every=800.0, ahead=5000.0)  # half of the time another stream's event is waited for
    report = judged(work, calls)
    assert report.root_cause == "profile-gpu-idle"
    assert "49 % the next work was queued" in one(report, "profile-gpu-idle").cause
    assert not {f.id for f in report.findings} & {"profile-host-bound", "profile-sync-drain", "profile-launch-bound"}


def test_waits_that_drain_the_stream_are_told_from_late_launches() -> None:
    work, _ = fed(every=1000.0)
    calls = [Call("cudaLaunchKernel", w.start - 20, w.start - 14, w.number) for w in work]
    waits = [Call("cudaStreamSynchronize", w.start + 5, w.end + 2) for w in work]
    synced = judged(work, calls + waits)
    assert synced.root_cause == "profile-sync-drain"
    assert "40 calls of cudaStreamSynchronize" in one(synced, "profile-sync-drain").cause
    assert judged(work, calls).root_cause == "profile-host-bound"


def test_allocations_between_kernels_are_named() -> None:
    work, _ = fed(every=1000.0)
    calls = [Call("cudaLaunchKernel", w.start - 20, w.start - 14, w.number) for w in work]
    frees = [Call("cudaFree", a.end + 10, b.start - 30) for a, b in pairwise(work)]
    found = judged(work, calls + frees).findings[0]
    assert found.id == "profile-allocation-stalls" and "39 x cudaFree" in found.cause


def test_graphs_are_not_advised_where_the_kernels_already_come_from_graphs() -> None:
    from loadpath.intake.clean import clean
    from loadpath.reading.service import read_lines  # a digest that was kept is read like any capture

    digest = (
        '#loadpath-timeline {"tool":"nsys","gpus":1}\n'
        'gpu {"gpu":0,"span_seconds":1.0,"busy_seconds":0.6,"kernel_seconds":0.6,"kernels":9000,"graph_kernels":8800,'
        '"gaps":300,"gap_seconds":{"host":0.4},"small_gaps":250,"small_gap_seconds":0.2}\n'
        'launch {"gpu":0,"launches":200,"call_seconds":6e-06,"kernel_seconds":5e-06,"outrun":120}\n'
    )
    report = read_lines([("kept.txt", clean(digest.encode()))])
    assert report.root_cause == "profile-host-bound"


def test_one_long_pause_is_said_and_nothing_blamed() -> None:
    work, calls = fed()
    late = [Work("gemm_bf16", w.start + 3e6, w.end + 3e6, w.number + 100) for w in work]
    report = judged(work + late, calls)
    pause = one(report, "profile-pause")
    assert report.verdict.state != "degraded"
    assert pause.next_checks[0].command == "loadpath profile FILE --window 3.000:"


def test_pageable_copies_that_nothing_hides() -> None:
    work, calls = fed(every=1000.0, ahead=5000.0)
    copies = [Work("HtoD pageable", w.end + 50, w.end + 550, bytes=1_500_000, kind="copy", stream=8) for w in work]
    report = judged(work + copies, calls)
    exposed = one(report, "profile-exposed-copies")
    assert "40 copies, 57 MiB, 3 GB/s" in exposed.cause and "pageable" in exposed.cause
    assert "profile-pageable-copies" in exposed.consequences
    hidden = [Work("HtoD pinned", w.start + 10, w.start + 380, bytes=9_000_000, kind="copy", stream=8) for w in work]
    assert not [f for f in judged(work + hidden, calls).findings if "copies" in f.id]


def test_copies_of_a_token_a_step_are_no_finding() -> None:
    report = judged(*eager_decode())
    assert not [f for f in report.findings if "copies" in f.id]


def test_communication_is_not_blamed_on_the_link() -> None:
    work, calls = fed()
    ring = [Work("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclArgs)", w.start, w.end, stream=9) for w in work]
    found = one(judged(work + ring, calls), "profile-communication")
    assert found.severity == "info" and "waiting for a slower rank" in found.cause


def test_a_recording_of_the_host_alone_says_so() -> None:
    report = judged([], [])
    assert report.findings[0].id == "profile-no-gpu-work" and "3 events of the host" in report.findings[0].cause
    assert report.verdict.state == "unknown"


@pytest.mark.parametrize("table", ["profile-gpus", "profile-kernels-0", "profile-copies", "profile-calls"])
def test_the_report_holds_the_tables(table: str) -> None:
    assert table in {t.id for t in judged(*eager_decode()).tables}


def test_sums_of_nsys_stats_are_only_sums() -> None:
    text = (
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "99.0,6000000000,1000000,6000.0,5800.0,3000,400000,100.0,cudaLaunchKernel\n\n"
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "100.0,3000000000,1000000,3000.0,2900.0,2000,9000,100.0,silu_and_mul_kernel\n"
    )
    report = read_bytes([("stats.csv", text.encode())])
    root = one(report, "profile-launches-outweigh")
    assert root.certainty == "likely" and "at most 50 % of the time" in root.cause
    assert "nsys export" in root.next_checks[0].command


def test_each_ranks_file_is_judged_by_its_own_kernels() -> None:
    work, calls = fed()
    slow = [Work("attention_kernel", w.start, w.end, w.number) for w in work]
    ranks = [(f"rank{n}.json", torch_trace(own, calls).encode()) for n, own in enumerate((work, slow))]
    report = read_bytes(ranks)
    titles = {t.title for t in report.tables if t.id.startswith("profile-kernels")}
    assert titles == {"Kernels of GPU 0 in rank0.json by time", "Kernels of GPU 0 in rank1.json by time"}
    assert one(report, "profile-dominant-kernel").title == "gemm_bf16 takes 100 % of the kernel time of GPU 0"


def test_kernels_of_a_graph_are_known_by_the_call_that_launched_it() -> None:
    steps, calls = [], []
    for n in range(30):
        calls.append(Call("cudaGraphLaunch", 1000.0 * n, 1000.0 * n + 60, n + 1))
        steps += [Work("rms_norm_kernel", 1000.0 * n + 80 + 10 * k, 1000.0 * n + 88 + 10 * k, n + 1) for k in range(50)]
    found = {f.id for f in judged(steps, calls).findings}
    assert "profile-launch-bound" not in found and "profile-host-bound" in found


def test_a_handful_of_kernels_has_no_pace() -> None:
    report = judged(*eager_decode(steps=1, kernels=8))
    assert {f.id for f in report.findings} >= {"profile-short"} and report.verdict.state == "unknown"


def test_clocks_that_are_apart_make_causes_likely_only() -> None:
    work, calls = eager_decode()
    late = [Call(c.name, c.start + 40, c.end + 40, c.number) for c in calls]
    report = judged(work, late)
    blamed = [f for f in report.findings if f.severity == "warning"]
    assert blamed and all(f.certainty == "likely" or f.id == "profile-gpu-idle" for f in blamed)
    assert "the recorded clocks of host and GPU are apart" in blamed[0].cause
