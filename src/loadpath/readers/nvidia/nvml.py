"""NVML's inventory as loadpath's own child printed it: JSON objects under nvidia-smi's query names.

{"system":true,"driver_version":"580.95.05","nvml_version":"13.580.95.05","cuda_version":"13.0","count":2}
{"gpu":0,"remapped_rows.pending":"Yes","remapped_rows.failure":"No"}
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

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
from loadpath.readers.nvidia_smi.fields import Record, facts_of, memory

FAILED = "Failed to initialize NVML: "


def extent(lines: Sequence[Line], i: int) -> int:
    return i  # only a sample's header names such a capture


class _System(msgspec.Struct, frozen=True):
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    count: int | None = None


class _Process(msgspec.Struct, frozen=True):
    process: int
    gpu: int
    type: str | None = None
    name: str | None = None
    used_gpu_memory: str = ""


class _Instance(msgspec.Struct, frozen=True):
    mig: int
    gpu: int
    gpu_instance: int | None = None
    compute_instance: int | None = None
    uuid: str | None = None
    profile: str | None = None
    used: str = msgspec.field(default="", name="memory.used")
    total: str = msgspec.field(default="", name="memory.total")


class _Links(msgspec.Struct, frozen=True):
    gpu: int
    nvlink: dict[int, float | None]


class _Peers(msgspec.Struct, frozen=True):
    p2p: dict[str, str]
    gpus: tuple[str, ...] = ()


class _List(msgspec.Struct, frozen=True):
    processes: str


_KINDS = {"system": _System, "process": _Process, "mig": _Instance, "nvlink": _Links, "p2p": _Peers, "processes": _List}
T = TypeVar("T")


class _Inventory:
    """The lines of one capture by what they are; a line of another form is passed over."""

    def __init__(self, capture: Capture) -> None:
        self.gpus: dict[int, dict[str, Record]] = {}
        self._lines: list[tuple[Line, object]] = []
        for line in capture.lines:
            told = _object(line)
            kind = next((kind for key, kind in _KINDS.items() if key in told), None)
            index = told.get("gpu")
            if kind is not None:
                with contextlib.suppress(msgspec.ValidationError):
                    self._lines.append((line, msgspec.convert(told, kind, strict=False)))
            elif isinstance(index, int):
                records = {name: Record(str(value), line) for name, value in told.items() if name != "gpu"}
                self.gpus.setdefault(index, {}).update(records)

    def all(self, kind: type[T]) -> list[tuple[Line, T]]:
        return [(line, told) for line, told in self._lines if isinstance(told, kind)]

    def name(self, gpu: int) -> str | None:
        record = self.gpus.get(gpu, {}).get("name")
        return record.value if record else None


def read(capture: Capture) -> Iterator[Fact]:
    seen = _Inventory(capture)
    for line in capture.lines:
        if line.raw.startswith(FAILED):
            yield NvmlFailed(**at(capture, line), words=line.raw.removeprefix(FAILED).strip())
    for line, system in seen.all(_System):
        yield _versions(capture, line, system)
    for index, records in seen.gpus.items():
        if records:
            yield from facts_of(records, "csv", capture, view="csv", index=index)
            yield from _model(capture, index, records)
    for line, told in seen.all(_Process):
        yield GpuProcess(
            **at(capture, line), view="csv", pid=told.process, index=told.gpu, kind=told.type, name=told.name,
            used_bytes=memory(told.used_gpu_memory),
        )  # fmt: skip
    for line, own in seen.all(_Instance):
        yield MigInstance(
            **at(capture, line), index=own.gpu, gpu_instance=own.gpu_instance, compute_instance=own.compute_instance,
            device=own.mig, profile=own.profile, uuid=own.uuid, used_bytes=memory(own.used), total_bytes=memory(own.total),
        )  # fmt: skip
    for line, links in seen.all(_Links):
        inactive = all(rate is None for rate in links.nvlink.values())
        yield NvlinkStatus(
            **at(capture, line), index=links.gpu, name=seen.name(links.gpu), links={} if inactive else links.nvlink,
            why_none="inactive" if inactive else None,
        )  # fmt: skip
    for line, peers in seen.all(_Peers):
        yield Topology(**at(capture, line), what="p2p", gpus=peers.gpus, links=peers.p2p)
    for line, system in seen.all(_System)[:1] if seen.gpus else []:
        yield SmiSnapshot(
            **at(capture, line), view="csv", attached=system.count, shown=len(seen.gpus), processes=_listed(seen)
        )


def _listed(seen: _Inventory) -> ProcessList:
    said = [told.processes for _, told in seen.all(_List)]
    if seen.all(_Process):
        return "rows"
    return "none-found" if "listed" in said else "not-supported" if "not supported" in said else "absent"


def _object(line: Line) -> dict[str, Any]:
    if not line.raw.startswith("{"):
        return {}
    try:
        return msgspec.json.decode(line.raw, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _versions(capture: Capture, line: Line, told: _System) -> DriverVersions:
    # `13.580.95.05`: NVML's own major stands before the driver's version.
    major, _, rest = (told.nvml_version or "").partition(".")
    nvml = rest if major.isdigit() and len(major) < 3 else told.nvml_version
    return DriverVersions(
        **at(capture, line), view="csv", driver=told.driver_version, nvml=nvml or None, cuda=told.cuda_version
    )


def _model(capture: Capture, index: int, records: dict[str, Record]) -> Iterator[GpuModel]:
    if "name" in records and "compute_cap" in records:
        name, capability = records["name"], records["compute_cap"].value
        yield GpuModel(**at(capture, name.line), name=name.value, index=index, capability=capability)
