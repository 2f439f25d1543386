"""`nvidia-smi --query-… --format=csv`: GPUs, processes and remapped rows, with and without header and units.

    index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
    0, NVIDIA L4, 9214 MiB, 23034 MiB, 0 %

Without a header (`noheader`) the fields come from the command line above the rows, else a row is read by the form of
its cells (a bus id, an event mask, watts). A query in a loop (`-l 1`) becomes a series, its last round the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import DriverVersions, GpuProcess, GpuSeries, SmiSnapshot
from loadpath.core.facts.stack import GpuModel
from loadpath.core.text import Capture, Line
from loadpath.readers.nvidia_smi.fields import FIELDS, Record, facts_of, memory, number, plain, whole

_OTHER = (
    "timestamp", "count", "index", "driver_version", "kmd_version", "pid", "process_name", "used_memory", "used_gpu_memory",
    "gpu_serial", "serial", "vbios_version", "pstate", "pci.bus_id", "gpu_bus_id", "clocks_event_reasons.active",
    "clocks_throttle_reasons.active", "mig.mode.pending", "compute_cap", "power.draw", "clocks.current.graphics",
    "retired_pages.address", "retired_pages.cause",
)  # fmt: skip
# Columns of a loop that are worth following, and dmon's name for the same figure.
_FOLLOWED = {
    "utilization.gpu": "sm", "utilization.memory": "mem", "power.draw": "pwr", "power.draw.average": "pwr",
    "power.draw.instant": "pwr", "temperature.gpu": "gtemp", "clocks.current.sm": "pclk", "clocks.sm": "pclk",
    "clocks.gr": "pclk", "memory.used": "fb",
}  # fmt: skip
_BUS = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")
_COMMAND = re.compile(r"nvidia-smi\b.*--query-(?:gpu|compute-apps|remapped-rows|accounted-apps)=([\w.,]+)")


@cache
def _known() -> frozenset[str]:
    return frozenset({path for field in FIELDS for path in field.paths("csv")} | set(_OTHER))


def _split(text: str) -> list[str]:
    return [cell.strip() for cell in text.split(",")]


def _columns(text: str) -> list[str]:
    """The field names of a header line, without their units; [] where it is none."""
    names = [re.sub(r"\s*\[.*?\]$", "", cell) for cell in _split(text)]
    known = sum(name in _known() for name in names)
    if len(names) == 1:
        return names if known and "[" in text else []
    return names if known >= 2 and known * 2 >= min(len(names), 10) and " " not in "".join(names) else []


def _named_by_command(text: str) -> list[str]:
    command = _COMMAND.search(text)
    return command[1].strip(",").split(",") if command else []


def _by_form(text: str) -> list[str]:
    """Columns of a row without a header, by what the cells look like; [] where they do not look like a GPU's."""
    cells = _split(text)
    names: list[str] = []
    sizes = [cell for cell in cells if re.fullmatch(r"\d+ MiB", cell)]
    for place, cell in enumerate(cells):
        if place == 0 and re.fullmatch(r"\d{1,2}", cell):
            names.append("index")
        elif _BUS.match(cell):
            names.append("pci.bus_id")
        elif re.fullmatch(r"0x[0-9A-Fa-f]{16}", cell):
            names.append("clocks_event_reasons.active")
        elif re.fullmatch(r"GPU-[0-9a-f-]{36}", cell):
            names.append("uuid")
        elif re.fullmatch(r"[\d.]+ W", cell):
            names.append("power.draw" if "power.draw" not in names else "power.limit")
        elif re.match(r"(?:NVIDIA|Tesla|Quadro|GeForce|A100|H100)\b", cell):
            names.append("name")
        elif cell in sizes and len(sizes) == 2:
            larger = max(sizes, key=lambda size: number(size) or 0)
            names.append("memory.total" if cell == larger and "memory.total" not in names else "memory.used")
        else:
            names.append(f"?{place}")
    told = {name for name in names if not name.startswith("?")}
    return names if len(told) >= 2 and told & {"pci.bus_id", "clocks_event_reasons.active", "uuid", "name"} else []


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    columns = _columns(text)
    begin = i + 1
    if not columns and (columns := _named_by_command(text)):
        # The command line itself stays with the rest; its rows, or their header, follow.
        if begin < len(lines) and _columns(lines[begin].text.strip()):
            begin += 1
    elif not columns:
        columns = _by_form(text)
        begin = i
    if not columns:
        return i
    end = begin
    while end < len(lines) and _is_row(lines[end].text.strip(), columns):
        end += 1
    return end if end > begin or _columns(text) else i


