"""One run's lines → facts, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Progress, RequestServed, ServingStats, StepMark
from loadpath.core.text import Capture, Line
from loadpath.engines.vllm import errors, kernels, memory, serving, settings, shutdown, startup
from loadpath.engines.vllm.pattern import Pattern, Run, Seen, compiled

LONGEST_LINE = 60_000
MOST_STATS = 240
MOST_PER_REQUEST = 4


def starts_run(line: Line) -> bool:
    """The server's version line or the banner's: each start prints exactly one of them."""
    text = line.text
    if "ersion " not in text:
        return False
    return bool(compiled(startup.VERSION).search(text) or compiled(startup.BANNER).search(text))


@cache
def _patterns() -> tuple[Pattern, ...]:
    modules = (settings, startup, kernels, memory, serving, errors, shutdown)
    return tuple(pattern for module in modules for pattern in module.PATTERNS)


def read(capture: Capture) -> list[Fact]:
    """All facts of one run of the server."""
    return list(_kept(_facts(capture)))


def _facts(capture: Capture) -> Iterator[Fact]:
    lines = [line for line in capture.lines if not line.prose]
    whole = "\n".join(line.text for line in lines)
    here = [(p.literal, compiled(p.regex), p.make) for p in _patterns() if p.literal in whole]
    run = Run()
    for index, line in enumerate(lines):
        text = line.text[:LONGEST_LINE]
        for literal, regex, make in here:
            if literal in text and (match := regex.search(text)):
                yield from make(Seen(capture, lines, index, match, run))


def _kept(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Of bars, access lines and periodic lines only the first, the last and the telling ones."""
    rest: list[Fact] = []
    progress: dict[tuple[object, ...], list[Progress]] = {}
    requests: dict[tuple[object, ...], list[RequestServed]] = {}
    stats: list[ServingStats] = []
    marks: dict[tuple[object, ...], list[StepMark]] = {}
    for fact in facts:
        if isinstance(fact, Progress):
            progress.setdefault((fact.step, fact.what, fact.total, fact.origin.process), []).append(fact)
        elif isinstance(fact, RequestServed):
            requests.setdefault((fact.method, fact.path.split("?")[0], fact.status), []).append(fact)
        elif isinstance(fact, ServingStats):
            stats.append(fact)
        elif isinstance(fact, StepMark) and fact.event == "progress":
            marks.setdefault((fact.step, fact.what, fact.origin.process), []).append(fact)
        else:
            rest.append(fact)
    for bars in progress.values():
        rest += bars[:1] + bars[1:][-1:]
    for moves in marks.values():
        rest += moves[:1] + moves[1:][-1:]
    for same_request in requests.values():
        rest += _ends(same_request, MOST_PER_REQUEST)
    rest += _telling(stats)
    yield from sorted(rest, key=lambda fact: fact.span.first_line)


def _ends(items: list[RequestServed], most: int) -> list[RequestServed]:
    return items if len(items) <= most else items[: most - 1] + items[-1:]


def _telling(stats: list[ServingStats]) -> list[ServingStats]:
    """At most `MOST_STATS`: evenly spread, and those with most waiting, fullest cache, most preemptions."""
    if len(stats) <= MOST_STATS:
        return stats
    step = len(stats) / MOST_STATS
    kept = {round(i * step) for i in range(MOST_STATS)} & set(range(len(stats))) | {len(stats) - 1}
    kept.add(max(range(len(stats)), key=lambda i: stats[i].waiting or 0))
    kept.add(max(range(len(stats)), key=lambda i: stats[i].kv_usage or 0.0))
    kept.add(max(range(len(stats)), key=lambda i: stats[i].preemptions or 0))
    return [stats[i] for i in sorted(kept)]
