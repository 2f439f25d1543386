"""Nsight Systems' SQLite export (`nsys export --type sqlite`): its tables → a recorded timeline.

Tables are there only where something of their kind was recorded, and their columns differ between releases, so each
column is asked for only where it is. Times are nanoseconds.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from loadpath.readers.profile.cuda_names import plain_call, role_of
from loadpath.readers.profile.gpu_work import Board, Copy, Kernel, Trace

_KERNEL, _COPY, _SET = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPH, _CALL = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"
_RELEASE = re.compile(r"20\d\d\.\d")
_OURS = frozenset({_KERNEL, _COPY, _SET, _GRAPH, _CALL, "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV", "NVTX_EVENTS"})
# Numbers of the export's own enumerations, for files that do not hold them as tables.
_DIRECTIONS = {1: "host-to-device", 2: "device-to-host", 8: "device-to-device", 9: "host-to-host", 10: "peer-to-peer",
               11: "unified host-to-device", 12: "unified device-to-host", 13: "unified device-to-device"}  # fmt: skip
_MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device", 6: "managed"}


class NoExport(ValueError):
    """The file is a database, but no export of Nsight Systems (or a damaged one); the text says which."""


def trace_of(path: Path) -> Trace:
    """Everything that the export holds. Raises NoExport."""
    try:
        with _Export(path) as export:
            return _trace(export)
    except sqlite3.DatabaseError as error:
        raise NoExport(f"a damaged SQLite file: {error}") from error


class _Export:
    """The open file, read-only, with its tables and their columns."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        self._db.text_factory = lambda data: data.decode("utf-8", "replace")
        names = [row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        self.columns = {name: self._columns(name) for name in names}

    def __enter__(self) -> _Export:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _columns(self, table: str) -> frozenset[str]:
        quoted = table.replace('"', '""')
        return frozenset(row[1] for row in self._db.execute(f'PRAGMA table_info("{quoted}")'))

    def rows(self, table: str, *columns: str) -> Iterator[tuple[object, ...]]:
        """The rows of a table; None for each column that this release does not write. Nothing where there is no table."""
        have = self.columns.get(table)
        if have is not None:
            picked = ", ".join(f'"{name}"' if name in have else "NULL" for name in columns)
            yield from self._db.execute(f'SELECT {picked} FROM "{table}"')


def _trace(export: _Export) -> Trace:
    if not _OURS & set(export.columns):
        raise NoExport("an SQLite database without the tables of Nsight Systems' export")
    made = Trace(tool="nsys", version=_version(export), boards=_boards(export))
    strings: dict[object, str] = {number: str(text) for number, text in export.rows("StringIds", "id", "value")}
    gpus = _Gpus(_places(export))
    _kernels(export, strings, gpus, made)
    _graphs(export, gpus, made)
    _copies(export, gpus, made)
    for start, end, number, name, thread in export.rows(_CALL, "start", "end", "correlationId", "nameId", "globalTid"):
        call = strings.get(name, "")
        if isinstance(start, int) and isinstance(end, int) and end >= start:
            made.call(start, end, plain_call(call) or "(unnamed call)", role_of(call), _number(number, thread))
    return made


class _Gpus:
    """Which of the machine's GPUs a row means."""

    def __init__(self, places: dict[tuple[int, int], int]) -> None:
        self._places = places

    def of(self, device: object, process: object) -> int:
        number = _int(device)
        return self._places.get((_int(process) >> 24 & 0xFFFFFF, number), number)


def _number(correlation: object, process: object) -> int:
    """Correlation numbers are counted anew in each process: the process's own bits stand above them."""
    above = process >> 24 if isinstance(process, int) else 0
    return (above << 64) | correlation if isinstance(correlation, int) and correlation else 0


def _kernels(export: _Export, strings: dict[object, str], gpus: _Gpus, made: Trace) -> None:
    columns = (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "graphNodeId",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread",
    )  # fmt: skip
    for start, end, gpu, stream, number, process, name, short, node, *shape in export.rows(_KERNEL, *columns):
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            continue
        gx, gy, gz, bx, by, bz, registers = (value if isinstance(value, int) else 0 for value in shape)
        called = strings.get(name) or strings.get(short) or "(unnamed kernel)"
        made.kernels.setdefault(gpus.of(gpu, process), []).append(Kernel(
            start, end, called, _number(number, process), _int(stream), 1 if node else 0,
            (gx * gy * gz, bx * by * bz, registers),
        ))  # fmt: skip


def _graphs(export: _Export, gpus: _Gpus, made: Trace) -> None:
    """Graphs that were recorded whole (`--cuda-graph-trace=graph`, the default)."""
    columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
    for start, end, gpu, stream, number, process, graph in export.rows(_GRAPH, *columns):
        if isinstance(start, int) and isinstance(end, int) and end >= start:
            name = f"(CUDA graph {graph})"
            run = Kernel(start, end, name, _number(number, process), _int(stream), 2)
            made.kernels.setdefault(gpus.of(gpu, process), []).append(run)


def _copies(export: _Export, gpus: _Gpus, made: Trace) -> None:
    directions = _DIRECTIONS | _labels(export, "ENUM_CUDA_MEMCPY_OPER")
    memory = _MEMORY | _labels(export, "ENUM_CUDA_MEM_KIND")
    columns = ("start", "end", "deviceId", "bytes", "copyKind", "srcKind", "dstKind", "correlationId", "globalPid")
    for start, end, gpu, size, kind, source, target, number, process in export.rows(_COPY, *columns):
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            continue
        direction = directions.get(kind, "copy") if isinstance(kind, int) else "copy"
        side = target if direction.startswith("device-to-host") else source
        host = memory.get(side, "") if isinstance(side, int) else ""
        made.copies.setdefault(gpus.of(gpu, process), []).append(
            Copy(start, end, direction, host, _int(size), _number(number, process))
        )
    for start, end, gpu, size, number, process in export.rows(
        _SET, "start", "end", "deviceId", "bytes", "correlationId", "globalPid"
    ):
        if isinstance(start, int) and isinstance(end, int) and end >= start:
            made.copies.setdefault(gpus.of(gpu, process), []).append(
                Copy(start, end, "set", "", _int(size), _number(number, process))
            )


def _labels(export: _Export, table: str) -> dict[int, str]:
    """An enumeration as the file itself spells it, in our words: `Host-to-Device` → `host-to-device`."""
    return {
        number: label.lower().removesuffix(" static")
        for number, label in export.rows(table, "id", "label")
        if isinstance(number, int) and isinstance(label, str) and label
    }


def _boards(export: _Export) -> dict[int, Board]:
    return {
        number: Board(str(name or ""), "" if major is None else f"{major}.{minor}")
        for number, name, major, minor in export.rows("TARGET_INFO_GPU", "id", "name", "computeMajor", "computeMinor")
        if isinstance(number, int)
    }


def _places(export: _Export) -> dict[tuple[int, int], int]:
    """The machine's GPU for a process and the number that CUDA gave the device in it (CUDA_VISIBLE_DEVICES renumbers)."""
    return {
        (process, device): gpu
        for process, device, gpu in export.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        if isinstance(process, int) and isinstance(device, int) and isinstance(gpu, int)
    }


def _version(export: _Export) -> str:
    told = [
        str(value) for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE") for (value,) in export.rows(table, "value")
    ]
    return next((value for value in told if _RELEASE.match(value)), "")


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
