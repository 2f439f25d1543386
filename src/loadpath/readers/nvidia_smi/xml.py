"""`nvidia-smi -q -x`: the XML of schema v10 to v13, also without declaration, cut off, or broken in the middle.

What stands before the place where it breaks is read; entities are never expanded and nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.parsers import expat

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import DriverVersions, GpuProcess, MigInstance, SmiSnapshot
from loadpath.core.text import Capture, Line
from loadpath.readers.nvidia_smi.fields import Record, facts_of, memory, plain, whole

_ROOT = "nvidia_smi_log"
_BARE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    if not (text.startswith(("<?xml", "<!DOCTYPE nvidia_smi_log", f"<{_ROOT}"))):
        return i
    if not any(_ROOT in line.text for line in lines[i : i + 4]):
        return i
    end, j = i + 1, i + 1
    while j < len(lines) and j - end < 4:
        text = lines[j].text.strip()
        j += 1
        if text.startswith("<") or text.endswith(">"):
            end = j
        if text.startswith(f"</{_ROOT}"):
            return j
    return end


class _Gpu:
    def __init__(self, bus_id: str | None) -> None:
        self.bus_id = bus_id
        self.records: dict[str, Record] = {}
        self.mig: list[dict[str, Record]] = []
        self.processes: list[dict[str, Record]] = []
        self.has_processes = False


class _Parse:
    """A streaming parse that keeps each leaf's text by its path below the GPU (or the MIG device, or the process)."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.path: list[str] = []
        self.text = ""
        self.top: dict[str, Record] = {}
        self.gpus: list[_Gpu] = []
        self.at = 0
        parser = expat.ParserCreate()
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.data
        self.feed(parser)

    def feed(self, parser: expat.XMLParserType) -> None:
        for k, line in enumerate(self.lines):
            text = line.text.strip()
            if text.startswith(("<?xml", "<!")):
                continue
            self.at = k
            try:
                # Cleaning turns `&amp;` of a pasted page into `&`; here it has to be one again.
                parser.Parse((_BARE.sub("&amp;", text) + "\n").encode("utf-8", "replace"), False)
            except expat.ExpatError:
                return

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.text = ""
        self.path.append(tag)
        if tag == "gpu" and len(self.path) == 2:
            self.gpus.append(_Gpu(attributes.get("id")))
        elif self.gpus and tag == "mig_device":
            self.gpus[-1].mig.append({})
        elif self.gpus and tag == "process_info":
            self.gpus[-1].processes.append({})
        elif self.gpus and tag == "processes":
            self.gpus[-1].has_processes = True

    def data(self, text: str) -> None:
        self.text += text

    def end(self, tag: str) -> None:
        value = self.text.strip()
        self.text = ""
        path, self.path = self.path, self.path[:-1]
        if not value:
            return
        record = Record(value, self.lines[self.at])
        if len(path) == 2:
            self.top.setdefault(tag, record)
        elif self.gpus and "gpu" in path[:2]:
            self.keep(path[2:], record)

    def keep(self, path: list[str], record: Record) -> None:
        gpu = self.gpus[-1]
        if "mig_device" in path:
            gpu.mig[-1].setdefault("/".join(path[path.index("mig_device") + 1 :]), record)
        elif "process_info" in path:
            gpu.processes[-1].setdefault("/".join(path[path.index("process_info") + 1 :]), record)
        else:
            gpu.records.setdefault("/".join(path), record)


def read(capture: Capture) -> Iterator[Fact]:
    parse = _Parse(capture.lines)
    yield from _versions(parse.top, capture)
    for index, gpu in enumerate(parse.gpus):
        yield from facts_of(gpu.records, "xml", capture, view="xml", index=index, bus_id=gpu.bus_id)
        for mig in gpu.mig:
            if mig:
                yield _mig(mig, index, capture)
        for own in gpu.processes:
            if (pid := whole(own["pid"].value) if "pid" in own else None) is not None:
                yield _process(own, pid, gpu.bus_id, index, capture)
    if parse.gpus:
        attached = parse.top.get("attached_gpus")
        rows = any(gpu.processes for gpu in parse.gpus)
        listed = all(gpu.has_processes for gpu in parse.gpus)
        yield SmiSnapshot(
            **at(capture, attached.line if attached else capture.lines[0]), view="xml", shown=len(parse.gpus),
            attached=whole(attached.value) if attached else None,
            processes="rows" if rows else "none-found" if listed else "absent",
        )  # fmt: skip


def _versions(top: dict[str, Record], capture: Capture) -> Iterator[DriverVersions]:
    driver = top.get("kmd_version") or top.get("driver_version")
    cuda = top.get("cuda_umd_version") or top.get("cuda_version")
    if driver is not None:
        yield DriverVersions(
            **at(capture, driver.line), view="xml", driver=plain(driver.value), cuda=plain(cuda.value) if cuda else None
        )


def _mig(records: dict[str, Record], index: int, capture: Capture) -> MigInstance:
    def figure(path: str) -> int | None:
        return whole(records[path].value) if path in records else None

    def size(key: str) -> int | None:
        paths = (f"fb_memory_usage/{key}", f"shared_fb_memory_usage/{key}")
        return next((memory(records[path].value) for path in paths if path in records), None)

    return MigInstance(
        **at(capture, next(iter(records.values())).line), index=index, device=figure("index"),
        gpu_instance=figure("gpu_instance_id"), compute_instance=figure("compute_instance_id"),
        used_bytes=size("used"), total_bytes=size("total"), sms=figure("device_attributes/shared/multiprocessor_count"),
    )  # fmt: skip


def _process(records: dict[str, Record], pid: int, bus_id: str | None, index: int, capture: Capture) -> GpuProcess:
    def word(path: str) -> str | None:
        return plain(records[path].value) if path in records else None

    used = records.get("used_memory")
    return GpuProcess(
        **at(capture, (used or records["pid"]).line), view="xml", pid=pid, index=index, bus_id=bus_id, kind=word("type"),
        name=word("process_name"), used_bytes=memory(used.value) if used else None,
        gpu_instance=whole(word("gpu_instance_id") or ""), compute_instance=whole(word("compute_instance_id") or ""),
    )  # fmt: skip
