"""Results of other tools, judged: their arrays of single requests left out, a pasted sentence taken as figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from loadpath.core.report import Report, Verdict
from loadpath.core.table import Cell, Column, Table
from loadpath.intake.clean import clean
from loadpath.reading.service import read_lines
from loadpath.traffic.physics import SOURCE, PhysicsUnknown, work_of

LONG = 64
"""Entries from which on a list of a result is single requests, not levels of load."""
POINTS = ("mean", "p50", "p90", "p95", "p99", "maximum")


def judged(name: str, data: bytes, *, model: str = "", gpu: str = "", gpus: int = 1) -> Report:
    """The report on a result of another tool, with a table of its figures. `model`, `gpu`: what they are held against."""
    lines = [msgspec.structs.replace(line, prose=False) for line in clean(condensed(data))]
    report = read_lines([(name, lines)])
    levels = [fact for fact in report.facts if fact["type"] == "Benchmark"]
    notes: list[str] = []
    if gpu:
        served = model or next((level["model"] for level in levels if level["model"]), "")
        try:
            if not served:
                raise PhysicsUnknown("the result does not name its model: --checkpoint MODEL beside --gpu")
            report = read_lines([(name, lines), (SOURCE, clean(work_of(served, gpu, gpus, named=bool(model))))])
        except PhysicsUnknown as error:
            notes.append(f"Not held against the card: {error}.")
    return msgspec.structs.replace(
        report,
        verdict=_verdict(report, levels),
        tables=(*report.tables, *_tables(levels)),
        notes=(*report.notes, *notes),
        steps=(),
    )


def condensed(data: bytes) -> bytes:
    """JSON documents (and lines of JSON) without their long lists; anything else as it is."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return data
    made = list(_documents(data))
    return (
        b"\n".join(msgspec.json.format(msgspec.json.encode(_short(one)), indent=1) for one in made) + b"\n"
        if made
        else data
    )


def _documents(data: bytes) -> Iterator[Any]:
    import json  # unlike msgspec it takes Infinity and NaN, which these tools print

    try:
        yield json.loads(data)
        return
    except ValueError:
        pass
    for line in data.splitlines():
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError:
                return


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _short(one) for key, one in value.items() if not (isinstance(one, list) and len(one) > LONG)}
        return {key: ("inf" if one == float("inf") else one) for key, one in kept.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value


def _verdict(report: Report, levels: list[dict[str, Any]]) -> Verdict:
    """A result that was read says that a server answered; a finding says what is wrong with the figures."""
    if report.verdict.state != "unknown" or not levels:
        return report.verdict
    told = next((f.title for f in report.findings if f.id in ("bench-measured", "bench-figures-pasted")), "")
    return Verdict("healthy", f"{told}.") if told else report.verdict


def _tables(levels: list[dict[str, Any]]) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for level in levels:
        named = level["label"] or (f"concurrency {level['concurrency']}" if level["concurrency"] else level["tool"])
        for latency in ("ttft", "itl", "tpot", "e2e"):
            if spread := level[latency]:
                rows.append((named, latency.upper(), *(spread.get(point) for point in POINTS)))
    if rows:
        columns = (Column("load"), Column("latency"), *(Column(point, "seconds") for point in POINTS))
        yield Table("bench-latencies", "Latencies as read", columns, tuple(rows))
