"""A process of the engine died, and no process says why."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import RequestServed, ServerReady, ServingStats, StepMark, Waiting
from loadpath.core.facts.errors import ProcessEnded, PythonException, Symptom
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_seconds
from loadpath.diagnosis.rule import Rule, finding

ROW = "engine-process-died"
CRASHES = {
    -11: "a segmentation fault (SIGSEGV)", -6: "an abort (SIGABRT)", -7: "a bus error (SIGBUS)",
    -4: "an illegal instruction (SIGILL)", -8: "an arithmetic fault (SIGFPE)",
}  # fmt: skip
# What waiting processes raise because another one is gone.
ECHOES = ("EngineDeadError", "AsyncEngineDeadError", "CancelledError", "MQEngineDeadError", "ConnectionResetError",
          "BrokenPipeError", "EOFError", "KeyboardInterrupt", "SystemExit")  # fmt: skip
TOLD = (-15, 143)
SIGKILL = (-9, 137)  # judged by `exits`, which says the same of every program


def judge(case: Case) -> Iterator[Finding]:
    """The first process that is reported dead without an exception of its own before it."""
    shown: list[Fact] = [*case.symptoms(ROW)]
    # Exit code 1 is Python's own end after an exception, which has a text of its own.
    ended = [p for p in case.all(ProcessEnded) if p.name and p.exit_code != 1]
    if not shown or not ended or any(p.exit_code in SIGKILL for p in ended):
        return
    first = min(ended, key=lambda p: p.span.first_line)
    if _raised_before(case, first):
        return
    name, code = first.name or "", first.exit_code
    if code in TOLD:
        yield _told(case, shown, first)
        return
    who = "worker process" if "orker" in name else "engine core process"
    idle = _idle(case, first)
    cause = [f"The {who} {name} ended and printed no error of its own, so the log does not say why."]
    if code is not None and code in CRASHES:
        cause.append(f"Its exit code {code} is {CRASHES[code]}.")
    elif code is None:
        cause.append("Killed from outside (host memory, a limit, an operator) is most likely; a crash in native code "
                     "or a GPU fault is possible.")  # fmt: skip
    if idle:
        cause.append(idle)
    if any(w.what == "broadcast block" for w in case.all(Waiting)):
        cause.append("The shm_broadcast lines are waits of the surviving processes, not the cause.")
    if any(s.finding == "engine-dead" for s in case.all(Symptom)):
        cause.append("EngineDeadError comes from the requests that waited; the stack trace it points to is not there.")
    yield finding(
        ROW, [*shown, first], case=case, cause=" ".join(cause),
        title=f"The {who} died without a message of its own",
        step="serving" if case.has(ServerReady) or _served(case) else None,
        boundary="framework-engine" if code in (-11, -6, -7, -4, -8) else "host-limits",
        remedies=[
            Remedy("Settle the cause with the checks first, then restart the server: it does not come back by itself"),
            Remedy("If the kernel's OOM killer ended it: give the host or container more memory, or let the server hold less",
                   "docker run --memory …; --swap-space 0, --mm-processor-cache-gb 0, fewer parallel loaders"),
            Remedy("Let a supervisor restart the server when /health fails: vLLM can end with exit code 0 here",
                   "docker run --restart always …   (or a liveness probe on /health)"),
        ],
        next_checks=_checks(first),
    )  # fmt: skip


def _told(case: Case, shown: list[Fact], first: ProcessEnded) -> Finding:
    """Exit code -15: another process of the server ended it, so the cause is elsewhere."""
    return finding(
        ROW, [*shown, first], case=case, boundary="framework-engine", certainty="possible",
        title="A worker was ended by SIGTERM while the server came down; what brought it down is not in these lines",
        cause=f"Exit code {first.exit_code} is SIGTERM: the main process, a supervisor or a person ended {first.name}. That is "
              "how vLLM takes its workers down after another process failed, so this line is a consequence.",
        remedies=[Remedy("Find the first error of the run, in the main process or another rank, and cure that")],
        next_checks=(
            Check("What was printed before the first worker died?", "grep -nE 'Error|Traceback|Killed|signal' SERVER.log | head -20"),
            Check("Did the kernel or a supervisor end it?", "dmesg -T | grep -Ei 'oom-kill|killed process'; journalctl -u SERVICE"),
        ),
    )  # fmt: skip


def health(case: Case) -> Iterator[Finding]:
    """/health stopped answering 200: the engine is dead, whatever the reason."""
    refused = [
        r for r in case.all(RequestServed) if r.path.rstrip("/") in ("/health", "/ping") and r.status in (500, 503)
    ]
    if not refused or case.engine not in (None, "vllm"):
        return
    status = refused[0].status
    yield finding(
        "health-answers-dead", refused[:2], case=case, values={"status": status},
        cause=f"/health answers {status}, which vLLM does after its engine has died. What ended the engine is printed before "
              "that by the EngineCore or a worker, or nowhere if it was killed.",
        remedies=[Remedy("Restart the server once the cause is known; it does not recover by itself")],
        next_checks=(
            Check("What did the engine say before the first of these answers?", "grep -nE 'died|Error|Traceback' SERVER.log | head"),
            Check("Was it killed?", "dmesg -T | grep -Ei 'oom-kill|killed process|xid'"),
        ),
    )  # fmt: skip


def _checks(first: ProcessEnded) -> tuple[Check, ...]:
    when = ""
    if first.origin.time is not None:
        seconds = int(first.origin.time) % 86400
        when = f" (around {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02})"
    return (
        Check(f"Did the kernel kill it, or a GPU report a fault{when}?",
              "dmesg -T | grep -Ei 'oom-kill|killed process|xid|segfault'"),
        Check("Was it a container's memory limit or an exit code that says more?",
              "docker inspect -f '{{.State.OOMKilled}} {{.State.ExitCode}}' CONTAINER; coredumpctl list"),
    )  # fmt: skip


def _raised_before(case: Case, ended: ProcessEnded) -> bool:
    return any(
        e.span.source == ended.span.source and e.span.first_line <= ended.span.first_line
        and e.exception.rpartition(".")[2] not in ECHOES and e.frames and "cancelled" not in e.message
        and not e.exception.endswith("Warning")
        for e in case.all(PythonException)
    )  # fmt: skip


def _served(case: Case) -> bool:
    return any(m.step == "serving" for m in case.all(StepMark))


def _idle(case: Case, ended: ProcessEnded) -> str:
    """How long before its end the engine last had work, where the clock tells."""
    if ended.origin.time is None:
        return ""
    work: list[Fact] = [s for s in case.all(ServingStats) if s.running or s.generation_tps]
    work += [r for r in case.all(RequestServed) if r.method == "POST"]
    times = [f.origin.time for f in work if f.origin.time is not None and f.origin.time <= ended.origin.time]
    if not times or ended.origin.time - max(times) < 600:
        return ""
    return (
        f"The last work in the log was {show_seconds(ended.origin.time - max(times))} earlier, so load did not do it."
    )


RULES = (
    Rule(judge, (Symptom, ProcessEnded), (ROW,)),
    Rule(health, (RequestServed,), ("health-answers-dead",)),
)
