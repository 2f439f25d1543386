"""`nvidia-smi -q` text: sections by indentation, `key : value` below them; whole, cut, or a few sections of it.

    GPU 00000000:3A:00.0
        Product Name                          : NVIDIA L4
        Remapped Rows
            Pending                           : No

The column of the colon moves between branches, so a line is split at its first ` : `. Key names repeat: `Pending` is
also a MIG mode, and the event reason *counters* (570+) carry the names of the reasons; the section decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import DriverVersions, GpuProcess, MigInstance, SmiSnapshot
from loadpath.core.text import Capture, Line
from loadpath.readers.nvidia_smi.fields import Record, facts_of, memory, plain, whole

_SECTION_NAMES = """
    accounting mode | addressing mode | aggregate | aggregate uncorrectable sram sources | applications clocks | bank remap availability
    histogram | bar1 memory usage | bridge chip | capabilities | clock policy | clocks | clocks event reasons | clocks event reasons
    counters | clocks throttle reasons | conf compute protected memory usage | default applications clocks | deferred clocks | device
    attributes | double bit | dram encryption mode | driver model | ecc errors | ecc mode | edpp multiplier | encoder stats | fabric |
    fb memory usage | fbc stats | gpu link info | gpu memory power readings | gpu operation mode | gpu power readings | gpu reset status
    | gpu virtualization mode | health | ibmnpu | inforom bbx object flush | inforom version | link width | max clocks | max customer
    boost clocks | memory power readings | mig device | mig mode | module power readings | pci | pcie generation | platform info | power
    readings | power samples | power smoothing | processes | remapped rows | retired pages | shared | shared bar1 memory | shared fb
    memory usage | single bit | supported clocks | temperature | utilization | voltage | volatile | workload power profiles | sram
    threshold | bar1 memory | gpu utilization samples | memory utilization samples | sm clock samples
    """
_SECTIONS = frozenset(" ".join(name.split()) for name in _SECTION_NAMES.split("|"))
_LONE = ("remapped rows", "clocks event reasons", "clocks throttle reasons", "fb memory usage", "ecc errors", "retired pages",
         "gpu link info", "fabric", "gpu reset status")  # fmt: skip


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "head": re.compile(r"^=+\s*NVSMI LOG\s*=+$"),
        "gpu": re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$"),
        "pair": re.compile(r"^([A-Za-z][A-Za-z0-9 .,/()#-]{1,60}?)\s+:(?:\s+(.*)|\s*)$"),
        "top": re.compile(r"^(?:Driver Version|KMD Version|Attached GPUs|CUDA(?: UMD)? Version)\s+: "),
        "cut": re.compile(r"^\[?\s*(?:\.\.\.|…)\s*\]?$"),
    }


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    patterns = _patterns()
    begins = (
        patterns["head"].match(text)
        or patterns["gpu"].match(text)
        or patterns["top"].match(text)
        or (text.startswith("Timestamp") and any(patterns["top"].match(n.text.strip()) for n in lines[i + 1 : i + 3]))
        or (text.lower() in _LONE and _pair_follows(lines, i))
    )
    if not begins:
        return i
    end = j = i + 1
    while j < len(lines) and j - end < 3:
        text = lines[j].text.strip()
        if patterns["head"].match(text):
            break
        j += 1
        if not text:
            continue
        if not _belongs(text) and not (_unknown_section(text) and _pair_follows(lines, j - 1)):
            break
        end = j
    # A lone heading or key is no capture: something must follow it.
    return end if end > i + 1 else i


def _pair_follows(lines: Sequence[Line], i: int) -> bool:
    return any(_patterns()["pair"].match(line.text.strip()) for line in lines[i + 1 : i + 4])


def _belongs(text: str) -> bool:
    patterns = _patterns()
    pair = patterns["pair"].match(text)
    return bool(
        (pair and not re.match(r"(?:INFO|WARN|ERROR|DEBUG)\b", text)) or text.lower() in _SECTIONS
        or patterns["gpu"].match(text) or patterns["cut"].match(text)
    )  # fmt: skip


def _unknown_section(text: str) -> bool:
    """A heading of a branch that is not known yet: a few capitalised words."""
    return len(text) < 45 and re.fullmatch(r"[A-Z][A-Za-z0-9]*(?: [A-Z(][A-Za-z0-9)]*){0,5}", text) is not None


class _Block:
    """The records of one GPU, and of the MIG devices and processes that stand inside it."""

    def __init__(self, bus_id: str | None) -> None:
        self.bus_id = bus_id
        self.records: dict[str, Record] = {}
        self.mig: list[dict[str, Record]] = []
        self.processes: list[dict[str, Record]] = []
        self.process_list: str = ""


def read(capture: Capture) -> Iterator[Fact]:
    top, blocks = _blocks(capture)
    yield from _versions(top, capture)
    blocks = [block for block in blocks if block.records or block.processes or block.mig]
    for index, block in enumerate(blocks):
        # A lone section does not say which GPU of several it is about.
        place = index if block.bus_id else None
        yield from facts_of(block.records, "query", capture, view="query", index=place, bus_id=block.bus_id)
        yield from (_mig(mig, place, capture) for mig in block.mig if mig)
        yield from (own for one in block.processes if (own := _process(one, block.bus_id, place, capture)))
    named = [block for block in blocks if block.bus_id]
    if named:
        attached = top.get("Attached GPUs")
        yield SmiSnapshot(
            **at(capture, attached.line if attached else capture.lines[0]), view="query", shown=len(named),
            attached=whole(attached.value) if attached else None, processes=_process_list(named),
        )  # fmt: skip


def _process_list(blocks: list[_Block]) -> Any:
    if any(block.processes for block in blocks):
        return "rows"
    return "none-found" if all(block.process_list == "None" for block in blocks) else "absent"


def _blocks(capture: Capture) -> tuple[dict[str, Record], list[_Block]]:
    """The records above the first GPU, and one block for each GPU."""
    top: dict[str, Record] = {}
    blocks: list[_Block] = []
    sections: list[tuple[int, str]] = []
    patterns = _patterns()
    for line in capture.lines:
        text = line.text.strip()
        if not text or patterns["head"].match(text) or patterns["cut"].match(text):
            continue
        if gpu := patterns["gpu"].match(text):
            blocks.append(_Block(gpu[1]))
            sections = []
            continue
        # The whole line's column: quote marks and prefixes shift all lines alike.
        depth = max(line.raw.find(text), 0)
        while sections and sections[-1][0] >= depth and depth > 0:
            sections.pop()
        pair = patterns["pair"].match(text)
        if pair is None or (not (pair[2] or "").strip() and text.rstrip(" :").lower() in _SECTIONS):
            sections = [*([] if depth == 0 else sections), (depth, text.rstrip(" :"))]
            _opened(blocks, text.rstrip(" :"))
            continue
        record = Record((pair[2] or "").strip(), line)
        if not blocks:
            if (not sections and _patterns()["top"].match(text)) or text.startswith(("Timestamp", "CUDA", "KMD")):
                top.setdefault(pair[1].strip(), record)
                continue
            blocks.append(_Block(None))
            for _, name in sections:
                _opened(blocks, name)
        _keep(blocks[-1], [name for _, name in sections], pair[1].strip(), record)
    return top, blocks


def _opened(blocks: list[_Block], name: str) -> None:
    if blocks and name == "MIG Device":
        blocks[-1].mig.append({})


def _keep(block: _Block, sections: list[str], key: str, record: Record) -> None:
    if key in ("Processes", "GPU instance ID", "Process ID", "Compute instance ID") or "Processes" in sections:
        _keep_process(block, key, record)
        return
    path = f"{sections[-1]} > {key}" if sections else key
    if "MIG Device" in sections and block.mig:
        block.mig[-1].setdefault(path, record)
        return
    block.records.setdefault(path, record)
    block.records.setdefault(key, record)
    if len(sections) > 1:
        block.records.setdefault(f"{sections[-2]}/{path}", record)


def _keep_process(block: _Block, key: str, record: Record) -> None:
    if key == "Processes":
        block.process_list = record.value
        return
    begins = key == "GPU instance ID" or (
        key == "Process ID" and (not block.processes or "Process ID" in block.processes[-1])
    )
    if begins:
        block.processes.append({})
    if block.processes:
        block.processes[-1].setdefault(key, record)


def _versions(top: dict[str, Record], capture: Capture) -> Iterator[DriverVersions]:
    driver = top.get("KMD Version") or top.get("Driver Version")
    cuda = top.get("CUDA UMD Version") or top.get("CUDA Version")
    first = driver or cuda
    if first is not None:
        yield DriverVersions(
            **at(capture, first.line), view="query", driver=plain(driver.value) if driver else None,
            cuda=plain(cuda.value) if cuda else None,
        )  # fmt: skip


def _mig(records: dict[str, Record], index: int | None, capture: Capture) -> MigInstance:
    def figure(*paths: str) -> int | None:
        return next((whole(records[path].value) for path in paths if path in records), None)

    def size(key: str) -> int | None:
        paths = (f"Shared FB Memory Usage > {key}", f"FB Memory Usage > {key}")
        return next((memory(records[path].value) for path in paths if path in records), None)

    return MigInstance(
        **at(capture, next(iter(records.values())).line), index=index,
        device=figure("MIG Device > Index"), gpu_instance=figure("MIG Device > GPU Instance ID"),
        compute_instance=figure("MIG Device > Compute Instance ID"), used_bytes=size("Used"), total_bytes=size("Total"),
        sms=figure("Shared > Multiprocessor count"),
    )  # fmt: skip


def _process(records: dict[str, Record], bus_id: str | None, index: int | None, capture: Capture) -> GpuProcess | None:
    pid = whole(records["Process ID"].value) if "Process ID" in records else None
    if pid is None:
        return None

    def word(key: str) -> str | None:
        return plain(records[key].value) if key in records else None

    used = records.get("Used GPU Memory")
    return GpuProcess(
        **at(capture, (used or records["Process ID"]).line), view="query", pid=pid, index=index, bus_id=bus_id,
        kind=word("Type"), name=word("Name"), used_bytes=memory(used.value) if used else None,
        gpu_instance=whole(word("GPU instance ID") or ""), compute_instance=whole(word("Compute instance ID") or ""),
    )  # fmt: skip
