"""`cuobjdump --list-elf --list-ptx`: the GPU code in a library, one line an entry.

ELF file    1: libkernels.1.sm_80.cubin
PTX file    1: libkernels.1.sm_90.ptx
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from loadpath.core.facts.base import at
from loadpath.core.facts.binaries import GpuCodeFound
from loadpath.core.text import Capture, Line

_ENTRY = re.compile(r"^(?:ELF|PTX) file\s+\d+: (?P<library>\S+?)\.\d+\.sm_(?P<arch>\d{2,3}[af]?)\.(?P<kind>cubin|ptx)$")


def extent(lines: Sequence[Line], i: int) -> int:
    while i < len(lines) and _ENTRY.match(lines[i].text.strip()):
        i += 1
    return i


def read(capture: Capture) -> Iterator[GpuCodeFound]:
    """One fact a library; how many kernel files it has is the greatest count of an architecture."""
    native: dict[str, Counter[str]] = {}
    ptx: dict[str, Counter[str]] = {}
    for line in capture.lines:
        if hit := _ENTRY.match(line.text.strip()):
            kind, prefix = (native, "sm_") if hit["kind"] == "cubin" else (ptx, "compute_")
            kind.setdefault(hit["library"], Counter())[prefix + hit["arch"]] += 1
    for library in dict.fromkeys((*native, *ptx)):
        code, source = native.get(library, Counter()), ptx.get(library, Counter())
        yield GpuCodeFound(
            **at(capture, capture.lines[0], capture.lines[-1]),
            library=library,
            native=dict(code),
            ptx=dict(source),
            parts=max((*code.values(), *source.values()), default=0),
        )
