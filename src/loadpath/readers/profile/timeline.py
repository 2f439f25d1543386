"""The digest of a recorded timeline (Nsight Systems' SQLite export, a Chrome trace of the torch profiler).

#loadpath-timeline {"tool":"nsys","version":"2025.3.2","gpus":1,"calls":true}
gpu {"gpu":0,"name":"NVIDIA L4","span_seconds":1.25,"busy_seconds":0.91,"kernel_seconds":0.88,"kernels":5120}
copy {"gpu":0,"direction":"host-to-device","memory":"pageable","count":12,"seconds":0.03,"bytes":104857600}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.profile import ApiTime, CopyTime, GpuTimeline, KernelTime, LaunchCost, LongGap, TimelineRead
from loadpath.core.text import Capture, Line
from loadpath.core.units import show_bytes, show_time
from loadpath.readers.profile.gpu_timeline import MARK

_KINDS: dict[str, type[Fact]] = {
    "#loadpath-timeline": TimelineRead, "gpu": GpuTimeline, "kernel": KernelTime, "copy": CopyTime, "gap": LongGap,
    "call": ApiTime, "launch": LaunchCost,
}  # fmt: skip


def extent(lines: Sequence[Line], i: int) -> int:
    if not lines[i].text.startswith(MARK):
        return i
    end = i + 1
    while end < len(lines) and lines[end].text.partition(" {")[0] in _KINDS and not lines[end].text.startswith(MARK):
        end += 1
    return end


def read(capture: Capture) -> Iterator[Fact]:
    for line in capture.lines:
        word, _, rest = line.text.partition(" ")
        kind = _KINDS.get(word)
        try:
            told = msgspec.json.decode(rest) if kind else None
        except msgspec.DecodeError:
            continue
        if kind is None or not isinstance(told, dict):
            continue
        fields = {name: value for name, value in told.items() if name in kind.__struct_fields__}
        common = at(capture, line)
        try:
            fact = msgspec.convert({**fields, "span": msgspec.to_builtins(common["span"]), "type": kind.__name__}, kind)
        except msgspec.ValidationError:
            continue
        yield msgspec.structs.replace(fact, run=common["run"], text=_WORDS[kind](fact))


def _timeline(fact: TimelineRead) -> str:
    source = {"nsys": "Nsight Systems", "torch": "torch profiler"}[fact.tool]
    window = f", {fact.window}" if fact.window else ""
    return f"timeline of {source} {fact.version}".rstrip() + f": {fact.gpus} GPUs{window}"


def _gpu(fact: GpuTimeline) -> str:
    return (
        f"GPU {fact.gpu} {fact.name}".rstrip()
        + f": {show_time(fact.busy_seconds)} busy of {show_time(fact.span_seconds)}, "
        f"{fact.kernels:,} kernels, {fact.graph_launches:,} graph launches, {fact.gaps:,} gaps"
    )


def _kernel(fact: KernelTime) -> str:
    return f"kernel {fact.name}: {fact.count:,} x, {show_time(fact.seconds)}, {fact.share:.1%} of kernel time"


def _copy(fact: CopyTime) -> str:
    size = "" if fact.bytes is None else f", {show_bytes(fact.bytes)}"
    return f"copy {fact.direction} {fact.memory}".rstrip() + f": {fact.count:,} x{size}, {show_time(fact.seconds)}"


def _gap(fact: LongGap) -> str:
    call = f", {show_time(fact.call_seconds)} of it in {fact.call}" if fact.call else ""
    return f"gap of {show_time(fact.seconds)} at {fact.at_seconds:.3f} s, before {fact.after} ({fact.cause}{call})"


def _call(fact: ApiTime) -> str:
    return f"{fact.name}: {fact.count:,} calls, {show_time(fact.seconds)}"


def _launch(fact: LaunchCost) -> str:
    return (
        f"{fact.launches:,} single launches: the call {show_time(fact.call_seconds)}, the kernel "
        f"{show_time(fact.kernel_seconds)} (medians), {fact.outrun:,} kernels shorter than their call"
    )


_WORDS: dict[type[Fact], Callable[[Any], str]] = {
    TimelineRead: _timeline, GpuTimeline: _gpu, KernelTime: _kernel, CopyTime: _copy, LongGap: _gap, ApiTime: _call,
    LaunchCost: _launch,
}  # fmt: skip
