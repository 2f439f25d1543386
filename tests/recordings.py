"""Recordings of profilers, made small: an Nsight Systems SQLite export with its real tables, and a Kineto Chrome trace."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

US = 1000
PROCESS = (4711 << 24) | (1 << 56)


class Call(msgspec.Struct, frozen=True):
    """A call of the CUDA API, microseconds; `number` ties it to the GPU's work."""

    name: str
    start: float
    end: float
    number: int = 0


class Work(msgspec.Struct, frozen=True):
    """Work of a GPU, microseconds. `kind`: a kernel, a graph as a whole, or a copy (`name` is then `HtoD pageable`)."""

    name: str
    start: float
    end: float
    number: int = 0
    gpu: int = 0
    stream: int = 7
    bytes: int = 0
    kind: str = "kernel"
    node: int = 0


_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_MEMORY = {"pageable": 0, "pinned": 1, "device": 2}
_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (vmId INT, id INT, name TEXT, busLocation TEXT, uuid TEXT, computeMajor INT, computeMinor INT, smCount INT);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, greenContextId INT, streamId INT,
  correlationId INT, globalPid INT, demangledName INT, shortName INT, mangledName INT, launchType INT, cacheConfig INT,
  registersPerThread INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, staticSharedMemory INT,
  dynamicSharedMemory INT, graphNodeId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
  globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT, graphNodeId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, contextId INT, greenContextId INT, streamId INT,
  correlationId INT, globalPid INT, graphId INT, graphExecId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, eventClass INT, globalTid INT, correlationId INT, nameId INT,
  returnValue INT, callchainId INT);
"""


def nsys_export(path: Path, work: Iterable[Work], calls: Iterable[Call] = (), gpu: str = "NVIDIA L4") -> Path:
    """An export as `nsys export --type sqlite` writes it (columns that nobody reads are left out)."""
    ids: dict[str, int] = {}

    def name(text: str) -> int:
        return ids.setdefault(text, len(ids) + 1)

    with sqlite3.connect(path) as db:
        db.executescript(_TABLES)
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?, '0000:01:00.0', 'x', 8, 9, 58)", (gpu,))
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.3.2.474')")
        for w in work:
            _insert(db, w, name)
        for c in calls:
            row = (_ns(c.start), _ns(c.end), 0, PROCESS | 12, c.number, name(c.name), 0, None)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", row)
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, text) for text, number in ids.items()])
    db.close()
    return path


def _insert(db: sqlite3.Connection, w: Work, name: Any) -> None:
    start, end = _ns(w.start), _ns(w.end)
    if w.kind == "graph":
        row: tuple[Any, ...] = (start, end, w.gpu, 1, None, w.stream, w.number, PROCESS, 3, 4)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?,?,?,?,?,?,?,?,?,?)", row)
    elif w.kind == "copy":
        way, memory = w.name.split()
        sides = (_MEMORY[memory], 2) if way == "HtoD" else (2, _MEMORY[memory])
        row = (start, end, w.gpu, 1, w.stream, w.number, PROCESS, w.bytes, _KINDS[way], *sides, None)
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({','.join('?' * 12)})", row)
    else:
        called = name(w.name)
        row = (start, end, w.gpu, 1, None, w.stream, w.number, PROCESS, called, called, called, 1, 0, 64, 128, 1, 1, 256, 1, 1,
               0, 0, w.node or None)  # fmt: skip
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 23)})", row)


def _ns(microseconds: float) -> int:
    return round(microseconds * US)


def torch_trace(work: Iterable[Work], calls: Iterable[Call] = (), *, cpu_ops: int = 3) -> str:
    """A Chrome trace as Kineto writes it: one event over several lines, its phase first."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 1.5 * n, "dur": 1.2,
         "args": {"External id": n, "Sequence number": n, "Fwd thread id": 0}}
        for n in range(cpu_ops)
    ]  # fmt: skip
    for c in calls:
        call_args = {"External id": 1, "cbid": 211, "correlation": c.number}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": c.name, "pid": 1, "tid": 1, "ts": c.start,
                       "dur": round(c.end - c.start, 3), "args": call_args})  # fmt: skip
    for w in work:
        args: dict[str, Any] = {
            "External id": 1,
            "device": w.gpu,
            "context": 1,
            "stream": w.stream,
            "correlation": w.number,
        }
        cat, name = "kernel", w.name
        if w.kind == "copy":
            way, memory = w.name.split()
            sides = f"{memory.title()} -> Device" if way == "HtoD" else f"Device -> {memory.title()}"
            cat, name = "gpu_memcpy", f"Memcpy {way} ({sides})"
            args |= {"bytes": w.bytes, "memory bandwidth (GB/s)": 1.5}
        else:
            args |= {"grid": [128, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "blocks per SM": 2.2}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": w.gpu, "tid": w.stream, "ts": w.start,
                       "dur": round(w.end - w.start, 3), "args": args})  # fmt: skip
    shown = ",\n".join("  " + json.dumps(event, indent=2).replace("\n", "\n  ") for event in events)
    device = '{"id": 0, "name": "NVIDIA L4", "totalGlobalMem": 23609475072, "computeMajor": 8, "computeMinor": 9, "numSms": 58}'
    return (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    ' + device + '\n  ],\n  "cuda_runtime_version": 12080,\n'
        '  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1749571998000000000,\n  "traceEvents": [\n'
        + shown + '\n  ],\n  "traceName": "out/rank0.json"\n}\n'
    )  # fmt: skip


