"""`ubuntu-drivers devices` and `ubuntu-drivers list`: the driver packages that Ubuntu offers for a GPU.

modalias : pci:v000010DEd00002BB1sv000010DEsd0000204Bbc03sc00i00
vendor   : NVIDIA Corporation
driver   : nvidia-driver-580-server-open - distro non-free
driver   : nvidia-driver-580-open - distro non-free recommended
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import DriverPackage
from loadpath.core.text import Capture, Line

_PAIR = re.compile(r"^(modalias|vendor|model|driver|manual_install)\s*:\s+(.*)$")
_DEVICE = re.compile(r"^== /sys/devices/\S+ ==$")
_PACKAGE = re.compile(
    r"^(?:linux-modules-)?nvidia-(?:driver-|headless-(?:no-dkms-)?)?(?P<branch>\d{3})(?P<rest>[\w-]*)"
)
_LISTED = re.compile(r"^nvidia-(?:driver|headless)-\d{3}[\w-]*(?:,.*)?$")


def extent(lines: Sequence[Line], i: int) -> int:
    text = lines[i].text.strip()
    if not (_DEVICE.match(text) or re.match(r"(?:modalias|driver)\s*:\s", text) or _LISTED.match(text)):
        return i
    if _PAIR.match(text) and not re.search(r"pci:v|nvidia|xserver|nouveau", text):
        return i
    end = j = i + 1
    while j < len(lines) and j - end < 2:
        text = lines[j].text.strip()
        j += 1
        if _DEVICE.match(text) or _PAIR.match(text) or _LISTED.match(text):
            end = j
        elif text:
            break
    return end


def read(capture: Capture) -> Iterator[DriverPackage]:
    device_id: str | None = None
    model: str | None = None
    for line in capture.lines:
        text = line.text.strip()
        if _DEVICE.match(text):
            device_id = model = None
        pair = _PAIR.match(text)
        if pair and pair[1] == "modalias":
            found = re.search(r"v000010DEd0000([0-9A-F]{4})", pair[2], re.IGNORECASE)
            device_id = found[1].lower() if found else None
        elif pair and pair[1] == "model":
            model = pair[2]
        elif (pair and pair[1] == "driver") or (pair is None and _LISTED.match(text)):
            yield _package(pair[2] if pair else text, line, capture, device_id, model)


def _package(text: str, line: Line, capture: Capture, device_id: str | None, model: str | None) -> DriverPackage:
    name = re.split(r"[\s,]", text)[0]
    found = _PACKAGE.match(name)
    rest = found["rest"] if found else ""
    return DriverPackage(
        **at(capture, line), package=name, branch=int(found["branch"]) if found else None, server="-server" in rest,
        open=rest.endswith("-open"), recommended="recommended" in text, free="distro free" in text,
        device_id=device_id, model=model,
    )  # fmt: skip
