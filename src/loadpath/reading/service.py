"""From bytes to a report: the one place where intake, readers, engines and diagnosis meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Setting, Silence
from loadpath.core.guard import guarded
from loadpath.core.masking import mask_all
from loadpath.core.report import CaptureReport, Report, Skipped
from loadpath.core.text import Capture, Line
from loadpath.diagnosis.diagnose import diagnose
from loadpath.engines import registry as engines
from loadpath.intake.cut import LogShape, Shape, cut
from loadpath.intake.samples import labelled
from loadpath.readers import registry as readers
from loadpath.readers.profile.gpu_work import View
from loadpath.reading.second_look import second_look


def read_bytes(sources: Iterable[tuple[str, bytes]]) -> Report:
    """The report on named byte strings."""
    from loadpath.reading.lines import lines_of_bytes

    skipped: list[Skipped] = []
    report = read_lines((name, lines_of_bytes(name, data, skipped)) for name, data in sources)
    return msgspec.structs.replace(report, skipped=(*report.skipped, *skipped))


def read_paths(paths: Sequence[str], view: View | None = None) -> Report:
    """The report on files, folders, archives, or standard input for `-`; `view`: of timelines, the part to look at.

    Raises OSError for what cannot be opened.
    """
    from loadpath.reading.lines import named_lines

    skipped: list[Skipped] = []
    report = read_lines(named_lines(paths, skipped) if view is None else named_lines(paths, skipped, view))
    return msgspec.structs.replace(report, skipped=(*report.skipped, *skipped))


def read_lines(sources: Iterable[tuple[str, list[Line]]], silent_seconds: float = 0.0) -> Report:
    """The report on cleaned lines, by source. `silent_seconds`: for so long nothing came, of a log that is followed."""
    named = list(sources)
    read = partial(_read, silent_seconds=silent_seconds)
    report: Report = mask_all(second_look(read(named), named, read))
    return report


def _read(sources: list[tuple[str, list[Line]]], silent_seconds: float = 0.0) -> Report:
    captures = [capture for name, lines in sources for capture in captures_of(name, lines)]
    broken: list[Skipped] = []
    case = case_of(captures, broken)
    if silent_seconds and captures:
        last = captures[-1]
        silence = Silence(span=last.span(last.lines[-1]), seconds=silent_seconds, run=last.run)
        case = case.only((*case.facts, silence))
    report = diagnose(case)
    return msgspec.structs.replace(
        report,
        captures=_told(captures, case),
        facts=tuple(msgspec.to_builtins(fact) for fact in case.facts),
        skipped=(*report.skipped, *broken),
    )


def _told(captures: list[Capture], case: Case) -> tuple[CaptureReport, ...]:
    """The captures as the report lists them; command lines stand inside others and are listed beside them."""
    told = []
    for capture in captures:
        said = [line for line in capture.lines if line.text.strip()] or list(capture.lines)
        told.append(CaptureReport(capture.kind, capture.source, said[0].number, said[-1].end, capture.run))
    runs = (*case.earlier, case)
    commands = dict.fromkeys(s.span for run in runs for s in run.all(Setting) if s.basis == "command")
    told += [CaptureReport("command-line", span.source, span.first_line, span.last_line) for span in commands]
    return tuple(told)


def case_of(captures: list[Capture], broken: list[Skipped]) -> Case:
    """The case that the captures make: the last run of each log, with the runs before it as `earlier`."""
    last_run: dict[tuple[str, str], int] = {}
    for capture in captures:
        key = (capture.source, capture.kind)
        last_run[key] = max(capture.run, last_run.get(key, 0))
    current = [c for c in captures if c.run == last_run[c.source, c.kind]]
    earlier = [c for c in captures if c.run != last_run[c.source, c.kind]]
    return Case(
        (fact for capture in current for fact in facts_of(capture, broken)),
        captures,
        (Case(facts_of(capture, broken), [capture]) for capture in earlier),
        (entry.engine for capture in current if (entry := engines.by_kind(capture.kind))),
    )


def captures_of(source: str, lines: list[Line]) -> list[Capture]:
    """The captures of a source. Where samples of a live machine say of what kind their lines are, that is taken."""
    made: list[Capture] = []
    for kind, own in labelled(lines):
        if kind is not None and (readers.by_kind(kind) or engines.by_kind(kind)):
            made.append(Capture(kind, source, tuple(own)))
        else:
            made += _cut(source, own)
    return made


def _cut(source: str, lines: list[Line]) -> list[Capture]:
    text = "\n".join(line.raw for line in lines).lower()
    blocks = [
        Shape(entry.kind, tuple(s.lower() for s in entry.sniffs), readers.load(entry).extent)
        for entry in readers.present(text, "block")
    ]
    logs = [
        LogShape(entry.kind, tuple(s.lower() for s in entry.sniffs), engines.load(entry).starts_run)
        for entry in engines.present(text)
    ]
    return _parted(cut(source, lines, blocks, logs))


def _parted(captures: list[Capture]) -> list[Capture]:
    """`captures` with those parted in which their engine finds further starts; runs counted anew."""
    parted: list[Capture] = []
    shift: dict[str, int] = {}
    for capture in captures:
        entry = engines.by_kind(capture.kind)
        more = getattr(engines.load(entry), "more_starts", None) if entry else None
        edges = [0, *(more(capture.lines) if more else ()), len(capture.lines)]
        first = capture.run + shift.get(capture.kind, 0)
        for number, (begin, end) in enumerate(pairwise(edges)):
            parted.append(Capture(capture.kind, capture.source, capture.lines[begin:end], first + number))
        shift[capture.kind] = shift.get(capture.kind, 0) + len(edges) - 2
    return parted


def facts_of(capture: Capture, broken: list[Skipped]) -> list[Fact]:
    """All facts of a capture: by the reader or engine of its kind, then by the readers that look at every capture.

    A reader that breaks is noted in `broken`. Captures that loadpath's own probes wrote are read by their reader alone.
    """
    facts: list[Fact] = []
    if engine := engines.by_kind(capture.kind):
        facts += guarded(engine.engine, partial(engines.load(engine).read, capture), broken)
    elif reader := readers.by_kind(capture.kind):
        facts += guarded(reader.kind, partial(readers.load(reader).read, capture), broken)
        if reader.alone:
            return sorted(facts, key=lambda fact: fact.span.first_line)
    text = capture.text.lower()
    for entry in readers.present(text, "anywhere"):
        facts += guarded(entry.kind, partial(readers.load(entry).read, capture), broken)
    return sorted(facts, key=lambda fact: fact.span.first_line)
