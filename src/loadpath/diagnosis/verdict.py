"""From findings to a verdict: which one leads, which fold under it, and what state that leaves."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

from loadpath.core.case import Case
from loadpath.core.facts.engine import (
    Concurrency,
    EngineStarted,
    KvPool,
    ModelNamed,
    ServerReady,
    ServingStats,
    StepMark,
    Stopped,
    WeightsLoaded,
)
from loadpath.core.report import Finding, Verdict
from loadpath.core.units import show_bytes, show_count
from loadpath.core.vocabulary import ENGINE_NAMES, State
from loadpath.diagnosis.rule import row_of

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_CERTAINTY = {"established": 0, "likely": 1, "possible": 2}
_BY_SEVERITY: dict[str, State | None] = {"error": "failed", "warning": "degraded", "info": None}


def order(made: list[Finding]) -> list[Finding]:
    """Findings by weight: errors first, causes before consequences, deeper before shallower, then as printed."""

    def weight(f: Finding) -> tuple[int, bool, int, int, int]:
        row = row_of(f)
        line = f.evidence[0].line if f.evidence else 1 << 60
        return (_SEVERITY[f.severity], row.consequence, -row.depth, _CERTAINTY[f.certainty], line)

    return sorted(made, key=weight)


def fold(made: list[Finding]) -> list[Finding]:
    """`made` with each finding that another one explains moved under it (its id kept in `consequences`)."""
    gone: set[str] = set()
    out: list[Finding] = []
    for position, f in enumerate(made):
        if f.id in gone:
            continue
        folded = [o.id for o in made if o.id != f.id and o.id not in gone and _explains(f, o, leads=position == 0)]
        gone.update(folded)
        out.append(msgspec.structs.replace(f, consequences=(*f.consequences, *folded)) if folded else f)
    return [f for f in out if f.id not in gone]


def _explains(f: Finding, other: Finding, leads: bool) -> bool:
    """Whether `f` folds `other`: its row says so, or it leads and the other is a consequence by its own words."""
    if any(fnmatchcase(other.id, pattern) for pattern in (*row_of(f).folds, *f.consequences)):
        return True
    return leads and f.severity == "error" and (row_of(other).consequence or other.id == "unrecognised-exception")


def root_cause(made: list[Finding]) -> Finding | None:
    """The finding to lead with: the first error, else the first warning; None where nothing is wrong."""
    return made[0] if made and made[0].severity != "info" else None


def verdict(case: Case, made: list[Finding]) -> Verdict:
    """State and sentence. Absent data is never health: with no step seen and nothing found the state is `unknown`."""
    root = root_cause(made)
    if root is not None:
        state = row_of(root).state if root.severity == row_of(root).severity else None
        return Verdict(state or _BY_SEVERITY[root.severity] or "unknown", sentence(root))
    if case.has(ServerReady) or any(s.generation_tps for s in case.all(ServingStats)):
        return Verdict("healthy", _serves(case))
    told = next((f for f in made if row_of(f).state and not _of_another_part(case, f)), None)
    if told is not None:
        return Verdict(row_of(told).state or "unknown", sentence(told))
    if case.has(Stopped):
        stop = case.all(Stopped)[0]
        return Verdict("unknown", f"Ended before it was ready ({_how(stop)}); no fault is printed.")
    if case.has(StepMark):
        last = case.all(StepMark)[-1]
        return Verdict("starting", f"The start has reached {last.step}; no fault so far.")
    if made:
        return Verdict("unknown", f"{sentence(made[0])} Nothing else here can be judged.")
    return Verdict("unknown", "No known problem found, and no step of a start was seen: not enough to judge.")


def _of_another_part(case: Case, told: Finding) -> bool:
    """A healthy look at the GPUs beside a start whose end was not seen says nothing of that start."""
    return row_of(told).state == "healthy" and row_of(told).judged_by.startswith("gpu.") and case.has(StepMark)


def _how(stop: Stopped) -> str:
    return {
        "signal": f"by {stop.signal or 'a signal'}",
        "interrupt": "interrupted by hand",
        "time-limit": "time limit",
    }.get(stop.how, stop.how)


def _serves(case: Case) -> str:
    """ "vLLM 0.10.2 is ready: weights 27.31 GiB, KV cache 176,128 tokens, 5.37 full-length requests." """
    started, model = case.last(EngineStarted), case.last(ModelNamed)
    who = ENGINE_NAMES.get(case.engine or "", case.engine or "The server")
    if started is not None and started.version:
        who += f" {started.version}"
    served = f" with {model.name}" if model is not None and model.name else ""
    parts = []
    if (
        weights := next((w for w in reversed(case.all(WeightsLoaded)) if not w.what), None)
    ) is not None and weights.bytes:
        parts.append(f"weights {show_bytes(weights.bytes)} per GPU")
    # Of several ranks the smallest pool is the one that counts.
    if tokens := min((p.tokens for p in case.all(KvPool) if p.tokens), default=None):
        parts.append(f"KV cache {show_count(tokens)} tokens")
    if room := min(case.all(Concurrency), key=lambda c: c.ratio, default=None):
        parts.append(f"room for {room.ratio:.4g} requests of {show_count(room.context_tokens)} tokens")
    figures = f": {', '.join(parts)}" if parts else ""
    end = "started, served and was stopped in an orderly way" if case.has(Stopped) else "is ready"
    return f"{who}{served} {end}{figures}. No fault found."


def sentence(root: Finding) -> str:
    hedge = {"established": "", "likely": "Likely: ", "possible": "Possibly: "}[root.certainty]
    first = root.title.partition(" ")[0]
    plain = not hedge or (len(first) > 1 and not first[1:].islower())
    title = root.title if plain else root.title[:1].lower() + root.title[1:]
    return f"{hedge}{title.rstrip('.')}."
