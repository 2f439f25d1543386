"""nvidia-smi's table, every layout from driver 375 to 610, as programs print it and as people paste it.

    | NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
    +-----------------------------------------+------------------------+----------------------+
    |   0  NVIDIA L4                      On  |   00000000:3A:00.0 Off |                    0 |
    | N/A   41C    P8             12W /   72W |    9214MiB /  23034MiB |      0%      Default |
    |                                         |                        |                  N/A |
    ...
    |    0   N/A  N/A           41822      C   VLLM::EngineCore                       9206MiB |

No column offset is trusted: layouts moved between branches, and pastes lose blanks, bars and whole lines. Cells are
told apart by their bars, and by what stands in them. The heading may be missing: a row tells what it is by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import (
    DriverVersions,
    GpuProcess,
    GpuState,
    InforomCorrupted,
    MigInstance,
    ProcessList,
    SmiSnapshot,
)
from loadpath.core.text import Capture, Line
from loadpath.core.units import mib

_UNREADABLE = ("err!", "unknown error", "gpu is lost", "gpu requires reset", "error")


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    state = r"N/A|ERR!|On|Off"
    absent = r"N/A|\[N/A\]|\[?Not Supported\]?|ERR!|\[?Unknown Error\]?|\[?GPU is lost\]?|\[?Insuff\w*.*?\]"
    memory = rf"\d+\s*MiB|{absent}"
    return {
        name: re.compile(text)
        for name, text in {
            "versions": r"NVIDIA-SMI\s+(?P<tool>\S+)\s+(?:Driver|KMD) Version:\s*(?P<driver>[\w./]+)"
            r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>[\w./!]+))?",
            "heading": r"GPU\s+Name\s.*(?:Bus-Id|Persistence-M|Driver-Model|TCC/WDDM)",
            "identity": rf"^(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>{state}|WDDM|TCC|MCDM)$",
            "bus": rf"^(?P<bus>[0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}}\.[0-7]|N/A|ERR!)\s*(?P<display>{state})?$",
            "sensors": rf"^(?P<fan>\d+\s?%|{absent})\s*(?P<temp>-?\d+\s?C|{absent})\s+(?P<perf>P\d+|N/A|ERR!|\?|Unk\w*)\s+"
            rf"(?P<power>[\d.]+\s?W|{absent})\s*/\s*(?P<cap>[\d.]+\s?W|{absent})$",
            "memory": rf"^(?P<used>{memory})(?:\s*/\s*(?P<total>{memory}))?$",
            "activity": rf"^(?P<util>\d+\s?%|{absent})\s+(?P<mode>Default|E\. ?Process|E\. ?Thread|Prohibited|N/A|ERR!)$",
            "mig": r"^(?P<mig>Enabled|Disabled|N/A|ERR!)(?P<pending>\*)?$",
            "instance": r"^(?P<index>\d+)\s+(?P<gi>\d+)\s+(?P<ci>\d+)\s+(?P<device>\d+)$",
            "size_pair": r"^(\d+)\s*MiB\s*/\s*(\d+)\s*MiB$",
            "process": r"^(?P<index>\d+)\s+(?:(?P<gi>N/A|\d+)\s+(?:(?P<ci>N/A|\d+)\s+)?)?(?P<pid>\d+)\s+"
            r"(?P<kind>C\+G|M\+C|[CGM])\s+(?P<name>.*?)\s*(?P<size>\d+\s*MiB|N/A|\d+\.\.\.|\[?Not Supported\]?|\[N/A\])$",
            "inforom": r"infoROM is corrupted at gpu\s+(?P<bus>[0-9A-Fa-f:.]+)",
        }.items()
    }


def _found(name: str, text: str) -> re.Match[str] | None:
    return _patterns()[name].search(text)


def extent(lines: Sequence[Line], i: int) -> int:
    """The end of the table that begins at lines[i]: at its rule, its heading, or (cut pastes) its first GPU row."""
    if not _begins(lines, i):
        return i
    end = j = i
    gpus = False
    while j < len(lines):
        text = lines[j].text.strip()
        if _found("versions", text) and gpus:
            break
        if _in_table(text):
            gpus = gpus or _identity(_cells(text)) is not None
            end = j = j + 1
        elif end > i and not text and j - end < 2:
            j += 1
        elif (end > i and j == end and _wraps(lines[j - 1].text, text)) or (
            end > i and (_found("inforom", text) or (text == "14" and "infoROM" in lines[j - 1].text))
        ):
            end = j = j + 1
        else:
            break
    # The rule above the next table of a loop (`nvidia-smi -l`) belongs to that one.
    while end > i + 1 and lines[end - 1].text.strip().startswith("+") and end < len(lines) and _is_versions(lines, end):
        end -= 1
    return end


def _is_versions(lines: Sequence[Line], i: int) -> bool:
    return i < len(lines) and _found("versions", lines[i].text) is not None


def _begins(lines: Sequence[Line], i: int) -> bool:
    text = lines[i].text.strip()
    if _found("versions", text) or _found("heading", text):
        return True
    if text.startswith("+--"):
        below = lines[i + 1].text.strip() if i + 1 < len(lines) else ""
        return bool(_found("versions", below) or _found("heading", below) or re.match(r"\|\s*Processes:", below))
    if not text.startswith("|"):
        return False
    cells = _cells(text)
    return bool(
        _identity(cells) or _is_process(cells) or re.match(r"\|\s*Processes:", text)
        or ("MiB" in text and any(_found("sensors", cell) for cell in cells))
    )  # fmt: skip


def _in_table(text: str) -> bool:
    return (
        text.startswith(("|", "+-", "+="))
        or re.fullmatch(r"[-=]+[+|]", text) is not None
        or bool(_found("versions", text))
    )


def _wraps(before: str, text: str) -> bool:
    """Did a narrow terminal or a mailer break the row `before`, so that `text` is its rest?"""
    head = before.strip()
    if text == "|":
        return head.startswith("|") and not head.endswith("|")
    return head.startswith("|") and text.endswith("|") and not text.startswith(("|", "+")) and len(text) < len(head)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().strip("|").split("|")]


def _identity(cells: list[str]) -> tuple[re.Match[str], re.Match[str]] | None:
    """The first line of a GPU: index, name and persistence in one cell, bus id and display in the next."""
    if len(cells) < 2:
        return None
    name, bus = _found("identity", cells[0]), _found("bus", cells[1])
    return (name, bus) if name and bus else None


def _is_process(cells: list[str]) -> bool:
    return _found("process", " ".join(cells).strip()) is not None


def read(capture: Capture) -> Iterator[Fact]:
    table = _Table(capture)
    for first, last, text in _rows(capture.lines):
        table.row(first, last, text)
    return table.facts()


def _rows(lines: Sequence[Line]) -> Iterator[tuple[Line, Line, str]]:
    """The rows with their first and last line; a row that was wrapped is one again."""
    k = 0
    while k < len(lines):
        first = last = lines[k]
        text = first.text.strip()
        if k + 1 < len(lines) and _wraps(text, rest := lines[k + 1].text.strip()):
            text, last, k = f"{text} {rest}", lines[k + 1], k + 1
        yield first, last, text
        k += 1


class _Table:
    """The state between rows: which box we are in, and the GPU whose lines these are."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.made: list[Fact] = []
        self.open: dict[str, Any] | None = None
        self.open_lines: tuple[Line, Line] | None = None
        self.box = "gpus"
        self.processes: ProcessList = "absent"
        self.shown = 0
        self.instance: re.Match[str] | None = None

    def row(self, first: Line, last: Line, text: str) -> None:
        if not text or text.startswith(("+", "-", "=")):
            return
        if versions := _found("versions", text):
            self.versions(first, versions)
        elif hit := _found("inforom", text):
            self.made.append(InforomCorrupted(**at(self.capture, first), bus_id=hit["bus"]))
        elif "MIG devices:" in text:
            self.close()
            self.box = "mig"
        elif re.match(r"\|?\s*Processes:", text):
            self.close()
            self.box, self.processes = "processes", "empty"
        else:
            {"gpus": self.gpu_row, "mig": self.mig_row, "processes": self.process_row}[self.box](first, last, text)

    def versions(self, line: Line, hit: re.Match[str]) -> None:
        given = {name: None if value in (None, "N/A", "ERR!") else value for name, value in hit.groupdict().items()}
        self.made.append(
            DriverVersions(
                **at(self.capture, line), view="table", driver=given["driver"], tool=given["tool"], cuda=given["cuda"],
                cuda_missing=hit["cuda"] in ("N/A", "ERR!"),
            )
        )  # fmt: skip

    def gpu_row(self, first: Line, last: Line, text: str) -> None:
        cells = _cells(text)
        if identity := _identity(cells):
            self.close()
            self.open, self.open_lines = _first_line(*identity, cells), (first, last)
            return
        if _is_process(cells):
            self.process_row(first, last, text)
            return
        sensors = any(_found("sensors", cell) for cell in cells)
        if sensors and (self.open is None or "power_w" in self.open):
            # The line with the name was left out.
            self.close()
            self.open, self.open_lines = {"failed_cells": ()}, (first, last)
        if self.open is not None and self.open_lines is not None:
            _further_line(self.open, cells)
            # The line with power, memory and utilisation is the one to quote.
            self.open_lines = (first if sensors else self.open_lines[0], last)

    def close(self) -> None:
        """Make the fact of the GPU whose lines have been read."""
        if self.open is not None and self.open_lines is not None:
            self.made.append(GpuState(**at(self.capture, *self.open_lines), view="table", **self.open))
            self.shown += 1
        self.open = None

    def mig_row(self, first: Line, last: Line, text: str) -> None:
        cells = _cells(text)
        if (hit := _found("instance", cells[0])) and len(cells) >= 2:
            size = _found("size_pair", cells[1])
            sms = re.match(r"\d+", cells[2]) if len(cells) > 2 else None
            self.made.append(
                MigInstance(
                    **at(self.capture, first, last),
                    index=int(hit["index"]), gpu_instance=int(hit["gi"]), compute_instance=int(hit["ci"]),
                    device=int(hit["device"]),
                    used_bytes=mib(int(size[1])) if size else None, total_bytes=mib(int(size[2])) if size else None,
                    sms=int(sms[0]) if sms else None,
                )
            )  # fmt: skip

    def process_row(self, first: Line, last: Line, text: str) -> None:
        cell = " ".join(_cells(text))
        if "No running processes found" in cell:
            self.processes = "none-found"
        elif hit := _found("process", cell):
            self.processes = "rows"
            self.made.append(GpuProcess(**at(self.capture, first, last), view="table", **_process(hit)))
        elif "Not Supported" in cell and self.processes == "empty":
            self.processes = "not-supported"

    def facts(self) -> Iterator[Fact]:
        self.close()
        yield from _numbered(self.made)
        if self.shown or self.processes != "absent":
            yield SmiSnapshot(
                **at(self.capture, self.capture.lines[0], self.capture.lines[-1]),
                view="table", shown=self.shown, processes=self.processes,
            )  # fmt: skip