def _is_row(text: str, columns: list[str]) -> bool:
    cells = _split(text)
    if not text or len(cells) != len(columns) or _columns(text):
        return False
    if len(columns) == 1:
        return re.fullmatch(r"[\d.]+(?: \S{1,3})?|\[.*\]", text) is not None
    return "pid" not in columns or cells[columns.index("pid")].isdigit() or cells[columns.index("pid")].startswith("[")


def read(capture: Capture) -> Iterator[Fact]:
    columns: list[str] = []
    rows: list[dict[str, Record]] = []
    for line in capture.lines:
        text = line.text.strip()
        found = _columns(text) or _named_by_command(text)
        if found:
            columns = found
            continue
        columns = columns or _by_form(text)
        if columns:
            rows.append({name: Record(cell, line) for name, cell in zip(columns, _split(text), strict=False)})
    if "pid" in columns:
        yield from (_process(row, capture) for row in rows if whole(row["pid"].value) is not None)
        return
    yield from _gpus(rows, capture)


def _gpus(rows: list[dict[str, Record]], capture: Capture) -> Iterator[Fact]:
    by_gpu: dict[object, list[dict[str, Record]]] = {}
    for place, row in enumerate(rows):
        by_gpu.setdefault(_which(row, place), []).append(row)
    for place, own in enumerate(by_gpu.values()):
        row = own[-1]
        index = whole(row["index"].value) if "index" in row else place if len(by_gpu) > 1 else None
        yield from facts_of(row, "csv", capture, view="csv", index=index)
        if "compute_cap" in row and (name := row.get("name") or row.get("gpu_name")):
            told = at(capture, row["compute_cap"].line)
            yield GpuModel(**told, name=name.value, index=index, capability=row["compute_cap"].value)
        if len(own) >= 3:
            yield _series(own, index or 0, capture)
    driver = next((row[n] for row in rows for n in ("kmd_version", "driver_version") if n in row), None)
    if driver and plain(driver.value):
        yield DriverVersions(**at(capture, driver.line), view="csv", driver=plain(driver.value))
    if by_gpu:
        count = next((row["count"] for row in rows if "count" in row), None)
        yield SmiSnapshot(
            **at(capture, capture.lines[0]),
            view="csv",
            shown=len(by_gpu),
            attached=whole(count.value) if count else None,
        )


def _which(row: dict[str, Record], place: int) -> object:
    """What tells the GPU of a row: index, bus id or uuid; without any, each row is its own."""
    for name in ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid"):
        if name in row:
            return row[name].value
    return place if "timestamp" not in row else row.get("name", row["timestamp"]).value


def _series(rows: list[dict[str, Record]], index: int, capture: Capture) -> GpuSeries:
    columns = {
        short: tuple(number(row[name].value) if name in row else None for row in rows)
        for name, short in _FOLLOWED.items() if name in rows[0]
    }  # fmt: skip
    times = tuple(row["timestamp"].value for row in rows if "timestamp" in row)
    first = next(iter(rows[0].values())).line
    return GpuSeries(**at(capture, first), index=index, tool="csv", columns=columns, times=times)


def _process(row: dict[str, Record], capture: Capture) -> GpuProcess:
    def word(*names: str) -> str | None:
        return next((plain(row[name].value) for name in names if name in row), None)

    used = row.get("used_gpu_memory") or row.get("used_memory")
    return GpuProcess(
        **at(capture, row["pid"].line), view="csv", pid=int(row["pid"].value), kind="C",
        bus_id=word("gpu_bus_id", "pci.bus_id"), uuid=word("gpu_uuid", "uuid"), name=word("process_name", "name"),
        used_bytes=memory(used.value) if used else None,
    )  # fmt: skip
