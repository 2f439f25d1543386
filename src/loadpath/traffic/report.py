"""From a result to a report: judged as a capture like any other, with the tables of its figures."""

from __future__ import annotations

import msgspec

from loadpath.core.facts.traffic import BenchTimeline
from loadpath.core.report import Report, Verdict
from loadpath.core.table import Column, Table
from loadpath.core.traffic import BenchResult, Figures, Level
from loadpath.core.units import show_count
from loadpath.core.vocabulary import State
from loadpath.diagnosis.traffic.phases import slow_stretches
from loadpath.reading.service import read_bytes
from loadpath.traffic.result_file import to_json
from loadpath.traffic.tables import level_name, tables_of

MOST_PHASES = 12
_SUMMARY = "bench-measured"
"""The figures in a sentence, as a finding: here the verdict and the tables say them."""


def report_on(result: BenchResult, source: str = "bench result") -> Report:
    """Verdict, findings, tables. The findings are those of `loadpath read` on the saved result."""
    sources = [(source, to_json(msgspec.structs.replace(result, exchanges=())))]
    work, unknown = _physics(result)
    read = read_bytes([*sources, *work])
    return msgspec.structs.replace(
        read,
        verdict=_verdict(result, read),
        findings=tuple(found for found in read.findings if found.id != _SUMMARY),
        tables=(*read.tables, *tables_of(result), *_phases(read)),
        steps=(),
        facts=(),
        skipped=(),
        captures=(),
        notes=(*result.notes, *_notes(result), *unknown),
        bench=msgspec.to_builtins(msgspec.structs.replace(result, exchanges=())),
    )


def _phases(read: Report) -> list[Table]:
    """The slowest stretches of the timeline, each with the phase that took its time."""
    told = next((fact for fact in read.facts if fact["type"] == BenchTimeline.__name__), None)
    slow = slow_stretches(msgspec.convert(told, BenchTimeline)) if told else ()
    if not slow:
        return []
    shown = sorted(sorted(slow, key=lambda one: -one.times)[:MOST_PHASES], key=lambda one: one.stretch.begin)
    rows = tuple(
        (f"{one.stretch.begin:.1f} - {one.stretch.end:.1f} s", one.figure, f"{one.times:.1f}x", one.phase, one.why)
        for one in shown
    )
    columns = (Column("time"), Column("slow"), Column("the usual"), Column("phase"), Column("by"))
    note = f"The worst {len(rows)} of {len(slow)}." if len(slow) > len(rows) else ""
    return [Table("bench-phases", "Slow stretches", columns, rows, note)]


def _physics(result: BenchResult) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The model on the card that the user named, as a capture beside the result; or why it cannot be."""
    own, server = result.settings, result.server
    if not own.gpu:
        return [], []
    from loadpath.traffic.physics import SOURCE, PhysicsUnknown, work_of

    served = server.model_root or server.model
    try:
        if not own.checkpoint and server.engine == "ollama":
            raise PhysicsUnknown("names of Ollama do not tell how the weights are quantised: --checkpoint names them")
        work = work_of(own.checkpoint or served, own.gpu, own.gpus, named=bool(own.checkpoint))
        return [(SOURCE, work)], []
    except PhysicsUnknown as error:
        return [], [f"Not held against the card: {error}."]


def headline(level: Level, found: Figures) -> str:
    """The figures that people compare: `concurrency 24: 3.41 requests/s, 1,746 tokens/s, TTFT p50 387 ms …`."""
    parts = [f"{found.request_rate:.3g} requests/s"]
    if found.output_rate:
        parts.append(f"{show_count(found.output_rate)} output tokens/s")
    parts += [
        f"{name} p50 {_ms(own.p50)}, p99 {_ms(own.p99)}"
        for name, own in (("TTFT", found.ttft), ("ITL", found.itl))
        if own
    ]
    return f"{level_name(level)}: {', '.join(parts)}"


def _ms(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 10 else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _verdict(result: BenchResult, read: Report) -> Verdict:
    best = result.best_rate
    shown = next((level for level in result.levels if best is not None and level.rate == best), None)
    shown = shown or next((level for level in reversed(result.levels) if level.figures), None)
    found = shown.figures if shown else None
    if shown is None or found is None:
        why = f": {result.interrupted}" if result.interrupted else ""
        return Verdict("unknown", f"Nothing was measured{why}.")
    failed = sum(found.errors.values())
    cut = f"; the run ended early ({result.interrupted})" if result.interrupted else ""
    if not found.completed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.errors.items())
        return Verdict("failed", f"None of {found.requests} requests was answered: {kinds}{cut}.")
    errors = f"; {failed} of {found.requests} requests failed" if failed else ""
    root = read.root
    state: State = "failed" if root and root.severity == "error" else "healthy"
    if state == "healthy" and (failed or (root and root.severity == "warning")):
        state = "degraded"
    return Verdict(
        state,
        f"Measured {'at' if shown.concurrency or shown.rate else 'on the'} {headline(shown, found)}{errors}{cut}.",
    )


def _notes(result: BenchResult) -> list[str]:
    made = []
    lengths = _short_answers(result)
    if lengths:
        made.append(lengths)
    if result.settings.same_prompts:
        made.append("The prompts were the same on purpose: a prefix cache answers for most of their prefill.")
    if result.settings.loop == "closed" and result.settings.slo:
        made.append(
            "Goodput of a closed loop flatters: a slow server is sent less, so no queue grows. --rate sends on a clock."
        )
    return made


def _short_answers(result: BenchResult) -> str:
    """Where answers ended before the limit that was asked for."""
    done = [x for x in result.exchanges if x.phase == "measured" and not x.error and x.asked_output and x.output_tokens]
    short = sum((x.output_tokens or 0) < (x.asked_output or 0) for x in done)
    if not done or short < len(done) / 20:
        return ""
    mean = sum(x.output_tokens or 0 for x in done) / len(done)
    return (
        f"{short} of {len(done)} answers ended before their limit: {mean:.0f} tokens on average. "
        "Compare only with runs that made as many."
    )
