"""What the kernel saw explains what the engine said: an Xid or the OOM-killer shortly before a crash, a time-out, a watchdog.

Two lines belong together when their clocks agree within the time such a fault takes to show (a collective's watchdog waits
half an hour at most). Where one of them has no time, a fault of a kind that the other can cause is taken to be caused by it;
where both have times that do not fit, they stay two findings. Process ids do not decide: a container sees other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from loadpath.core.case import Case
from loadpath.core.report import Finding
from loadpath.core.text import NO_ORIGIN, Origin
from loadpath.diagnosis.gpu.xid import seconds_between

BEFORE_SECONDS = 10
"""How much earlier than the kernel's line an engine's line may be: clocks and buffers."""
AFTER_SECONDS = 2100
"""How long a loss of a GPU or a rank can stay unnoticed: NCCL's default watchdog, and a little."""

_BY_GPU = (
    "gpu-kernel-fault", "kernel-launch-failure", "cublas-failed", "cudnn-status", "triton-runtime-error", "cuda-*",
    "collective-*", "nccl-cuda-failure", "nccl-unhandled-*", "nccl-remote", "nccl-internal", "nccl-peer-unreachable",
    "no-cuda-device", "no-gpu-initialised", "engine-*timed-out", "engine-process-died", "engine-core-failed", "engine-dead",
    "worker-*", "sglang-watchdog", "sglang-scheduler-*", "sglang-rank-died-*", "sglang-health-check-failed",
    "process-crashed", "cpp-terminate", "unrecognised-exception", "ollama-discovery-failed", "ollama-runner-*", "gpu-hang",
    "nvml-unknown-on-host", "container-lost-gpu-access", "kernel-task-hung",
)  # fmt: skip
_BY_OOM_KILLER = (
    "killed-by-signal-9", "exited-on-sigkill", "worker-*", "engine-process-died", "engine-core-failed", "engine-dead",
    "ray-worker-died", "sglang-scheduler-killed", "sglang-rank-died-*", "ollama-runner-*", "dataloader-worker-died",
    "nccl-remote", "nccl-peer-unreachable", "collective-*", "start-killed-silently", "unrecognised-exception",
)  # fmt: skip
_GPU_FAULTS = (
    "gpu-off-bus", "gpu-memory-uncorrectable", "gpu-memory-contained", "gsp-timeout", "gpu-firmware-halted", "gpu-hang",
    "nvlink-fault", "nvswitch-fatal", "gpu-recovery-required", "gpu-application-fault", "uvm-fatal", "gpu-init-failed",
)  # fmt: skip


def explain(case: Case, made: Sequence[Finding]) -> list[Finding]:
    """`made` with the engine's findings folded under the kernel's that explain them (ids kept in `consequences`)."""
    times = _times(case)
    gone: set[str] = set()
    out: dict[str, Finding] = {f.id: f for f in made}
    for cause in made:
        kinds = _BY_GPU if cause.id in _GPU_FAULTS else _BY_OOM_KILLER if cause.id == "host-oom-killed" else ()
        explained = [
            f.id for f in made
            if f.id not in gone and f is not cause and f.severity != "info" and f.id not in _GPU_FAULTS
            and any(fnmatchcase(f.id, kind) for kind in kinds) and _fits(times, cause, f)
        ]  # fmt: skip
        if cause.id == "gpu-application-fault" and (first := _earlier(times, cause, made)):
            gone.add(cause.id)  # the engine had failed before: the Xid is what was left of its kernels at the end
            out[first.id] = msgspec.structs.replace(out[first.id], consequences=(*out[first.id].consequences, cause.id))
            continue
        if explained and cause.severity == "error" and cause.id not in gone:
            gone.update(explained)
            have = out[cause.id]
            out[cause.id] = msgspec.structs.replace(have, consequences=(*have.consequences, *explained))
    return [f for id, f in out.items() if id not in gone]


def _times(case: Case) -> dict[tuple[str, int], Origin]:
    return {
        (fact.span.source, fact.span.first_line): fact.origin for fact in case.facts if fact.origin is not NO_ORIGIN
    }


def _fits(times: dict[tuple[str, int], Origin], cause: Finding, effect: Finding) -> bool:
    """Can `effect` have come from `cause`, by the clocks of their first lines?"""
    gaps = [
        gap
        for a in cause.evidence[:3] for b in effect.evidence[:3]
        if (gap := seconds_between(_origin(times, a.source, a.line), _origin(times, b.source, b.line))) is not None
    ]  # fmt: skip
    return not gaps or any(-BEFORE_SECONDS <= gap <= AFTER_SECONDS for gap in gaps)


def _earlier(times: dict[tuple[str, int], Origin], xid: Finding, made: Sequence[Finding]) -> Finding | None:
    """The engine's own GPU error that was printed clearly before a program's Xid."""
    for f in made:
        if f.severity == "error" and f.id in ("gpu-kernel-fault", "kernel-launch-failure"):
            a, b = f.evidence[0], xid.evidence[0]
            gap = seconds_between(_origin(times, a.source, a.line), _origin(times, b.source, b.line))
            if gap is not None and BEFORE_SECONDS < gap <= AFTER_SECONDS:
                return f
    return None


def _origin(times: dict[tuple[str, int], Origin], source: str, line: int) -> Origin:
    return times.get((source, line), NO_ORIGIN)
