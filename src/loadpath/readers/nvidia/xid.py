"""`NVRM: Xid` and `SXid` lines, wherever they stand: kernel logs, journals, a pod's log, a bug report, a chat.

NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.kernel import GpuIdentity, SxidEvent, XidEvent
from loadpath.core.pci import pci_address
from loadpath.core.text import Capture, Line

UNNAMED = "(not named)"
MOST_WRAPPED = 3  # lines that a person's editor wraps one message into


class _Patterns(msgspec.Struct, frozen=True):
    xid: re.Pattern[str]
    sxid: re.Pattern[str]
    plugin: re.Pattern[str]
    loose: re.Pattern[str]
    address: re.Pattern[str]
    told: re.Pattern[str]
    asked: re.Pattern[str]
    caused_by: re.Pattern[str]
    identity: re.Pattern[str]
    pid: re.Pattern[str]
    name: re.Pattern[str]
    recovery: re.Pattern[str]
    nvlink5: re.Pattern[str]
    link: re.Pattern[str]
    words: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        xid=re.compile(
            r"\bXid ?\((?:PCI:)?(?P<pci>[^)\s]+)(?: +GPU-I:(?P<gi>\d+))?\) ?: *(?P<code>\d{1,3})\b,?(?P<rest>.*)"
        ),
        sxid=re.compile(
            r"(?:nvswitch(?P<switch>\d+): )?\bSXid ?\((?:PCI:)?(?P<pci>[^)\s]+)\): *(?P<code>\d{5})\b,? *(?P<rest>.*)"
        ),
        plugin=re.compile(r"XidCriticalError: Xid=(?P<code>\d+) on Device=(?P<device>[^;,\s]+)"),
        loose=re.compile(r"\bXID(?: error)?[:=]? ?(?P<code>\d{1,3})\b(?P<rest>.*)", re.IGNORECASE),
        address=re.compile(r"\b(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)\b"),
        told=re.compile(r"\bpid=\d|\b(?:detected|occurred|reported)\b", re.IGNORECASE),
        asked=re.compile(r"\b(?:check|grep|see|look|dmesg|catalog\w*|docs?)\b|https?:", re.IGNORECASE),
        caused_by=re.compile(r"caused by previous Xid (?P<code>\d+)"),
        identity=re.compile(r"NVRM: GPU at (?:PCI:)?(?P<pci>[0-9a-fA-F:.]+): (?P<uuid>GPU-[0-9a-fA-F-]+)"),
        pid=re.compile(r"\bpid=(?:'(?P<quoted>[^']*)'|(?P<pid>[^,\s]+)),?"),
        name=re.compile(r"\bname=(?P<name>[^,]+),?"),
        recovery=re.compile(r"recovery action changed from \S+ \([^)]*\) to \S+ \((?P<to>[^)]+)\)"),
        nvlink5=re.compile(
            r"(?P<unit>[A-Z][A-Z0-9_]+(?:/[A-Z0-9_]+)?) +(?P<severity>Non-?fatal|Fatal)"
            r" +XC\d+ +i\d+ +Link +(?P<link>-?\d+)",
            re.IGNORECASE,
        ),
        link=re.compile(r"\b[Ll]ink (?P<link>\d+)"),
        words=re.compile(r"0x[0-9a-fA-F]+"),
    )


def read(capture: Capture) -> Iterator[Fact]:
    patterns = _patterns()
    lines = [line for line in capture.lines if not line.prose]
    for i, line in enumerate(lines):
        if "xid" not in line.text.lower() and "NVRM: GPU at" not in line.text:
            continue
        if found := patterns.sxid.search(line.text):
            yield _sxid(capture, line, found)
        elif found := patterns.xid.search(line.text):
            last, rest = _whole(lines, i, found["rest"])
            yield _xid(capture, line, last, found, rest)
        elif found := patterns.plugin.search(line.text):
            yield XidEvent(**at(capture, line), pci=pci_address(found["device"]), code=int(found["code"]))
        elif (found := patterns.loose.search(line.text)) and _is_told(line.text):
            yield _xid(capture, line, line, found, found["rest"])
        elif found := patterns.identity.search(line.text):
            yield GpuIdentity(**at(capture, line), pci=pci_address(found["pci"]), uuid=found["uuid"])


def _is_told(text: str) -> bool:
    """Does a line in another program's words tell of an Xid that happened (not where to look for one)?"""
    patterns = _patterns()
    happened = patterns.address.search(text) or patterns.told.search(text)
    return happened is not None and patterns.asked.search(text) is None


def _address(text: str) -> str | None:
    found = _patterns().address.search(text)
    return found["pci"] if found else None


def _whole(lines: Sequence[Line], i: int, rest: str) -> tuple[Line, str]:
    """The message with the indented lines that its paster's editor wrapped it into, and the last of them."""
    last = lines[i]
    for line in lines[i + 1 : i + 1 + MOST_WRAPPED]:
        if not line.raw[:1].isspace() or "NVRM" in line.raw or line.number != last.end + 1 or not line.text:
            break
        if not rest.rstrip().endswith((",", ".")) and not line.text.startswith("MMU Fault"):
            break
        rest, last = f"{rest.rstrip()} {line.text}", line
    return last, rest


def _xid(capture: Capture, line: Line, last: Line, found: re.Match[str], rest: str) -> XidEvent:
    patterns = _patterns()
    pid, name = patterns.pid.search(rest), patterns.name.search(rest)
    detail = (
        patterns.name.sub("", patterns.pid.sub("", rest, count=1), count=1) if name else patterns.pid.sub("", rest, 1)
    )
    recovery = patterns.recovery.search(rest)
    nvlink5 = patterns.nvlink5.search(rest)
    link = nvlink5 or patterns.link.search(rest)
    caused_by = patterns.caused_by.search(rest)
    code = int(found["code"])
    gi = found.groupdict().get("gi")
    pci = found.groupdict().get("pci") or _address(line.text)
    return XidEvent(
        **at(capture, line, last),
        pci=pci_address(pci) if pci and pci.strip(".?xX*") else UNNAMED,  # people mask addresses with dots
        code=code,
        gi=int(gi) if gi else None,
        caused_by=int(caused_by["code"]) if caused_by else None,
        pid=int(pid["pid"]) if pid and (pid["pid"] or "").isdigit() else None,
        name=_known(name["name"]) if name else None,
        detail=detail.strip(" ,"),
        recovery=recovery["to"] if recovery else None,
        unit=nvlink5["unit"].upper() if nvlink5 else None,
        fatal=nvlink5["severity"].lower() == "fatal" if nvlink5 else None,
        link=int(link["link"]) if link else None,
        words=tuple(int(w, 16) for w in patterns.words.findall(rest)) if code == 74 or nvlink5 else (),
    )


def _known(name: str) -> str | None:
    return None if "unknown" in name else name.strip("' ")


def _sxid(capture: Capture, line: Line, found: re.Match[str]) -> SxidEvent:
    rest = found["rest"]
    low = rest.lower()
    link = _patterns().link.search(rest)
    fatal = False if low.startswith(("non-fatal", "nonfatal")) else True if low.startswith("fatal") else None
    return SxidEvent(
        **at(capture, line),
        pci=pci_address(found["pci"]),
        code=int(found["code"]),
        switch=int(found["switch"]) if found["switch"] else None,
        fatal=fatal,
        link=int(link["link"]) if link else None,
        detail=rest,
    )
