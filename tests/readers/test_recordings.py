"""Nsight Systems' export and the torch profiler's trace: the same work gives the same digest, whatever is missing."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from loadpath.core.facts.profile import CopyTime, GpuTimeline, KernelTime, LaunchCost, LongGap
from loadpath.readers.profile import torch_trace as reader
from loadpath.readers.profile.gpu_timeline import digest
from loadpath.readers.profile.gpu_work import View
from loadpath.readers.profile.nsys_sqlite import NoExport, trace_of
from loadpath.reading.service import read_bytes, read_paths
from recordings import PROCESS, Call, Work, eager_decode, nsys_export, torch_trace


def facts(report: object, kind: type) -> list[dict[str, object]]:
    return [fact for fact in report.facts if fact["type"] == kind.__name__]  # type: ignore[attr-defined]


def test_the_figures_of_a_timeline_are_those_that_were_recorded(tmp_path: Path) -> None:
    report = read_paths([str(nsys_export(tmp_path / "run.sqlite", *eager_decode(steps=10, kernels=50)))])
    (gpu,) = facts(report, GpuTimeline)
    assert gpu["name"] == "NVIDIA L4" and gpu["kernels"] == 500
    assert gpu["span_seconds"] == pytest.approx(10 * 400e-6 + 9 * 120e-6)
    assert gpu["busy_seconds"] == pytest.approx(500 * 3e-6 + 10 * 2e-6)
    assert gpu["gap_seconds"] == pytest.approx({"host": 500 * 5e-6 - 10 * 2e-6, "sync": 9 * 120e-6}, rel=0.02)
    (cost,) = facts(report, LaunchCost)
    assert (cost["call_seconds"], cost["kernel_seconds"], cost["outrun"]) == (6e-6, 3e-6, 500)


def test_a_chrome_trace_of_the_same_work_says_the_same(tmp_path: Path) -> None:
    work, calls = eager_decode()
    export = read_paths([str(nsys_export(tmp_path / "run.sqlite", work, calls))])
    trace = read_bytes([("trace.json", torch_trace(work, calls).encode())])
    for kind in (GpuTimeline, KernelTime, CopyTime, LaunchCost, LongGap):
        ours, theirs = facts(export, kind), facts(trace, kind)
        assert [f | {"span": None} for f in ours] == [f | {"span": None} for f in theirs], kind


def test_a_packed_export_and_a_packed_trace_are_read_too(tmp_path: Path) -> None:
    work, calls = eager_decode(steps=3)
    plain = nsys_export(tmp_path / "run.sqlite", work, calls)
    packed = tmp_path / "run.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    traced = tmp_path / "rank0.json.gz"
    traced.write_bytes(gzip.compress(torch_trace(work, calls).encode()))
    for path in (packed, traced, tmp_path):
        assert facts(read_paths([str(path)]), GpuTimeline), path


def test_a_long_trace_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PIECE", 4000)
    work, calls = eager_decode(steps=4)
    data = torch_trace(work, calls).encode()
    whole = reader.trace_of([data])
    chunks = [data[i : i + 1000] for i in range(0, len(data), 1000)]
    assert list(digest(reader.trace_of(chunks))) == list(digest(whole))
    assert len(whole.kernels[0]) == 200


def test_a_trace_that_breaks_off_keeps_its_whole_events() -> None:
    work, calls = eager_decode(steps=4)
    data = torch_trace(work, calls).encode()
    assert 100 < len(reader.trace_of([data[: len(data) * 9 // 10]]).kernels[0]) < 200


def test_events_in_another_order_of_keys_are_decoded_whole() -> None:
    data = b'{"traceEvents": [{"name": "k", "cat": "kernel", "ts": 5, "dur": 2, "ph": "X", "args": {"device": 1}}]}'
    assert reader.trace_of([data]).kernels[1][0][:3] == (5000, 7000, "k")


def test_tables_and_columns_that_a_release_does_not_write_are_done_without(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT)")
        db.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, 'add')")
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 1)", [(0, 10), (20, 30), (None, 5)])
    assert [k[:3] for k in trace_of(path).kernels[0]] == [(0, 10, "add"), (20, 30, "add")]
    (gpu,) = facts(read_paths([str(path)]), GpuTimeline)
    assert gpu["gap_seconds"] == {"unknown": 1e-8}


def test_each_process_numbers_its_gpus_anew(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "ranks.sqlite", [Work("add", 0, 5, 1)])
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)")
        db.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3, 0, ?)", (PROCESS >> 24 & 0xFFFFFF,))
    assert trace_of(path).gpus == [3]


def test_a_graph_that_was_recorded_as_a_whole_counts_as_work(tmp_path: Path) -> None:
    work = [Work("", 100.0 * n, 100.0 * n + 90, n + 1, kind="graph") for n in range(40)]
    calls = [Call("cudaGraphLaunch_v10000", 100.0 * n - 10, 100.0 * n - 4, n + 1) for n in range(40)]
    report = read_paths([str(nsys_export(tmp_path / "graphs.sqlite", work, calls))])
    (gpu,) = facts(report, GpuTimeline)
    assert gpu["graph_launches"] == 40 and gpu["busy_seconds"] == pytest.approx(3.6e-3)
    assert not facts(report, LaunchCost)
    assert {f.id for f in report.findings} >= {"profile-gpu-busy", "profile-graphs-whole"}


def test_a_window_and_a_gpu_are_looked_at_alone(tmp_path: Path) -> None:
    work = [Work("add", 1e6 * n, 1e6 * n + 5e5, gpu=n % 2) for n in range(8)]
    path = nsys_export(tmp_path / "two.sqlite", work)
    lines = list(digest(trace_of(path), View(begin=2, end=5, gpu=1)))
    assert '"window":"2-5 s"' in lines[0] and '"kernels":1' in lines[1] and '"gpu":1' in lines[1]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [("notes.sqlite", b"", "without the tables"), ("run.nsys-rep", b"\x7fNV\0\1", "nsys export"), ("k.ncu-rep", b"NVR\0", "--page raw")],
)  # fmt: skip
def test_what_is_no_recording_says_what_would_be(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    if not data:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE notes (text TEXT)")
        with pytest.raises(NoExport):
            trace_of(path)
    report = read_paths([str(path)])
    assert report.verdict.state == "unknown"
    assert any(said in skipped.why for skipped in report.skipped)


def test_a_damaged_export_is_said_to_be_one(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "cut.sqlite", *eager_decode(steps=40))
    path.write_bytes(path.read_bytes()[:6000])
    assert any("damaged" in skipped.why for skipped in read_paths([str(path)]).skipped)


def test_events_without_sense_are_passed_over() -> None:
    odd = [
        '{"ph": "X", "cat": "kernel", "name": 7, "ts": null, "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": "1e400", "dur": 1}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": "12.5", "dur": "2", "args": {"device": "one", "grid": [1, "x"]}}',
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 30, "dur": 2, "args": []}',
        '{"ph": "X", "cat": ["cuda_runtime"], "ts": {}, "args": {"correlation": "a"}}',
        '{"ph": "X", "cat": "cuda_runtime", "name": null, "ts": 5, "dur": -3, "args": {"correlation": [1]}}',
    ]
    trace = reader.trace_of([b'{"traceEvents": [' + ",".join(odd).encode() + b"]}"])
    assert [k[:2] for k in trace.kernels[0]] == [(12500, 14500), (30000, 32000)]
    assert read_bytes([("odd.json", b'{"traceEvents": 7}')]).verdict.state == "unknown"
    assert read_bytes([("odd.json", b'{"traceEvents": [[[')]).verdict.state == "unknown"


def test_a_trace_is_known_without_its_document_and_behind_a_long_head() -> None:
    work, calls = eager_decode(steps=2)
    whole = torch_trace(work, calls)
    events = whole[whole.index('"traceEvents": ') + 15 : whole.rindex("]") + 1]
    far = whole.replace(
        '"displayTimeUnit"', '"distributedInfo": {"ranks": "' + "0, " * 40_000 + '"}, "displayTimeUnit"'
    )
    for text in (events, far):
        (gpu,) = facts(read_bytes([("trace.json", text.encode())]), GpuTimeline)
        assert gpu["kernels"] == 100
