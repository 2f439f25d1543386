"""`ls -l /dev/nvidia*`: the device files that a process needs, and `ls` saying that there are none.

crw-rw-rw- 1 root root 195,   0 Sep  3 08:11 /dev/nvidia0
ls: cannot access '/dev/nvidia-uvm': No such file or directory
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import DeviceNode
from loadpath.core.text import Capture, Line

_NODE = re.compile(
    r"^(?P<mode>c[rwxsStT-]{9})[.+@]?\s+\d+\s+\S+\s+\S+\s+(?P<major>\d+),\s*(?P<minor>\d+)\s.*?\s(?P<path>\S*nvidia\S*)$"
)
_MISSING = re.compile(r"ls: cannot access ['‘\"]?(?P<path>/dev/nvidia[^'’\":]*)['’\"]?: No such file or directory")
_FOLDER = re.compile(r"^(?P<path>/dev/nvidia[\w-]*):$")


def extent(lines: Sequence[Line], i: int) -> int:
    end = j = i
    while j < len(lines) and j - end < 4:
        text = lines[j].text.strip()
        j += 1
        if _NODE.match(text) or _MISSING.search(text):
            end = j
        elif not (end > i and (not text or _FOLDER.match(text) or re.match(r"total \d+$", text))):
            break
    return end


def read(capture: Capture) -> Iterator[DeviceNode]:
    folder = ""
    for line in capture.lines:
        text = line.text.strip()
        if found := _FOLDER.match(text):
            folder = found["path"]
        elif node := _NODE.match(text):
            path = node["path"] if node["path"].startswith("/") else f"{folder or '/dev'}/{node['path']}"
            yield DeviceNode(
                **at(capture, line), path=path, major=int(node["major"]), minor=int(node["minor"]), mode=node["mode"]
            )
        elif missing := _MISSING.search(text):
            yield DeviceNode(**at(capture, line), path=missing["path"], missing=True)
