"""Errors in fabricmanager.log: which NVSwitch, which SXid, fatal or not.

[Dec 19 2024 19:17:49] [ERROR] [tid 1374] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id
00000000:83:00.0 physical id 0 port 34
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.kernel import SxidEvent
from loadpath.core.pci import ADDRESS, pci_address
from loadpath.core.text import Capture


@cache
def _error() -> re.Pattern[str]:
    return re.compile(
        r"detected NVSwitch (?P<how>non-fatal|fatal) error (?P<code>\d{5})"
        rf"(?:.*?pci bus id (?P<pci>{ADDRESS}))?(?:.*?physical id (?P<switch>\d+))?(?:.*?port (?P<port>\d+))?"
    )


def read(capture: Capture) -> Iterator[SxidEvent]:
    for line in capture.lines:
        if not line.prose and (found := _error().search(line.text)):
            yield SxidEvent(
                **at(capture, line),
                pci=pci_address(found["pci"]) if found["pci"] else "",
                code=int(found["code"]),
                switch=int(found["switch"]) if found["switch"] else None,
                fatal=found["how"] == "fatal",
                link=int(found["port"]) if found["port"] else None,
                detail=f"port {found['port']}" if found["port"] else "",
            )
