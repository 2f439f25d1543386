"""`lspci` in any of its forms (`-nn`, `-n`, `-k`, `-vv`): NVIDIA devices, their driver, and PCIe link lines.

    01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb1] (rev a1)
            LnkCap: Port #0, Speed 32GT/s, Width x16, ASPM L1
            LnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)
            Kernel driver in use: nvidia

Link lines are read without their device, too: people paste just those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.gpu import LinkState, PciDevice
from loadpath.core.text import Capture, Line

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    slot = r"(?P<slot>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    return {
        "device": re.compile(
            rf"^{slot}\s+(?P<kind>[A-Z0-9][\w /()-]*?(?: \[[0-9a-f]{{4}}\])?|[0-9a-f]{{4}}):\s+(?P<what>\S.*)$"
        ),
        "nvidia": re.compile(r"^NVIDIA Corporation\s*(.*)$|^10de:", re.IGNORECASE),
        "id": re.compile(r"\b10de:([0-9a-f]{4})\b|\bDevice ([0-9a-f]{4})\b", re.IGNORECASE),
        "revision": re.compile(r"\(rev ([0-9a-f]{2})\)"),
        "link": re.compile(
            r"^Lnk(Cap|Sta):.*?Speed ([\d.]+|unknown)\s*(?:GT/s)?\s*(\(\w+\))?,\s*Width x(\d+)\s*(\(\w+\))?"
        ),
        "driver": re.compile(r"^Kernel driver in use: (\S+)"),
        "modules": re.compile(r"^Kernel modules: (.+)"),
        "unassigned": re.compile(r"^Region (\d): Memory at <(?:unassigned|ignored)> .*?(?:\[size=(\w+)\])?$"),
        "aer": re.compile(r"^AER: corrected (\d+), nonfatal (\d+), fatal (\d+)"),
        "numa": re.compile(r"^NUMA node: (\d+)"),
        "iommu": re.compile(r"^IOMMU group: (\d+)"),
        "power": re.compile(r"^Power state: (\w+)"),
        "function": re.compile(r"^SR-IOV: a virtual function"),
        "detail": re.compile(
            r"^(?:Lnk(?:Cap|Sta|Ctl)2?|Kernel (?:driver|modules)|Subsystem|Control|Status|Region|Capabilities|Flags|Memory at|"
            r"I/O ports|Expansion ROM|Interrupt|Latency|NUMA node|IOMMU group|Physical Slot|DeviceName|Dev(?:Cap|Ctl|Sta)2?|"
            r"!!! Unknown header|\[?virtual\]?)"
        ),
    }


def extent(lines: Sequence[Line], i: int) -> int:
    patterns = _patterns()
    text = lines[i].text.strip()
    if not _is_device(text) and not patterns["link"].match(text):
        return i
    end = j = i + 1
    while j < len(lines):
        text = lines[j].text.strip()
        if not text and j == end and j + 1 < len(lines) and _goes_on(lines[j + 1]):
            j += 1
        elif text and _goes_on(lines[j]):
            end = j = j + 1
        else:
            break
    return end


def _goes_on(line: Line) -> bool:
    text = line.text.strip()
    indented = line.text[:1] in " \t" or line.raw[:1] == "\t"
    return (
        _is_device(text)
        or _patterns()["detail"].match(text) is not None
        or (indented and ":" in text and len(text) < 300)
    )


def _is_device(text: str) -> bool:
    found = _patterns()["device"].match(text)
    return found is not None and bool(
        re.search(
            r"\b[0-9a-f]{4}:[0-9a-f]{4}\b|controller|bridge|device|accelerator|memory|peripheral|\brev ",
            text,
            re.IGNORECASE,
        )
    )


def read(capture: Capture) -> Iterator[Fact]:
    """One fact for each NVIDIA device and one for each of its links."""
    block: list[Line] = []
    for line in capture.lines:
        if _is_device(line.text.strip()) and block:
            yield from _device(block, capture)
            block = []
        block.append(line)
    yield from _device(block, capture)


def _device(block: list[Line], capture: Capture) -> Iterator[Fact]:
    patterns = _patterns()
    head = patterns["device"].match(block[0].text.strip())
    if head is None:
        yield from _link(block, None, None, capture)
        return
    if not patterns["nvidia"].match(head["what"]):
        return
    number = patterns["id"].search(head["what"])
    revision = patterns["revision"].search(head["what"])
    driver = next((m[1] for line in block if (m := patterns["driver"].match(line.text.strip()))), None)
    modules = next((m[1] for line in block if (m := patterns["modules"].match(line.text.strip()))), "")
    name = re.sub(
        r"^NVIDIA Corporation\s*|\s*\[10de:\w+\]|\s*\(rev \w+\).*$|\s*\(prog-if .*$", "", head["what"]
    ).strip()
    if re.fullmatch(r"(?:Device(?: \w{4})?|10de:\w{4})?", name):
        name = ""  # this pci.ids does not know the board
    yield PciDevice(
        **at(capture, block[0]), slot=head["slot"], kind=head["kind"], name=name or None,
        device_id=(number[1] or number[2]).lower() if number else None, kernel_driver=driver,
        kernel_modules=tuple(word.strip() for word in modules.split(",") if word.strip()),
        answers=not (revision and revision[1] == "ff"), **_details(block),
    )  # fmt: skip
    yield from _link(block, head["slot"], name or None, capture)


def _details(block: list[Line]) -> dict[str, Any]:
    """What else stands below a device: windows without an address, error counts, its place."""
    hits: dict[str, list[re.Match[str]]] = {}
    for line in block[1:]:
        for name in ("unassigned", "aer", "numa", "iommu", "power", "function"):
            if found := _patterns()[name].match(line.text.strip()):
                hits.setdefault(name, []).append(found)
    told: dict[str, Any] = {}
    if "unassigned" in hits:
        told["unassigned"] = tuple(f"{m[1]} ({m[2]})" if m[2] else m[1] for m in hits["unassigned"])
    if "aer" in hits:
        told["aer"] = tuple(int(figure) for figure in hits["aer"][0].groups())
    for name, field in (("numa", "numa_node"), ("iommu", "iommu_group")):
        if name in hits:
            told[field] = int(hits[name][0][1])
    if "power" in hits:
        told["power_state"] = hits["power"][0][1]
    return {**told, "virtual_function": True} if "function" in hits else told


def _link(block: list[Line], slot: str | None, name: str | None, capture: Capture) -> Iterator[LinkState]:
    """The link of a device from its capability (what it can) and status (what it is) lines."""
    hits = [(line, m) for line in block if (m := _patterns()["link"].match(line.text.strip()))]
    can = next((m for _, m in hits if m[1] == "Cap"), None)
    now = next(((line, m) for line, m in hits if m[1] == "Sta"), None)
    if now is None:
        return
    line, state = now
    speed, most = _speed(state[2]), _speed(can[2]) if can else None
    yield LinkState(
        **at(capture, line), bus_id=slot, name=name, speed_gts=speed, max_speed_gts=most,
        generation=_GENERATIONS.get(speed or 0), max_generation=_GENERATIONS.get(most or 0),
        speed_lowered=_lowered(state[3]), width_lowered=_lowered(state[5]), width=int(state[4]), max_width=int(can[4]) if can else None,
    )  # fmt: skip


def _lowered(mark: str | None) -> bool | None:
    """`(downgraded)` and `(ok)` behind a figure; older lspci prints neither."""
    return None if mark is None else "downgraded" in mark


def _speed(text: str) -> float | None:
    return None if text == "unknown" else float(text)
