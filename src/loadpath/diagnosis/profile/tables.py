"""Profiles as tables: each GPU's time, the kernels and calls that took the most of it, and kernels measured inside."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.profile import ApiTime, CopyTime, GpuTimeline, KernelProfile, KernelTime
from loadpath.core.table import Cell, Column, Table

MOST = 60


def tables(case: Case, most: int = MOST) -> tuple[Table, ...]:
    """What profilers recorded in this case; of kernels and calls the first `most`."""
    made = (_gpus(case), *_kernels(case, most), _copies(case), _calls(case, most), _launches(case, most))
    return tuple(table for table in made if table is not None)


def _gpus(case: Case) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    for t in case.all(GpuTimeline):
        causes = [t.gap_seconds.get(cause, 0.0) / (t.span_seconds or 1.0) for cause in ("host", "sync", "queued")]
        rows.append(
            (t.gpu, t.name or None, t.span_seconds, t.busy_seconds / (t.span_seconds or 1.0), *causes, t.kernels)
        )
    columns = (
        Column("GPU"), Column("name"), Column("recorded", "seconds"), Column("had work", "share"),
        Column("launched late", "share"), Column("after a wait", "share"), Column("queued", "share"), Column("kernels"),
    )  # fmt: skip
    note = "Shares of the time between the first and the last recorded work; work on any stream counts once."
    return Table("profile-gpus", "Recorded time of each GPU", columns, tuple(rows), note) if rows else None


def _kernels(case: Case, most: int) -> Iterator[Table]:
    sources = list(dict.fromkeys(k.span.source for k in case.all(KernelTime)))
    for source, gpu in dict.fromkeys((k.span.source, k.gpu) for k in case.all(KernelTime)):
        own = sorted(
            (k for k in case.all(KernelTime) if (k.span.source, k.gpu) == (source, gpu)), key=lambda k: -k.seconds
        )
        rows = tuple(
            (k.name, k.share, k.count, k.seconds, k.mean_seconds, k.median_seconds, k.longest_seconds)
            for k in own[:most]
        )
        columns = (
            Column("kernel"), Column("share", "share"), Column("launches"), Column("total", "seconds"), Column("mean", "seconds"),
            Column("median", "seconds"), Column("longest", "seconds"),
        )  # fmt: skip
        name = "profile-kernels" if gpu is None else f"profile-kernels-{gpu}"
        where = "" if gpu is None else f" of GPU {gpu}"
        if len(sources) > 1:
            name, where = f"{name}-{sources.index(source) + 1}", f"{where} in {source}"
        more = (
            f"{len(own) - most} more kernels, {sum(k.share for k in own[most:]):.1%} of the time."
            if len(own) > most
            else ""
        )
        yield Table(name, f"Kernels{where} by time", columns, rows, more)


def _copies(case: Case) -> Table | None:
    own = sorted(case.all(CopyTime), key=lambda c: -c.seconds)
    rows = tuple(
        (c.gpu, c.direction, c.memory or None, c.count, c.bytes, c.seconds, c.bytes_per_s, c.exposed_seconds)
        for c in own
    )
    columns = (
        Column("GPU"), Column("copy"), Column("memory"), Column("count"), Column("size", "bytes"), Column("total", "seconds"),
        Column("rate", "bytes/s"), Column("no kernel beside", "seconds"),
    )  # fmt: skip
    return Table("profile-copies", "Copies and memory sets", columns, rows) if rows else None


def _calls(case: Case, most: int) -> Table | None:
    own = sorted(case.all(ApiTime), key=lambda c: -c.seconds)[:most]
    rows = tuple((c.name, c.role, c.count, c.seconds, c.median_seconds, c.longest_seconds) for c in own)
    columns = (
        Column("call"), Column("what"), Column("calls"), Column("total", "seconds"), Column("median", "seconds"),
        Column("longest", "seconds"),
    )  # fmt: skip
    note = "Added up over all threads of the host, waiting included."
    return Table("profile-calls", "Calls of the CUDA API by time", columns, rows, note) if rows else None


def _launches(case: Case, most: int) -> Table | None:
    own = sorted(case.all(KernelProfile), key=lambda k: -k.figures.get("seconds", 0.0))[:most]
    names = ("seconds", "memory", "dram", "compute", "occupancy_achieved", "tensor")
    rows = tuple((k.name, k.blocks, *(k.figures.get(name) for name in names)) for k in own)
    columns = (
        Column("kernel"), Column("blocks"), Column("time", "seconds"), Column("memory", "share"), Column("DRAM", "share"),
        Column("compute", "share"), Column("occupancy", "share"), Column("tensor", "share"),
    )  # fmt: skip
    note = "Shares of what the card can sustain. Each kernel ran alone, its caches flushed and (by default) clocks at base."
    return Table("profile-launches", "Launches measured by Nsight Compute", columns, rows, note) if rows else None
