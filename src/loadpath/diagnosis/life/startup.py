"""How a start went: what it waits for, and how it ended without an error of its own."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import (
    EngineStarted,
    Progress,
    RequestServed,
    ServerReady,
    ServingStats,
    StepMark,
    Stopped,
    Waiting,
    WeightsLoaded,
)
from loadpath.core.facts.errors import OutOfMemory, PythonException, Symptom
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_seconds
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.ladder import WAITS_OF_A_STALL, step_at
from loadpath.diagnosis.rule import Rule, finding
from loadpath.engines.registry import flag
from loadpath.knowledge.tables import findings


def waits(case: Case) -> Iterator[Finding]:
    """The engine core's once-a-minute notice that its workers are busy."""
    notices = [w for w in case.all(Waiting) if w.what == "broadcast block"]
    if not notices:
        return
    shown = case.symptoms("broadcast-wait")
    last = notices[-1]
    after = _next_line(case, last)
    serving = any(m.step == "serving" and m.span.first_line < notices[0].span.first_line for m in case.all(StepMark))
    cause = [f"The notice ({len(notices)} times here) says that the engine core had no message from its workers for a "
             "minute: they load, compile, quantise or capture."]  # fmt: skip
    severity: Severity = "info"
    if after is not None:
        cause.append(f"The log went on {show_seconds(after)} after it, so the start is in progress.")
    elif serving or len(notices) >= WAITS_OF_A_STALL:
        severity = "warning"
        cause = [f"{len(notices)} notices, a minute apart, and no line of a worker after them: a worker may be stuck."]
    cause.append("It is informational, and not about the size of /dev/shm: shared memory here is a message queue.")
    yield finding(
        "broadcast-wait", [*shown[:2], last], case=case, cause=" ".join(cause), severity=severity,
        certainty="established" if severity == "info" else "possible",
        title=findings()["broadcast-wait"].title if severity == "info" else "The workers have not answered for minutes",
        next_checks=(Check("What does each worker do?", "py-spy dump --pid PID   (each VLLM::Worker; nvidia-smi for load)"),
                     Check("Is there a line of every rank since?", "grep -E 'Worker|rank' SERVER.log | tail")),
    )  # fmt: skip


def core_wait(case: Case) -> Iterator[Finding]:
    """The API server's notice, every ten seconds, that its engine core has not reported yet."""
    notices = [w for w in case.all(Waiting) if w.what == "engine core"]
    if not notices:
        return
    yield finding(
        "engine-core-wait", notices[-1:], case=case,
        cause=f"The notice stands here {len(notices)} times, about ten seconds apart. It says only that the engine is not ready: "
              "the EngineCore and Worker lines tell whether it loads, compiles or stands still.",
        next_checks=(Check("What does the engine do?", "grep -E 'EngineCore|Worker' SERVER.log | tail; py-spy dump --pid PID"),),
    )  # fmt: skip


def _next_line(case: Case, notice: Waiting) -> float | None:
    """Seconds from the notice to the next line of another process; None where there is none."""
    capture = case.capture_of(notice)
    if capture is None or notice.origin.time is None:
        return None
    for line in capture.lines:
        if line.number <= notice.span.first_line or line.origin.time is None:
            continue
        if line.origin.process != notice.origin.process and line.origin.time >= notice.origin.time:
            return line.origin.time - notice.origin.time
    return None


def remarks(case: Case) -> Iterator[Finding]:
    """Nothing: the row of remarks only claims its lines, so that no other row takes an echoed template for an error."""
    return iter(())


