"""Stretches of kernel log: dmesg (plain, -T, --decode, ISO), journald, syslog, raw /dev/kmsg.

This reader only says where such a stretch begins and ends; what stands in it is read by the line readers that also find
single kernel lines elsewhere (`xid`, `gpu_lost`, `pcie_errors`, `oom_killer`, `driver_versions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from loadpath.core.facts.base import Fact
from loadpath.core.text import Capture, Line


@cache
def _kernel() -> re.Pattern[str]:
    return re.compile(
        r"(?:^|[\s>|])\[ *\d+\.\d{3,6}\]"  # dmesg
        r"|(?:^|[\s>|])\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4}\]"  # dmesg -T
        r"|^kern +:\w+ +:"  # dmesg --decode
        r"|^\d+,\d+,\d+,[-c+];"  # /dev/kmsg
        r"|\bkernel: |\bNVRM: |(?:^|\s)nvidia-(?:nvlink|nvswitch\d*|uvm|modeset|peermem)\b"
    )


def extent(lines: Sequence[Line], i: int) -> int:
    """Kernel lines, the indented continuations of their messages, and single blank lines between them."""
    end = i
    for j in range(i, len(lines)):
        raw = lines[j].raw
        if _kernel().search(raw[:200]):
            end = j + 1
        elif not (j > i and raw[:1].isspace() and raw.strip()) and raw.strip():
            break
        elif raw.strip() and end == j:
            end = j + 1
    return end


def read(capture: Capture) -> Iterable[Fact]:
    return ()