def eager_decode(steps: int = 20, kernels: int = 50) -> tuple[list[Work], list[Call]]:
    """Decoding without graphs: kernels of 3 us whose launches take 6 us each, and a wait for the result of each step."""
    work, calls = [], []
    now, number = 0.0, 0
    for _ in range(steps):
        for k in range(kernels):
            number += 1
            calls.append(Call("cudaLaunchKernel_v7000", now, now + 6, number))
            name = ("void gemvx::kernel<int, __nv_bfloat16, float>(T1)", "rms_norm_kernel", "silu_and_mul_kernel")[
                k % 3
            ]
            work.append(Work(name, now + 7, now + 10, number))
            now += 8
        number += 1
        calls.append(Call("cudaMemcpyAsync_v3020", now, now + 4, number))
        work.append(Work("DtoH pageable", now + 5, now + 7, number, bytes=4096, kind="copy"))
        calls.append(Call("cudaStreamSynchronize_v3020", now + 4.5, now + 9))
        now += 120  # sampling, scheduling and text on the host
    return work, calls


_HEAD = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)


def _launch(kernel: str) -> list[str]:
    return ["0", "4711", "python3.12", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", "(4096, 1, 1)", "0", "8.9"]


def _csv(*rows: Iterable[str]) -> str:
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def raw(kernel: str, metrics: dict[str, tuple[str, str]]) -> str:
    """Nsight Compute's raw page of one launch: metrics by name, each with its unit and value."""
    units = [""] * len(_HEAD) + [unit for unit, _ in metrics.values()]
    values = _launch(kernel) + [value for _, value in metrics.values()]
    return "==PROF== Connected to process 4711\n" + _csv([*_HEAD, *metrics], units, values)


def details(kernel: str, metrics: Iterable[tuple[str, str, str, str]]) -> str:
    """Its details page: section, metric, unit and value a line."""
    head = [
        *_HEAD,
        "Section Name",
        "Metric Name",
        "Metric Unit",
        "Metric Value",
        "Rule Name",
        "Rule Type",
        "Rule Description",
    ]
    return _csv(head, *([*_launch(kernel), *metric, "", "", ""] for metric in metrics))


def printed(kernel: str, metrics: Iterable[tuple[str, str, str]]) -> str:
    """What it prints on a terminal, with what one of its rules says."""
    rows = "".join(f"    {name:<26}{unit:>12}{value:>14}\n" for name, unit, value in metrics)
    bar = f"    {'-' * 25} {'-' * 11} {'-' * 13}\n"
    return (
        f"  {kernel} (4096, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n"
        f"    Section: GPU Speed Of Light Throughput\n{bar}    Metric Name               Metric Unit  Metric Value\n{bar}{rows}{bar}\n"
        "    INF   This workload is utilizing greater than 80.0% of the available performance of this device.\n"
    )
