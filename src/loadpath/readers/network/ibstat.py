"""`ibstat` and `ibstatus`: the ports of InfiniBand and RoCE cards.

CA 'mlx5_0'
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 400
                Link layer: InfiniBand

Infiniband device 'mlx5_0' port 1 status:
        state:           4: ACTIVE
        phys state:      5: LinkUp
        rate:            200 Gb/sec (4X HDR)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.collective import RdmaPort
from loadpath.core.text import Capture, Line

_DEVICE = re.compile(r"^\s*(?:CA '([\w.-]+)'|Infiniband device '([\w.-]+)' port (\d+) status:)")
_PORT = re.compile(r"^\s*Port (\d+):\s*$")
_FIELD = re.compile(r"^\s*([A-Za-z][\w ]*?)\s*:\s*(.*)$")
_END = re.compile(r"^\s*(?:ibpanic|ibwarn)\b")


def extent(lines: Sequence[Line], i: int) -> int:
    """From a card's heading over its fields, and those of the cards after it."""
    if not _DEVICE.match(lines[i].text):
        return i
    end = i + 1
    while end < len(lines) and (
        not lines[end].text.strip() or any(pattern.match(lines[end].text) for pattern in (_DEVICE, _PORT, _FIELD, _END))
    ):
        end += 1
    return end


def read(capture: Capture) -> Iterator[RdmaPort]:
    device, port = "", 1
    first: Line | None = None
    fields: dict[str, str] = {}
    for line in capture.lines:
        if found := _DEVICE.match(line.text):
            yield from _port(capture, first, device, port, fields)
            device, port = found[1] or found[2], int(found[3] or 1)
            first, fields = line, {}
        elif found := _PORT.match(line.text):
            yield from _port(capture, first, device, port, fields)
            port, first, fields = int(found[1]), line, {}
        elif found := _FIELD.match(line.text):
            fields[found[1].lower()] = found[2].strip()
    yield from _port(capture, first, device, port, fields)


def _port(capture: Capture, first: Line | None, device: str, port: int, fields: dict[str, str]) -> Iterator[RdmaPort]:
    state = fields.get("state", "").rpartition(": ")[2].capitalize()
    if first is None or not state:
        return
    rate = re.match(r"[\d.]+", fields.get("rate", ""))
    yield RdmaPort(
        **at(capture, first), device=device, port=port, state=state,
        physical=(fields.get("physical state") or fields.get("phys state") or "").rpartition(": ")[2],
        gbps=float(rate[0]) if rate else None, layer=fields.get("link layer") or fields.get("link_layer"),
    )  # fmt: skip