def _numbered(facts: list[Fact]) -> Iterator[Fact]:
    """Rows whose lines with index and name were left out are in nvidia-smi's order all the same."""
    nameless = [fact for fact in facts if isinstance(fact, GpuState) and fact.index is None]
    several = len(nameless) > 1 and len(nameless) == sum(isinstance(fact, GpuState) for fact in facts)
    for fact in facts:
        if several and isinstance(fact, GpuState):
            yield msgspec.structs.replace(fact, index=nameless.index(fact))
        else:
            yield fact


def _first_line(identity: re.Match[str], bus: re.Match[str], cells: list[str]) -> dict[str, Any]:
    name, state = identity["name"], identity["persistence"]
    failed = [what for what, cell in (("name", name), ("persistence", state)) if cell == "ERR!"]
    ecc = cells[2] if len(cells) > 2 else "N/A"
    if ecc == "ERR!":
        failed.append("ecc")
    return {
        "index": int(identity["index"]),
        "name": None if name == "ERR!" else name,
        "name_cut": name.endswith("..."),
        "bus_id": None if bus["bus"] in ("N/A", "ERR!") else bus["bus"],
        "display_active": {"On": True, "Off": False}.get(bus["display"] or ""),
        "persistence": {"On": True, "Off": False}.get(state),
        "driver_model": state if state in ("WDDM", "TCC", "MCDM") else None,
        "ecc": ecc if ecc not in ("N/A", "ERR!", "") else None,
        "uncorrected_errors": int(ecc) if ecc.isdigit() else None,
        "failed_cells": tuple(failed),
    }


