"""Names in profiles: what a call of the CUDA API does, and a kernel's name without its templates and parameters."""

from __future__ import annotations

import re
from functools import cache

from loadpath.core.facts.profile import Role

LONGEST = 72
_VERSION = re.compile(r"_v\d+$|_ptsz$|_ptds$")
_SYNC = re.compile(r"Synchronize$|^(?:cu(?:da)?|hip)Memcpy(?!.*Async)|^cudaMemcpy.*ToSymbol$|^cudaStreamWaitValue")
_LAUNCH = re.compile(r"^(?:cu(?:da)?|hip)(?:Module|Ext)*Launch(?:Cooperative)?Kernel|^cudaLaunch$")
_GRAPH = re.compile(r"^(?:cu(?:da)?|hip)GraphLaunch")
_ALLOCATION = re.compile(r"^(?:cu(?:da)?|hip)(Mem)?(Malloc|Free|Alloc|HostAlloc|HostRegister|HostUnregister|AddressReserve|Create|Map|Unmap"
                         r"|SetAccess|Release)")  # fmt: skip
_COPY = re.compile(r"^(?:cu(?:da)?|hip)Mem(cpy|set|Prefetch)")


def plain_call(name: str) -> str:
    """`cudaLaunchKernel_v7000` → `cudaLaunchKernel`."""
    while (shorter := _VERSION.sub("", name)) != name:
        name = shorter
    return name


@cache
def role_of(call: str) -> Role:
    """What a call does to the order of work. Copies that do not say Async wait for the GPU."""
    name = plain_call(call)
    if _SYNC.search(name):
        return "sync"
    if _GRAPH.search(name):
        return "graph-launch"
    if _LAUNCH.search(name):
        return "launch"
    if _COPY.search(name):
        return "copy"
    return "allocation" if _ALLOCATION.search(name) else "other"


@cache
def short_kernel(name: str, most: int = LONGEST) -> str:
    """The kernel's own name: no return type, parameters or arguments of templates; cut in the middle where still long."""
    plain = _outside(_unqualified(name), "<", ">")
    plain = _outside(plain.replace("(anonymous namespace)", "anonymous"), "(", ")").strip()
    plain = plain or name.strip()
    return plain if len(plain) <= most else f"{plain[: most - 20]}…{plain[-19:]}"


def _unqualified(name: str) -> str:
    return re.sub(r"^(?:void|int|float|bool|unsigned \w+|static)\s+", "", name.strip())


def _outside(text: str, opening: str, closing: str) -> str:
    """`text` without what stands between the brackets; as it is where they do not match (cut names)."""
    if text.count(opening) != text.count(closing):
        return text.partition(opening)[0] or text
    kept, depth = [], 0
    for char in text:
        depth += char == opening
        if not depth:
            kept.append(char)
        depth -= char == closing
    return "".join(kept)