def ray_waits(case: Case) -> Iterator[Finding]:
    """Ray has fewer GPUs than ranks were asked for."""
    shown: list[Fact] = [*case.symptoms("ray-waits-for-gpus")]
    pending = [w for w in case.all(Waiting) if w.what == "placement group" and w.seconds]
    if not shown and len(pending) < 3:
        return
    ranks = case.setting("tensor-parallel-size", "tensor-parallel")
    asked = f"{ranks} GPUs" if ranks else "more GPUs"
    title = f"Ray waits for {asked} that it does not have" if ranks else findings()["ray-waits-for-gpus"].title
    cause = [
        f"The start asks Ray for {asked} (one a rank), and Ray sees fewer, so the placement group can never be filled."
    ]
    if pending:
        cause.append(f"It has waited {', '.join(f'{w.seconds:g}' for w in pending)} s; waiting longer changes nothing.")
    stop = next((s for s in case.all(Stopped) if s.how in ("signal", "interrupt")), None)
    if stop is not None:
        cause.append(f"{stop.signal or 'A signal'} from outside ended the wait; the stacks after it are not the cause.")
    yield finding(
        "ray-waits-for-gpus", [*shown, *pending[:4]], case=case, title=title, cause=" ".join(cause),
        certainty="established" if shown else "likely",
        remedies=[
            Remedy("Ask for no more ranks than Ray has GPUs", flag("vllm", "tensor-parallel", "N")),
            Remedy("Or join the other node to the cluster before the start", "ray start --address=HEAD:6379 --num-gpus=N"),
            Remedy("On one node do without Ray", "--distributed-executor-backend mp"),
        ],
        next_checks=(Check("How many GPUs does Ray have, and who uses them?", "ray status"),
                     Check("How many does the process see?", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
    )  # fmt: skip


def silent_end(case: Case) -> Iterator[Finding]:
    """The log ends within the start; only the resource tracker says that the process is gone."""
    gone = next((s for s in case.all(Stopped) if s.how == "exit"), None)
    others = any(s.how != "exit" for s in case.all(Stopped))
    if gone is None or others or case.has(ServerReady) or not case.has(EngineStarted) or _has_error(case):
        return
    step = step_at(case, gone)
    yield finding(
        "start-killed-silently", [*case.all(WeightsLoaded)[-1:], *case.all(Progress)[-1:], gone], case=case, step=step,
        cause=f"The last thing seen is {step}, then the process is gone without an error: it was most likely killed from "
              "outside (the host's out-of-memory killer, a memory limit, an operator). On machines where GPU and host "
              "share their memory a model near the limit ends so. The log does not prove it.",
        next_checks=(Check("Did the kernel kill it?", "dmesg -T | grep -Ei 'oom-kill|killed process' | tail"),
                     Check("Was there a memory limit?", "docker inspect -f '{{.State.OOMKilled}}' CONTAINER; free -g")),
        remedies=[Remedy("If the kernel killed it: leave more memory to the host",
                         f"{flag(case.engine or 'vllm', 'memory-share', 0.8)}", "unified memory: the share is of all memory")],
    )  # fmt: skip


def _has_error(case: Case) -> bool:
    rows = findings()
    return case.has(OutOfMemory) or case.has(PythonException) or any(
        rows[s.finding].severity == "error" and not rows[s.finding].judged_by for s in case.all(Symptom)
    )  # fmt: skip


def interrupted(case: Case) -> Iterator[Finding]:
    """Told to stop before it was ready: no fault."""
    stop = next((s for s in case.all(Stopped) if s.how in ("interrupt", "signal")), None)
    ready = case.first(ServerReady)
    served = case.has(RequestServed) or case.has(ServingStats)
    if stop is None or served or (ready is not None and ready.span.first_line < stop.span.first_line):
        return
    if not case.has(EngineStarted) or stop.who == "Slurm":
        return
    step = step_at(case, stop)
    before = [m for m in case.all(StepMark) if m.span.first_line <= stop.span.first_line and m.step != "shutdown"]
    if before:
        step = before[-1].step if before[-1].event != "ended" or step == "shutdown" else step
    how = "by hand (KeyboardInterrupt)" if stop.how == "interrupt" else f"by {stop.signal or 'a signal'}"
    yield finding(
        "start-interrupted", [stop], case=case, step=step, title=f"The start was stopped {how} during {step}",
        cause=f"The process was told to stop {how} while it was in {step}. The stack shows where it happened to be; nothing "
              "in it is a fault, and \"Engine core initialization failed\" after it is its consequence.",
        remedies=_after_a_stop(stop), next_checks=_WHO_STOPPED if stop.how == "signal" else (),
    )  # fmt: skip


_WHO_STOPPED = (
    Check("Who sent the signal: a startup or liveness probe, a rollout, a service manager?",
          "kubectl describe pod POD | grep -E 'Liveness|Startup|Unhealthy|Killing|Reason'; docker events --since 1h"),
)  # fmt: skip


def _after_a_stop(stop: Stopped) -> list[Remedy]:
    """What to do after a stop from outside; a signal in the middle of a start is often a probe that is too impatient."""
    again = Remedy("Start it again and let it finish")
    if stop.how != "signal":
        return [again]
    patience = Remedy("If a Kubernetes probe did it: a startup probe that waits longer than the start takes",
                      "startupProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10, failureThreshold: 120}")  # fmt: skip
    return [patience, again]


def time_limit(case: Case) -> Iterator[Finding]:
    """Slurm (or another batch system) ended the job when its time was over."""
    stop = next((s for s in case.all(Stopped) if s.how == "time-limit"), None)
    if stop is None:
        return
    ready = case.has(ServerReady)
    was = "The server had come up and was ready" if ready else "The job was still starting or running"
    yield finding(
        "job-time-limit", [stop], case=case, step="shutdown" if ready else step_at(case, stop),
        title="The batch system ended the job at its time limit; the server itself is not at fault" if ready
              else "The batch system ended the job at its time limit",
        cause=f"{was} when {stop.who or 'the batch system'} cancelled the job because its time limit was reached. "
              "Nothing in the GPU stack broke.",
        remedies=[Remedy("Ask for a longer time limit", "sbatch --time=24:00:00 …"),
                  Remedy("Or let a follow-up job start before this one ends", "sbatch --dependency=afterany:JOB …")],
        next_checks=(Check("How long was allowed, and how long did it run?",
                           "sacct -j JOB --format=JobID,State,Elapsed,Timelimit"),),
    )  # fmt: skip


RULES = (
    Rule(remarks, (Symptom,), ("engine-remark",)),
    Rule(ray_waits, (), ("ray-waits-for-gpus",), (Symptom, Waiting)),
    Rule(waits, (Waiting,), ("broadcast-wait",)),
    Rule(core_wait, (Waiting,), ("engine-core-wait",)),
    Rule(silent_end, (Stopped, StepMark), ("start-killed-silently",)),
    Rule(interrupted, (Stopped,), ("start-interrupted",)),
    Rule(time_limit, (Stopped,), ("job-time-limit",)),
)
