"""From a recorded timeline to the lines of its digest: what each GPU did, what its gaps waited for, kernels, copies, calls.

A digest is text, so that it can be kept, pasted and read again like every capture; `readers.timeline` reads it.

#loadpath-timeline {"tool":"nsys","version":"2025.3.2","gpus":1}
gpu {"gpu":0,"name":"NVIDIA L4","span_seconds":1.25,"busy_seconds":0.91,…}
kernel {"gpu":0,"name":"gemm_bf16","count":640,"seconds":0.52,"share":0.61,…}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from loadpath.core.facts.profile import SMALL_GAP, Cause
from loadpath.readers.profile.cuda_names import plain_call, role_of, short_kernel
from loadpath.readers.profile.gpu_work import (
    WHOLE,
    Copy,
    Cover,
    Interval,
    Kernel,
    Trace,
    View,
    gaps,
    length,
    median,
    union,
)

MARK = "#loadpath-timeline "
NS = 1e-9
MOST_KERNELS, MOST_CALLS, MOST_GAPS = 60, 25, 8
W = TypeVar("W", Kernel, Copy)
_SMALL = round(SMALL_GAP / NS)


class Gap(msgspec.Struct):
    """Time without work between two pieces of it. `after`: the kernel or copy that ended it."""

    start: int
    end: int
    cause: Cause
    after: Kernel | Copy


def digest(trace: Trace, view: View = WHOLE) -> Iterator[str]:
    """The lines of the digest, of the part of the timeline that is asked for."""
    chosen = [gpu for gpu in trace.gpus if view.gpu is None or gpu == view.gpu]
    head = {
        "tool": trace.tool, "version": trace.version, "gpus": len(chosen), "calls": bool(trace.timed),
        "cpu_events": trace.cpu_events, "window": view.words,
    }  # fmt: skip
    yield MARK.rstrip() + " " + _json({name: value for name, value in head.items() if value != ""})
    bounds = view.bounds(trace.first) if view.words else None
    for gpu in chosen:
        kernels = _inside(trace.kernels.get(gpu, []), bounds)
        copies = _inside(trace.copies.get(gpu, []), bounds)
        if kernels or copies:
            yield from _gpu(trace, gpu, kernels, copies)
    yield from _call_lines(trace, bounds)


def _call_lines(trace: Trace, bounds: Interval | None) -> Iterator[str]:
    timed: dict[str, list[int]] = {}
    for name, (starts, durations) in trace.timed.items():
        own = [d for s, d in zip(starts, durations, strict=True) if bounds is None or bounds[0] <= s < bounds[1]]
        if own:
            timed[name] = own
    for name, own in sorted(timed.items(), key=lambda item: -sum(item[1]))[:MOST_CALLS]:
        yield "call " + _json({
            "name": plain_call(name), "role": role_of(name), "count": len(own), "seconds": sum(own) * NS,
            "median_seconds": median(own) * NS, "longest_seconds": max(own) * NS,
        })  # fmt: skip


def _json(fields: dict[str, Any]) -> str:
    """One line; times to the nanosecond, as they were recorded."""
    return msgspec.json.encode({name: _rounded(value) for name, value in fields.items()}).decode()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return round(value, 9) if isinstance(value, float) else value


def _inside(works: list[W], bounds: Interval | None) -> list[W]:
    """The work that lies in the window, in the order of its starts."""
    works.sort()
    return works if bounds is None else [work for work in works if work.start >= bounds[0] and work.end <= bounds[1]]


def _gpu(trace: Trace, gpu: int, kernels: list[Kernel], copies: list[Copy]) -> Iterator[str]:
    works: list[Kernel | Copy] = sorted([*kernels, *copies], key=lambda work: (work.start, work.end))
    busy = union((work.start, work.end) for work in works)
    running = union((kernel.start, kernel.end) for kernel in kernels)
    found = _gaps(trace, works, busy)
    small = [gap for gap in found if gap.cause == "host" and gap.end - gap.start <= _SMALL]
    board = trace.boards.get(gpu)
    yield "gpu " + _json({
        "gpu": gpu, "name": board.name if board else "", "capability": board.capability if board else "",
        "span_seconds": (busy[-1][1] - busy[0][0]) * NS, "busy_seconds": length(busy) * NS,
        "kernel_seconds": length(running) * NS,
        "kernels": sum(kernel.graph < 2 for kernel in kernels), "graph_launches": sum(k.graph == 2 for k in kernels),
        "graph_kernels": sum(map(trace.of_graph, kernels)), "streams": len({k.stream for k in kernels}),
        "gaps": len(found), "gap_seconds": _by_cause(found), "small_gaps": len(small),
        "small_gap_seconds": sum(gap.end - gap.start for gap in small) * NS,
        "longest_gap_seconds": max((gap.end - gap.start for gap in found), default=0) * NS,
    })  # fmt: skip
    yield from _kernel_lines(gpu, kernels)
    yield from _copy_lines(gpu, copies, Cover(running))
    yield from _gap_lines(trace, gpu, found, works, busy[0][0])
    yield from _launch_line(trace, gpu, kernels)


def _by_cause(found: list[Gap]) -> dict[str, float]:
    total: dict[str, int] = {}
    for gap in found:
        total[gap.cause] = total.get(gap.cause, 0) + gap.end - gap.start
    return {cause: spent * NS for cause, spent in total.items()}


def _gaps(trace: Trace, works: list[Kernel | Copy], busy: list[Interval]) -> list[Gap]:
    """Every gap with its cause; the work that ends a gap is the one that starts where the next busy stretch does."""
    held = {role: Cover(union((s, e) for s, e, _ in sorted(spans))) for role, spans in trace.spans.items()}
    by_start: dict[int, Kernel | Copy] = {}
    for work in works:
        by_start.setdefault(work.start, work)
    return [Gap(s, e, _cause(trace, held, s, e, by_start[e]), by_start[e]) for s, e in gaps(busy)]


def _cause(trace: Trace, held: dict[str, Cover], start: int, end: int, after: Kernel | Copy) -> Cause:
    call = trace.calls.get(after.call)
    if call is None:
        return "unknown"
    if call[1] <= start:
        return "queued"
    if "sync" in held and held["sync"].holds(start):
        return "sync"
    if "allocation" in held and 2 * held["allocation"].within(start, end) >= end - start:
        return "allocation"
    return "host" if call[0] >= start or call[1] > start else "queued"


def _kernel_lines(gpu: int, kernels: list[Kernel]) -> Iterator[str]:
    by_name: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, []).append(kernel)
    total = sum(kernel.end - kernel.start for kernel in kernels) or 1
    spent = {name: sum(k.end - k.start for k in own) for name, own in by_name.items()}
    for name in sorted(spent, key=lambda name: -spent[name])[:MOST_KERNELS]:
        own = by_name[name]
        widest = max(own, key=lambda kernel: kernel.end - kernel.start)
        line: dict[str, Any] = {
            "gpu": gpu, "name": short_kernel(name), "count": len(own), "seconds": spent[name] * NS, "share": spent[name] / total,
            "median_seconds": median(k.end - k.start for k in own) * NS, "longest_seconds": (widest.end - widest.start) * NS,
        }  # fmt: skip
        shape = zip(("blocks", "threads", "registers"), widest.shape, strict=True)
        yield "kernel " + _json(line | {field: value for field, value in shape if value})


def _copy_lines(gpu: int, copies: list[Copy], running: Cover) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Copy]] = {}
    for copy in copies:
        groups.setdefault((copy.direction, copy.memory), []).append(copy)
    for (direction, memory), own in groups.items():
        exposed = union((c.start, c.end) for c in own)
        yield "copy " + _json({
            "gpu": gpu, "direction": direction, "memory": memory, "count": len(own),
            "seconds": sum(c.end - c.start for c in own) * NS, "bytes": sum(c.bytes for c in own),
            "exposed_seconds": (length(exposed) - sum(running.within(s, e) for s, e in exposed)) * NS,
        })  # fmt: skip


def _gap_lines(trace: Trace, gpu: int, found: list[Gap], works: list[Kernel | Copy], first: int) -> Iterator[str]:
    longest = sorted(found, key=lambda gap: gap.start - gap.end)[:MOST_GAPS]
    ends = {gap.start for gap in longest}
    before = {work.end: _work_name(work) for work in works if work.end in ends}
    spans = [span for own in trace.spans.values() for span in own]
    for gap in longest:
        overlaps = (
            (min(e, gap.end) - max(s, gap.start), name) for s, e, name in spans if s < gap.end and e > gap.start
        )
        spent, call = max(overlaps, default=(0, ""))
        yield "gap " + _json({
            "gpu": gpu, "at_seconds": (gap.start - first) * NS, "seconds": (gap.end - gap.start) * NS, "cause": gap.cause,
            "before": before.get(gap.start, ""), "after": _work_name(gap.after), "call": plain_call(call),
            "call_seconds": spent * NS,
        })  # fmt: skip


def _work_name(work: Kernel | Copy) -> str:
    return short_kernel(work.name) if isinstance(work, Kernel) else f"copy {work.direction}"


def _launch_line(trace: Trace, gpu: int, kernels: list[Kernel]) -> Iterator[str]:
    """What single launches cost the host, of kernels whose call was recorded."""
    calls = trace.calls
    own = [
        (kernel, calls[kernel.call])
        for kernel in kernels
        if kernel.graph < 2 and kernel.call in calls and not trace.of_graph(kernel)
    ]
    if own:
        yield "launch " + _json({
            "gpu": gpu, "launches": len(own), "call_seconds": median(e - s for _, (s, e) in own) * NS,
            "kernel_seconds": median(k.end - k.start for k, _ in own) * NS,
            "outrun": sum(k.end - k.start < e - s for k, (s, e) in own),
            "early": sum(k.start < s for k, (s, _) in own), "delay_seconds": median(k.start - s for k, (s, _) in own) * NS,
        })  # fmt: skip