def _further_line(gpu: dict[str, Any], cells: list[str]) -> None:
    """What the second and third line of a GPU add: each cell says by its form what it is."""
    failed = list(gpu["failed_cells"])

    def note(what: str, cell: str) -> None:
        if any(word in cell.lower() for word in _UNREADABLE):
            failed.append(what)

    for cell in cells:
        if hit := _found("sensors", cell):
            gpu |= {
                "fan": _share(hit["fan"]), "temperature_c": _figure(hit["temp"]), "power_w": _figure(hit["power"]),
                "power_cap_w": _figure(hit["cap"]),
                "performance_state": hit["perf"] if hit["perf"].startswith("P") else None,
            }  # fmt: skip
            for what in ("fan", "temp", "perf", "power", "cap"):
                note(
                    {"temp": "temperature", "perf": "performance state", "cap": "power cap"}.get(what, what), hit[what]
                )
        elif hit := _found("activity", cell):
            gpu |= {"utilisation": _share(hit["util"]), "compute_mode": None if hit["mode"] == "N/A" else hit["mode"]}
            note("utilisation", hit["util"])
        elif hit := _found("mig", cell):
            if len(cells) >= 3 and not any(cells[:-1]):
                gpu |= {
                    "mig": hit["mig"] if hit["mig"] in ("Enabled", "Disabled") else None,
                    "mig_pending": bool(hit["pending"]),
                }
                note("MIG", cell)
            elif "used_bytes" not in gpu and len(cells) == 3 and cell is cells[1]:
                gpu["memory"] = "hidden"
        elif hit := _found("memory", cell):
            _memory(gpu, hit["used"], hit["total"])
            note("memory", cell)
    gpu["failed_cells"] = tuple(failed)


def _memory(gpu: dict[str, Any], used: str, total: str | None) -> None:
    if "Not Supported" in used:
        gpu["memory"] = "unified"
    for name, cell in (("used_bytes", used), ("total_bytes", total or "")):
        if (figure := _figure(cell)) is not None:
            gpu[name] = mib(figure)


def _process(hit: re.Match[str]) -> dict[str, Any]:
    size = hit["size"]
    whole = re.match(r"(\d+)\s*MiB", size)
    return {
        "index": int(hit["index"]),
        "pid": int(hit["pid"]),
        "kind": hit["kind"],
        "name": hit["name"] or None,
        "used_bytes": mib(int(whole[1])) if whole else None,
        "cut": size.endswith("..."),
        "gpu_instance": int(hit["gi"]) if (hit["gi"] or "").isdigit() else None,
        "compute_instance": int(hit["ci"]) if (hit["ci"] or "").isdigit() else None,
    }


def _figure(cell: str) -> float | None:
    found = re.match(r"-?\d+(?:\.\d+)?", cell.strip())
    return float(found[0]) if found else None


def _share(cell: str) -> float | None:
    figure = _figure(cell)
    return None if figure is None else figure / 100
