"""Kubernetes' probes: a wrong path, a start longer than the probe's patience, a server too busy to answer in time.

The kubelet restarts a container whose liveness or startup probe failed `failureThreshold` times in a row; a readiness
probe only keeps traffic away. While a startup probe runs, the liveness probe waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import ProbeConfigured, ProbeFailed, ProbeKilled
from loadpath.core.facts.engine import InitTook, ServerReady, StepMark, WeightsLoaded
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_seconds
from loadpath.diagnosis.rule import Rule, finding

# Health paths of the servers, by engine.
HEALTH = {
    "vllm": "/health",
    "sglang": "/health",
    "llama.cpp": "/health",
    "ollama": "/",
    "tgi": "/health",
    "tensorrt-llm": "/health",
    "triton-server": "/v2/health/ready",
    "lmdeploy": "/health",
}
SERVER_ERROR = 500  # HTTP status from which on the server, not the request, is at fault
# A start is given this much more than it took: a cold disk or a first compile takes longer.
MARGIN = 2
# What a start is given where nothing tells how long it takes.
UNKNOWN_START_SECONDS = 600


def judge(case: Case) -> Iterator[Finding]:
    """The failures that were seen."""
    failed = case.all(ProbeFailed)
    fatal = [f for f in failed if f.probe != "readiness"]
    killed = case.all(ProbeKilled)
    answered = [f for f in fatal if f.how == "status"]
    if any((f.status or 0) < SERVER_ERROR for f in answered):
        yield _refused(case, answered, killed)
    elif answered and killed and all(f.probe == "startup" for f in fatal):
        yield _slow_start(case, fatal, killed)
    elif answered:
        yield _unhealthy(case, answered, killed)
    elif any(f.how in ("timeout", "reset") and f.probe == "liveness" for f in fatal) and not any(
        f.how == "refused" for f in fatal
    ):
        yield _too_busy(case, fatal, killed)
    elif fatal or killed:
        yield _slow_start(case, fatal, killed)
    elif failed:
        yield _readiness(case, failed)


def judge_patience(case: Case) -> Iterator[Finding]:
    """No failure shown, but the start in the log took longer than the configured probe waits."""
    guard, start = _guard(case), start_seconds(case)
    if guard is None or start is None or case.has(ProbeFailed) or start <= guard.patience_seconds:
        return
    cause = (
        f"The {guard.probe} probe gives up {_patience(guard)} after the container starts, and this start took {show_seconds(start)} "
        "up to the HTTP server. Until then nothing listens, every probe fails, and the kubelet restarts the container before "
        "it is ready."
    )
    yield finding(
        "probe-will-kill-start",
        [guard],
        case=case,
        cause=cause,
        remedies=[_startup_probe(case, guard)],
        next_checks=(
            Check(
                "Was the container restarted?",
                ("kubectl get pod POD; kubectl describe pod POD | grep -E 'Killing|probe failed'"),
            ),
        ),
        figures={"patience_seconds": guard.patience_seconds, "start_seconds": start},
    )


def _guard(case: Case) -> ProbeConfigured | None:
    """The probe that decides over a start: the startup probe, else the liveness probe."""
    probes = case.all(ProbeConfigured)
    startup = [p for p in probes if p.probe == "startup"]
    return next(iter(startup or [p for p in probes if p.probe == "liveness"]), None)


def start_seconds(case: Case) -> float | None:
    """How long the start took until the server listened (or how far it got), as far as the log tells; of the slowest rank."""
    ready = case.last(ServerReady)
    times = [m.origin.time for m in case.all(StepMark) if m.origin.time is not None]
    if ready is not None and ready.origin.time is not None and times and ready.origin.time > times[0]:
        return ready.origin.time - times[0]
    weights = max((w.seconds or w.read_seconds or 0 for w in case.all(WeightsLoaded)), default=0)
    rest = max((i.seconds for i in case.all(InitTook)), default=0)
    return weights + rest or None


def _patience(guard: ProbeConfigured) -> str:
    delay = f"{guard.initial_delay_seconds:g} s delay + " if guard.initial_delay_seconds else ""
    return f"{show_seconds(guard.patience_seconds)} ({delay}{guard.failure_threshold} × {guard.period_seconds:g} s)"


def _refused(case: Case, failed: Sequence[ProbeFailed], killed: Sequence[ProbeKilled]) -> Finding:
    """404 and its relatives: the server runs, the probe asks it the wrong thing."""
    first = failed[0]
    configured = next((p for p in case.all(ProbeConfigured) if p.probe == first.probe), None)
    path = first.path or (configured.path if configured else None)
    asked = f"`{path}`" if path else "its path"
    good, port = HEALTH.get(case.engine or "", "/health"), first.port or "8000"
    title = None
    if first.status in (401, 403):
        title = "The probe is refused for want of an API key"
        why = f"The {first.probe} probe gets {first.status}: the server runs, and asks for a key that the probe does not send."
        change = Remedy(
            "Probe a path that is open without a key, or send the header.",
            f"{first.probe}Probe: {{httpGet: {{path: {good}, httpHeaders: [{{name: Authorization, value: Bearer KEY}}]}}}}",
        )
    else:
        why = (
            f"The {first.probe} probe gets {first.status}: the server answers, so it runs and listens, but {asked} does not "
            "exist on it."
        )
        change = Remedy(
            "Point the probe at a path that the server has: /health in vLLM, SGLang, llama.cpp, TGI and TensorRT-LLM, "
            "/v2/health/ready in Triton.",
            f"{first.probe}Probe: {{httpGet: {{path: {good}, port: {port}}}}}",
        )
    return finding(
        "probe-path-missing",
        [*failed, *killed],
        case=case,
        title=title,
        cause=f"{why} The kubelet takes that for a failure and restarts a container that runs.",
        remedies=[change],
        next_checks=_status_checks(good, port),
    )


def _unhealthy(case: Case, failed: Sequence[ProbeFailed], killed: Sequence[ProbeKilled]) -> Finding:
    """5xx: still loading where the engine answers so while it loads, else an engine that is dead behind its server."""
    first = failed[0]
    guard = next((p for p in case.all(ProbeConfigured) if p.probe == first.probe), None)
    cause = (
        f"The {first.probe} probe gets {first.status}: the server listens and says that it is not well. While it loads, llama.cpp "
        "and SGLang answer 503; vLLM's /health gives 500 or 503 when its engine has died, and then a restart is right."
    )
    return finding(
        "probe-finds-server-unhealthy",
        [*failed, *killed],
        case=case,
        cause=cause,
        certainty="likely",
        remedies=[_startup_probe(case, guard or first)],
        next_checks=_status_checks(HEALTH.get(case.engine or "", "/health"), first.port or "8000"),
    )


def _status_checks(path: str, port: str) -> tuple[Check, ...]:
    return (
        Check(
            "What does the server answer there?",
            f"kubectl exec POD -- curl -s -o /dev/null -w '%{{http_code}}\\n' localhost:{port}{path}",
        ),
        Check("What does the log of the restarted container say?", "kubectl logs POD --previous | tail -50"),
    )


def _slow_start(case: Case, failed: Sequence[ProbeFailed], killed: Sequence[ProbeKilled]) -> Finding:
    guard, start = _guard(case), start_seconds(case)
    facts: list[Fact] = [*failed, *killed, *([guard] if guard else [])]
    probe = failed[0].probe if failed else killed[0].probe
    cause = [*_why_killed(probe, failed, killed)]
    if guard is not None and guard.probe == probe:
        cause.append(f"Its patience is {_patience(guard)}.")
    if start is not None:
        cause.append(f"The start in this log takes {show_seconds(start)} or more.")
    cause.append("A start that takes longer than the probe waits is cut off each time and never ends.")
    return finding(
        "probe-kills-slow-start",
        facts,
        case=case,
        cause=" ".join(cause),
        certainty="established" if killed and start and guard and start > guard.patience_seconds else "likely",
        severity=None if killed else "warning",
        remedies=[_startup_probe(case, guard or next(iter(failed), None)), *_more_remedies(probe)],
        next_checks=(
            Check(
                "How far had the killed run come: still loading, or an error of its own?",
                "kubectl logs POD --previous | tail -50",
            ),
            Check(
                "Did the probe settings of the manifest reach the pod?",
                (
                    "kubectl get pod POD -o "
                    "jsonpath='{.spec.containers[*].livenessProbe}{.spec.containers[*].startupProbe}'"
                ),
            ),
        ),
    )


def _why_killed(probe: str, failed: Sequence[ProbeFailed], killed: Sequence[ProbeKilled]) -> Iterator[str]:
    times = max((f.times for f in failed), default=0)
    over = max((f.over_seconds or 0 for f in failed), default=0)
    count = f" after {times} failures" + (f" within {show_seconds(over)}" if over else "") if times > 1 else ""
    if killed:
        yield f"The {probe} probe made the kubelet kill and restart container `{killed[0].container}`{count}."
    else:
        yield f"The {probe} probe failed{count.replace(' after', '')}; enough of that and the kubelet restarts the container."
    status = next((f.status for f in failed if f.how == "status"), None)
    if status is not None:
        yield (
            f"{status} is what llama.cpp and SGLang answer while the model loads; the same from vLLM, or with an error in the "
            "log, means an engine that has died."
        )
    port = next((f.port for f in failed if f.port), None)
    if any(f.how == "refused" for f in failed):
        where = f" on port {port}" if port else ""
        yield f"Connection refused means that nothing was listening{where} yet: the server was still starting, or had ended by itself."


def _more_remedies(probe: str) -> list[Remedy]:
    made = [
        Remedy(
            "Or make the start shorter: weights on a local disk or volume instead of a download, a kept compile cache."
        )
    ]
    if probe == "liveness":
        made.insert(
            0,
            Remedy(
                "Without a startup probe: a longer delay of the liveness probe (it then waits that long every time).",
                "livenessProbe: {initialDelaySeconds: 600, periodSeconds: 10, failureThreshold: 6}",
            ),
        )
    return made


def _startup_probe(case: Case, guard: ProbeConfigured | ProbeFailed | None) -> Remedy:
    start = start_seconds(case)
    # What a startup probe waited already was too short.
    waited = max((f.over_seconds or 0 for f in case.all(ProbeFailed) if f.probe == "startup"), default=0)
    if isinstance(guard, ProbeConfigured) and guard.probe == "startup":
        waited = max(waited, guard.patience_seconds)
    seconds = max(UNKNOWN_START_SECONDS, MARGIN * (start or 0), MARGIN * waited)
    threshold = math.ceil(seconds / 10)
    path = (guard.path if guard else None) or HEALTH.get(case.engine or "", "/health")
    port = (guard.port if guard else None) or "8000"
    basis = (
        f", twice what this start took ({show_seconds(start)})"
        if start and MARGIN * start > UNKNOWN_START_SECONDS and start >= waited
        else ""
    )
    return Remedy(
        "Let the startup probe wait longer: a higher failureThreshold."
        if guard is not None and guard.probe == "startup"
        else "Give the start its own probe; the liveness probe waits until it has succeeded once.",
        f"startupProbe: {{httpGet: {{path: {path}, port: {port}}}, periodSeconds: 10, failureThreshold: {threshold}}}",
        f"The server gets {show_seconds(threshold * 10)} to start{basis}.",
    )


def _too_busy(case: Case, failed: Sequence[ProbeFailed], killed: Sequence[ProbeKilled]) -> Finding:
    guard = next((p for p in case.all(ProbeConfigured) if p.probe == failed[0].probe), None)
    wait = f"{guard.timeout_seconds:g} s" if guard else "its time-out (1 s unless set)"
    cause = (
        f"The {failed[0].probe} probe got no answer within {wait}, though something accepted the connection. A server that is "
        "busy with a long prefill, compiles or captures graphs answers late; one whose engine hangs never does."
        + (" The kubelet restarted it for that." if killed else "")
    )
    return finding(
        "probe-kills-busy-server",
        [*failed, *killed],
        case=case,
        cause=cause,
        certainty="likely",
        severity=None if killed else "warning",
        remedies=[
            Remedy(
                "Let the probe wait longer and forgive more.",
                "livenessProbe: {timeoutSeconds: 10, periodSeconds: 30, failureThreshold: 5}",
            ),
            _startup_probe(case, guard),
        ],
        next_checks=(
            Check("Was it slow or stuck at that time?", "kubectl logs POD --previous | tail -50"),
            Check(
                "How long does /health take under load?",
                ("kubectl exec POD -- curl -s -o /dev/null -w '%{time_total}\\n' localhost:8000/health"),
            ),
        ),
    )


def _readiness(case: Case, failed: Sequence[ProbeFailed]) -> Finding:
    first = failed[0]
    why = {
        "status": f"it answers {first.status}",
        "refused": "nothing listens yet: it is still starting, or has ended",
        "timeout": "it does not answer in time",
    }.get(first.how, "the probe got no proper answer")
    cause = (
        f"The readiness probe failed {first.times} time{'s' if first.times > 1 else ''}: {why}. That keeps traffic away from the pod "
        "and restarts nothing; during a long start it is normal."
    )
    return finding(
        "readiness-probe-fails",
        failed,
        case=case,
        cause=cause,
        certainty="likely",
        remedies=[],
        next_checks=(Check("Is the server still loading, or stuck?", "kubectl logs POD | tail -50"),),
    )


RULES = (
    Rule(
        judge,
        (),
        (
            "probe-path-missing",
            "probe-kills-slow-start",
            "probe-kills-busy-server",
            "readiness-probe-fails",
            "probe-finds-server-unhealthy",
        ),
        uses=(ProbeFailed, ProbeKilled, ProbeConfigured),
    ),
    Rule(judge_patience, (ProbeConfigured,), ("probe-will-kill-start",), uses=(StepMark, WeightsLoaded)),
)
