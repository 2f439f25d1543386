"""`nvidia-smi topo -m` and `topo -p2p`: the matrix of how each pair of GPUs and NICs is connected.

        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV4     NODE    0-31    0               N/A

Tabs or blanks, with or without the columns behind the matrix; the header may carry underline codes or two blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import Topology
from loadpath.core.text import Capture, Line

_NODE = r"GPU\d+|NIC\d+|mlx\w+_\d+|CPU\d+"
_HEADER = re.compile(rf"^(?:{_NODE})(?:\s+(?:{_NODE}))*(?:\s+CPU Affinity.*)?$")
_ROW = re.compile(rf"^({_NODE})\s+(.*)$")
_CELL = re.compile(r"^(?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV\d+|OK|CNS|GNS|TNS|NS|DR|U|N/A)$")
_P2P = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
_LEGEND = re.compile(
    rf"^(?:Legend:|NIC Legend:|(?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV#|OK|CNS|GNS|TNS|NS|DR|U)\s*=|(?:{_NODE}):\s)"
)


def extent(lines: Sequence[Line], i: int) -> int:
    names = _names(lines[i].text)
    if not names:
        return i
    first = next((line.text.strip() for line in lines[i + 1 : i + 3] if line.text.strip()), "")
    if _cells(first, names) is None:
        return i
    end = j = i + 1
    while j < len(lines) and j - end < 3:
        text = lines[j].text.strip()
        j += 1
        if _cells(text, names) is not None or _LEGEND.match(text):
            end = j
        elif text:
            break
    return end


def _names(text: str) -> list[str]:
    """The nodes of a header line; [] where it is none."""
    text = text.strip()
    if not _HEADER.match(text):
        return []
    return re.findall(_NODE, text.partition("CPU Affinity")[0])


def _cells(text: str, names: list[str]) -> tuple[str, list[str], str] | None:
    """A row's node, its cells, and what stands behind the matrix; None where the text is no row of it."""
    row = _ROW.match(text.strip())
    if row is None:
        return None
    words = row[2].split()
    cells = words[: len(names)]
    if len(cells) < len(names) or not all(_CELL.match(cell) for cell in cells):
        return None
    return row[1], cells, " ".join(words[len(names) :])


def read(capture: Capture) -> Iterator[Topology]:
    names = _names(capture.lines[0].text)
    links: dict[str, str] = {}
    numa: dict[str, str] = {}
    last = capture.lines[0]
    for line in capture.lines[1:]:
        row = _cells(line.text, names)
        if row is None:
            continue
        node, cells, behind = row
        last = line
        links |= {f"{node} {other}": cell for other, cell in zip(names, cells, strict=True) if other != node}
        if node.startswith("GPU") and (affinity := behind.split()):
            numa[node] = affinity[1] if len(affinity) > 1 else affinity[0]
    p2p = any(cell in _P2P for cell in links.values())
    yield Topology(
        **at(capture, capture.lines[0], last), what="p2p" if p2p else "path",
        gpus=tuple(n for n in names if n.startswith("GPU")), nics=tuple(n for n in names if not n.startswith(("GPU", "CPU"))),
        links=links, numa=numa,
    )  # fmt: skip
