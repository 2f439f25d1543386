"""SGLang while it serves: slots that ran out, and starts that end without a word."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.engine import EngineStarted, ServerReady, ServingStats, StepMark, Stopped
from loadpath.core.facts.errors import OutOfMemory, PythonException, Symptom
from loadpath.core.facts.placement import FreeMemory
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_bytes, show_count
from loadpath.core.vocabulary import STEPS
from loadpath.diagnosis.rule import Rule, finding, row_checks, row_remedies
from loadpath.knowledge.tables import findings

KV_SLOTS = "sglang-kv-slots-crash"
SLOTS, SILENT, ENDED = "sglang-request-slots-exhausted", "sglang-silent-end", "sglang-scheduler-exception"


def slots(case: Case) -> Iterator[Finding]:
    """The request-slot table is empty, whatever the message calls it."""
    shown = case.symptoms(SLOTS)
    if not shown:
        return
    cause = ["The request-slot table (req_to_token_pool) has no slot for the next batch."]
    asked = next((s for s in shown if "asked" in s.groups and "available" in s.groups), None)
    if asked is not None:
        left, wanted = asked.groups["available"], asked.groups["asked"]
        cause = [
            f"The request-slot table (req_to_token_pool) has {left} slot(s) left and the next batch needs {wanted}."
        ]
    usage = case.last(ServingStats)
    if usage is not None and usage.kv_usage is not None:
        running = f" with {usage.running} requests running" if usage.running is not None else ""
        cause.append(f"KV token usage is {usage.kv_usage:.2f}{running}: neither the KV cache nor GPU memory is short.")
    else:
        cause.append("`runs out of memory` in the message means this table, not GPU memory.")
    limit = case.setting("max-running-requests")
    cause.append(
        f"max_running_requests is {limit}; slots are used up by running and retracted requests, or leaked by this build."
        if limit else "Either max_running_requests resolved to a tiny value, or this build leaks slots."
    )  # fmt: skip
    evidence = [*([usage] if usage is not None else []), *shown]
    yield finding(SLOTS, evidence, case=case, cause=" ".join(cause))


def kv_slots(case: Case) -> Iterator[Finding]:
    """A batch that found no KV token slots: the pool is full, or the figures say that it is not."""
    shown = case.symptoms(KV_SLOTS)
    if all(s.groups for s in shown):
        return  # figures alone do not say that anything failed
    groups = {name: value for s in shown for name, value in s.groups.items()}
    asked, free = (int(groups[name]) if name in groups else None for name in ("tokens", "available"))
    evictable = int(groups.get("evictable", 0))
    values = {"tokens": show_count(asked) if asked else ""}
    if free is not None:
        values["left"] = f"{show_count(free)} were free and {show_count(evictable)} evictable."
    remedies = None
    paged = asked is not None and free is not None and free + evictable >= asked
    if paged:
        values |= {
            "tokens": "",
            "contradiction": f"{show_count(asked or 0)} tokens were asked for although {show_count(free or 0)} were free: the "
            "scheduler counts tokens, the allocator hands out whole pages to each request, so with a page size above 1 the "
            "count fits and the pages do not.",
            "left": "",
        }  # fmt: skip
        remedies = [
            Remedy("Update SGLang to a build whose scheduler counts in pages", "pip install -U sglang"),
            Remedy("Use a smaller page", "--page-size 1 (or the smallest that the attention backend takes)",
                   "less is lost to rounding at the end of each request"),
            *row_remedies(findings()[KV_SLOTS], {})[:2], Remedy("Restart the server: the scheduler has ended"),
        ]  # fmt: skip
    title = (
        f"SGLang's KV allocator refused {show_count(asked or 0)} tokens with {show_count(free or 0)} free"
        if paged
        else None
    )
    yield finding(KV_SLOTS, shown, case=case, values=values, remedies=remedies, title=title,
                  certainty="likely" if paged else None)  # fmt: skip


def silent_end(case: Case) -> Iterator[Finding]:
    """A start that breaks off in a step, with nothing after it but the resource tracker's note."""
    notes = case.symptoms(SILENT)
    if not notes or case.has(PythonException) or case.has(OutOfMemory) or case.has(ServerReady):
        return
    note = notes[-1]
    marks = [m for m in case.all(StepMark) if m.span.source == note.span.source and m.run == note.run]
    if not marks or not case.has(EngineStarted):
        return
    last = max(marks, key=lambda m: (m.span.first_line, STEPS.index(m.step)))
    if last.event not in ("began", "progress"):
        return
    what = f"{last.what} graph capture".strip() if last.step == "graph-capture" else last.step
    cause = [
        f"The last step that began is {what}; no error is printed, and the next thing is Python's note of a process that "
        "went away without cleaning up: it was killed from outside."
    ]
    free = [f for f in case.all(FreeMemory) if f.run == note.run and f.span.first_line <= note.span.first_line]
    if free:
        cause.append(f"{show_bytes(free[-1].bytes)} were free at its last figure.")
    cause.append(
        "Most likely the host's OOM killer did it; where GPU and host share one memory (GB10, Jetson), GPU allocations "
        "count there too."
    )
    other = Check(
        "Was it stopped by hand, by a job's limit or by a restart?",
        "journalctl -e; sacct -j JOB --format=State,ExitCode",
    )
    checks = [*row_checks(findings()[SILENT], {}), other]
    yield finding(
        SILENT, [last, *free[-1:], note], case=case, step=last.step, cause=" ".join(cause), next_checks=checks,
        title=f"The process was killed from outside during {what}; no error is printed",
    )  # fmt: skip


def ended(case: Case) -> Iterator[Finding]:
    """A scheduler failed and SGLang ended itself. The same words after a SIGTERM are only the end of an orderly stop."""
    stops = [s for s in case.all(Stopped) if s.how == "signal"]
    shown = [
        s for s in case.all(Symptom)
        if s.finding == ENDED and not any(
            stop.span.source == s.span.source and stop.span.first_line <= s.span.first_line for stop in stops
        )
    ]  # fmt: skip
    if shown:
        yield finding(ENDED, shown, case=case)


RULES = (
    Rule(ended, (Symptom,), (ENDED,), uses=(Stopped,)),
    Rule(kv_slots, (Symptom,), (KV_SLOTS,)),
    Rule(slots, (Symptom,), (SLOTS,), uses=(ServingStats,)),
    Rule(silent_end, (Symptom, StepMark), (SILENT,), uses=(FreeMemory,)),
)
