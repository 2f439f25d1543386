"""NVML's inventory as loadpath's own child printed it: JSON objects under nvidia-smi's query names.

{"system":true,"driver_version":"580.95.05","nvml_version":"13.580.95.05","cuda_version":"13.0","count":2}
{"gpu":0,"remapped_rows.pending":"Yes","remapped_rows.failure":"No"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import (
    DriverVersions,
    GpuProcess,
    MigInstance,
    NvlinkStatus,
    ProcessList,
    SmiSnapshot,
    Topology,
)
from loadpath.core.facts.machine import NvmlFailed
from loadpath.core.facts.stack import GpuModel
from loadpath.core.text import Capture, Line
from loadpath.readers.nvidia_smi_fields import Record, facts_of, memory

FAILED = "Failed to initialize NVML: "


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


def read(capture: Capture) -> Iterator[Fact]:
    gpus: dict[int, dict[str, Record]] = {}
    lists: set[str] = set()
    links: list[tuple[Line, dict[str, Any]]] = []
    system: tuple[Line, dict[str, Any]] | None = None
    for line in capture.lines:
        if line.raw.startswith(FAILED):
            yield NvmlFailed(**at(capture, line), words=line.raw.removeprefix(FAILED).strip())
        told = _object(line)
        if "system" in told:
            system = line, told
            yield _versions(capture, line, told)
        elif "mig" in told:
            yield _instance(capture, line, told)
        elif "process" in told:
            lists.add("rows")
            yield _process(capture, line, told)
        elif "processes" in told:
            lists.add("not-supported" if told["processes"] == "not supported" else "none-found")
        elif "nvlink" in told:
            links.append((line, told))
        elif "p2p" in told:
            yield Topology(**at(capture, line), what="p2p", gpus=tuple(told.get("gpus", ())), links=told["p2p"])
        elif isinstance(told.get("gpu"), int):
            records = {name: Record(str(value), line) for name, value in told.items() if name != "gpu"}
            gpus.setdefault(told["gpu"], {}).update(records)
    for index, records in gpus.items():
        yield from facts_of(records, "csv", capture, view="csv", index=index)
        yield from _model(capture, index, records)
    for line, told in links:
        name = gpus.get(told.get("gpu", -1), {}).get("name")
        yield _nvlink(capture, line, told, name.value if name else None)
    if system is not None and gpus:
        processes: ProcessList = next((p for p in ("rows", "none-found", "not-supported") if p in lists), "absent")
        count = system[1].get("count")
        yield SmiSnapshot(**at(capture, system[0]), view="csv", attached=count, shown=len(gpus), processes=processes)


def _object(line: Line) -> dict[str, Any]:
    if not line.raw.startswith("{"):
        return {}
    try:
        return msgspec.json.decode(line.raw, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _versions(capture: Capture, line: Line, told: dict[str, Any]) -> DriverVersions:
    library = str(told.get("nvml_version") or "")
    # `13.580.95.05`: NVML's own major stands before the driver's version.
    nvml = library.partition(".")[2] if library.split(".")[0].isdigit() and len(library.split(".")[0]) < 3 else library
    return DriverVersions(
        **at(capture, line),
        view="csv",
        driver=told.get("driver_version"),
        nvml=nvml or None,
        cuda=told.get("cuda_version"),
    )


def _model(capture: Capture, index: int, records: dict[str, Record]) -> Iterator[GpuModel]:
    if "name" in records and "compute_cap" in records:
        name, capability = records["name"], records["compute_cap"].value
        yield GpuModel(**at(capture, name.line), name=name.value, index=index, capability=capability)


def _process(capture: Capture, line: Line, told: dict[str, Any]) -> GpuProcess:
    return GpuProcess(
        **at(capture, line), view="csv", pid=told["process"], index=told.get("gpu"), kind=told.get("type"),
        name=told.get("name"), used_bytes=memory(str(told.get("used_gpu_memory", ""))),
    )  # fmt: skip


def _instance(capture: Capture, line: Line, told: dict[str, Any]) -> MigInstance:
    return MigInstance(
        **at(capture, line), index=told.get("gpu"), gpu_instance=told.get("gpu_instance"), device=told["mig"],
        compute_instance=told.get("compute_instance"), profile=told.get("profile"), uuid=told.get("uuid"),
        used_bytes=memory(str(told.get("memory.used", ""))), total_bytes=memory(str(told.get("memory.total", ""))),
    )  # fmt: skip


def _nvlink(capture: Capture, line: Line, told: dict[str, Any], name: str | None) -> NvlinkStatus:
    rates = {int(number): rate for number, rate in told["nvlink"].items()}
    inactive = all(rate is None for rate in rates.values())
    return NvlinkStatus(
        **at(capture, line), index=told.get("gpu"), name=name, links={} if inactive else rates,
        why_none="inactive" if inactive else None,
    )  # fmt: skip
