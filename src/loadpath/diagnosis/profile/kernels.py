"""Recorded kernels and copies: which kernel takes the time, communication, copies that nothing hides, pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.profile import ApiTime, CopyTime, GpuTimeline, KernelTime
from loadpath.core.report import Check, Finding
from loadpath.core.units import show_bytes, show_time
from loadpath.diagnosis.profile.words import beside, communicates, graph_remedies, look_inside, percent
from loadpath.diagnosis.rule import Rule, finding

DOMINANT, COMMUNICATION, EXPOSED = 0.25, 0.2, 0.05
LEAST_PAGEABLE = 1 << 20
"""Bytes: less is a token or a flag of a step, whose cost is the wait, not the copy."""


def judge_kernels(case: Case) -> Iterator[Finding]:
    for source, gpu in dict.fromkeys((k.span.source, k.gpu) for k in case.all(KernelTime)):
        own = [k for k in case.all(KernelTime) if (k.span.source, k.gpu) == (source, gpu)]
        own.sort(key=lambda kernel: -kernel.seconds)
        where = {"gpu": "the GPUs" if gpu is None else f"GPU {gpu}"}
        yield from _whole_graphs(case, own, where)
        single = [k for k in own if not k.name.startswith("(CUDA graph")]
        between = [k for k in single if communicates(k)]
        if sum(k.share for k in between) >= COMMUNICATION:
            yield _communication(case, between, where)
        top = next((k for k in single if not communicates(k)), None)
        if top is not None and top.share >= DOMINANT:
            yield _dominant(case, top, where)


def _whole_graphs(case: Case, own: list[KernelTime], where: dict[str, str]) -> Iterator[Finding]:
    graphs = [k for k in own if k.name.startswith("(CUDA graph")]
    share = sum(k.share for k in graphs)
    if share >= DOMINANT:
        values = where | {"share": percent(share), "count": f"{sum(k.count for k in graphs):,}"}
        yield finding("profile-graphs-whole", graphs[:3], case=case, values=values)


def _communication(case: Case, between: list[KernelTime], where: dict[str, str]) -> Finding:
    share = sum(k.share for k in between)
    values = where | {
        "share": percent(share), "seconds": show_time(sum(k.seconds for k in between)), "kernel": between[0].name,
        "count": f"{between[0].count:,}", "mean": show_time(between[0].mean_seconds),
    }  # fmt: skip
    figures = {"share": round(share, 4), "seconds": sum(k.seconds for k in between)}
    return finding("profile-communication", between[:4], case=case, values=values, figures=figures)


def _dominant(case: Case, top: KernelTime, where: dict[str, str]) -> Finding:
    values = where | {
        "kernel": top.name, "share": percent(top.share), "count": f"{top.count:,}", "mean": show_time(top.mean_seconds),
        "seconds": show_time(top.seconds),
    }  # fmt: skip
    figures = {"kernel": top.name, "share": round(top.share, 4), "seconds": top.seconds, "count": top.count}
    return finding(
        "profile-dominant-kernel", [top], case=case, values=values, next_checks=[look_inside(top.name)], figures=figures
    )


def judge_copies(case: Case) -> Iterator[Finding]:
    for timeline in case.all(GpuTimeline):
        copies = [c for c in case.all(CopyTime) if c.gpu == timeline.gpu and beside(timeline, c)]
        own = [c for c in copies if "host" in c.direction]
        if own and timeline.span_seconds > 0:
            yield from _exposed(case, own, timeline)
            yield from _pageable(case, own, timeline)


def _exposed(case: Case, own: list[CopyTime], timeline: GpuTimeline) -> Iterator[Finding]:
    alone = sum(c.exposed_seconds or 0.0 for c in own)
    total = sum(c.seconds for c in own)
    if not total or alone < EXPOSED * timeline.span_seconds:
        return
    worst = max(own, key=lambda c: c.exposed_seconds or 0.0)
    values = {
        "gpu": f"GPU {timeline.gpu}", "alone": show_time(alone), "share": percent(alone / timeline.span_seconds),
        "part": percent(min(1.0, alone / total)), "direction": worst.direction, "size": show_bytes(worst.bytes or 0),
        "count": f"{worst.count:,}", "rate": _rate(worst), "memory": worst.memory or None,
    }  # fmt: skip
    figures = {"exposed_seconds": alone, "share": round(alone / timeline.span_seconds, 4)}
    yield finding("profile-exposed-copies", [timeline, worst], case=case, values=values, figures=figures)


def _pageable(case: Case, own: list[CopyTime], timeline: GpuTimeline) -> Iterator[Finding]:
    paged = [c for c in own if c.memory == "pageable"]
    size, seconds = sum(c.bytes or 0 for c in paged), sum(c.seconds for c in paged)
    if size < LEAST_PAGEABLE or seconds < 0.01 * timeline.span_seconds:
        return
    worst = max(paged, key=lambda c: c.seconds)
    pinned = max(
        (c.bytes_per_s or 0.0 for c in own if c.memory == "pinned" and (c.bytes or 0) >= LEAST_PAGEABLE), default=0.0
    )
    values = {
        "gpu": f"GPU {timeline.gpu}", "size": show_bytes(size), "count": f"{sum(c.count for c in paged):,}",
        "direction": worst.direction, "rate": _rate(worst), "share": percent(seconds / timeline.span_seconds),
        "pinned": f"{pinned / 1e9:.3g} GB/s" if pinned else None,
    }  # fmt: skip
    figures = {"pageable_bytes": size, "seconds": seconds, "bytes_per_s": worst.bytes_per_s}
    yield finding("profile-pageable-copies", paged[:3], case=case, values=values, figures=figures)


def _rate(copy: CopyTime) -> str | None:
    return f"{copy.bytes_per_s / 1e9:.3g} GB/s" if copy.bytes_per_s else None


def judge_sums(case: Case) -> Iterator[Finding]:
    """Sums of `nsys stats` without a timeline: what they cannot tell, and how it is got."""
    if not case.has(GpuTimeline) and (first := next((k for k in case.all(KernelTime) if k.gpu is None), None)):
        total = sum(k.seconds for k in case.all(KernelTime) if k.gpu is None)
        checks = [Check("The gaps between the kernels: the export holds every start and end.",
                        "nsys export --type sqlite -o run.sqlite run.nsys-rep && loadpath profile run.sqlite")]  # fmt: skip
        yield from _outweighed(case, total, checks)
        yield finding(
            "profile-sums-only", [first], case=case, values={"total": show_time(total)}, next_checks=checks,
            figures={"kernel_seconds": total},
        )  # fmt: skip


def _outweighed(case: Case, total: float, checks: list[Check]) -> Iterator[Finding]:
    """Sums alone show it where the launch calls take longer than all that they launched."""
    launches = [c for c in case.all(ApiTime) if c.role == "launch"]
    spent = sum(c.seconds for c in launches)
    if not launches or spent < total:
        return
    middle = launches[0].median_seconds or spent / sum(c.count for c in launches)
    values = {
        "launch": show_time(spent), "kernels": show_time(total), "count": f"{sum(c.count for c in launches):,}",
        "call": show_time(middle), "most": percent(total / spent),
    }  # fmt: skip
    effect = "one call a step instead of one a kernel"
    yield finding(
        "profile-launches-outweigh", launches[:2], case=case, values=values, remedies=graph_remedies(case, effect),
        next_checks=checks, figures={"launch_seconds": spent, "kernel_seconds": total},
    )  # fmt: skip


RULES = (
    Rule(judge_kernels, needs=(KernelTime,), makes=(
        "profile-graphs-whole", "profile-communication", "profile-dominant-kernel",
    )),
    Rule(judge_copies, needs=(CopyTime,), makes=("profile-exposed-copies", "profile-pageable-copies"), uses=(GpuTimeline,)),
    Rule(judge_sums, needs=(KernelTime,), makes=("profile-sums-only", "profile-launches-outweigh"), uses=(ApiTime,)),
)  # fmt: skip
