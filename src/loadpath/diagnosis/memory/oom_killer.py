"""Who was killed for lack of host memory, where a line proves it: the kernel, Docker, Kubernetes, Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import ContainerState
from loadpath.core.facts.kernel import OomKill
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import MIB, show_bytes, show_count
from loadpath.diagnosis.containers.host_limits import HOLD_LESS, LOAD_LESS, MORE_MEMORY
from loadpath.diagnosis.rule import Rule, finding

# A victim this small did not use the memory up: the kernel chose it for its score.
SMALL_VICTIM_BYTES = 512 * MIB


def judge_oom_killer(case: Case) -> Iterator[Finding]:
    """A line proves that the host's or the container's memory ran out."""
    kills = case.all(OomKill)
    states = [s for s in case.all(ContainerState) if s.oom_killed or s.reason == "OOMKilled"]
    proofs = case.symptoms("host-oom-killed")
    facts: list[Fact] = [*kills, *states, *proofs]
    if not facts:
        return
    kill = max(kills, key=lambda k: k.anon_bytes or 0, default=None)
    in_group = any(k.scope == "cgroup" for k in kills) or bool(states)
    cause = " ".join((*_who_was_killed(kills), *_whose_limit(case, kills, states)))
    if not cause:
        cause = "The job's or service's own log says that the OOM killer ended it: host memory, RAM, was used up."
    figures = {"resident_bytes": _held(kill)} if kill is not None and _held(kill) else {}
    innocent = kill is not None and 0 < _held(kill) < SMALL_VICTIM_BYTES
    yield finding(
        "host-oom-killed",
        facts,
        case=case,
        cause=cause,
        figures=figures,
        remedies=_oom_remedies(in_group, innocent),
        next_checks=_oom_checks(in_group),
    )


def _held(kill: OomKill) -> int:
    return (kill.anon_bytes or 0) + (kill.shmem_bytes or 0)


def _who_was_killed(kills: Sequence[OomKill]) -> Iterator[str]:
    if not kills:
        return
    largest = max(kills, key=_held)
    who = f"`{largest.name}`" if largest.name else "A process"
    pid = f" (pid {largest.pid})" if largest.pid else ""
    size = _held(largest)
    if not size:
        yield f"The kernel killed {who}{pid} because memory ran out."
    elif size < SMALL_VICTIM_BYTES:
        yield (
            f"The kernel killed {who}{pid}, which held only {show_bytes(size)}: the victim is not what used the memory "
            "up, and its death frees almost nothing; another process in the same place grows."
        )
    else:
        kb = f" ({show_count((largest.anon_bytes or 0) / 1024)} kB anonymous)" if largest.anon_bytes else ""
        yield f"The kernel killed {who}{pid}, which held {show_bytes(size)} of host RAM{kb}; GPU memory has no part in it."
    if len(kills) > 1:
        others = list(dict.fromkeys(f"`{k.name}`" for k in kills if k is not largest and k.name))[:4]
        also = f", also {', '.join(others)}" if others else ""
        yield f"{len(kills)} processes were killed{also}."


def _whose_limit(case: Case, kills: Sequence[OomKill], states: Sequence[ContainerState]) -> Iterator[str]:
    limit = next((k.limit_bytes for k in kills if k.limit_bytes), None)
    asked = case.setting("docker:memory", "k8s:limits.memory")
    given = show_bytes(limit) if limit else asked
    name = next((s.name for s in states if s.name), None)
    if states and not kills:
        who = f"Container `{name}`" if name else "The container"
        yield (
            f"{who} was ended because it reached its memory limit{f' of {given}' if given else ''} (OOMKilled). "
            "That limit counts host RAM, page cache of tmpfs and /dev/shm, never GPU memory."
        )
        if any(s.exit_code == 0 for s in states):
            yield "Exit code 0 does not contradict it: a child was killed, not the main process."
    elif {k.scope for k in kills} >= {"cgroup", "host"}:
        yield (
            f"{sum(k.scope == 'cgroup' for k in kills)} at the limit of a cgroup (container, pod or slice), "
            f"{sum(k.scope == 'host' for k in kills)} because the whole machine was out of memory."
        )
    elif any(k.scope == "cgroup" for k in kills):
        yield f"It was the limit of its cgroup (container, pod or slice){f', {given}' if given else ''}, not the machine's whole memory."
    elif any(k.scope == "host" for k in kills):
        yield "No container limit was involved: the whole machine was out of memory."


def _oom_remedies(in_group: bool, innocent: bool) -> list[Remedy]:
    find = Remedy(
        "Find the process that grows: the sum over all processes of the container counts, with tmpfs and /dev/shm.",
        "ps -eo pid,rss,shr,comm --sort=-rss | head; cat /sys/fs/cgroup/memory.stat | grep -E '^(anon|shmem|file) '",
    )
    more = (
        MORE_MEMORY
        if in_group
        else Remedy(
            "Give the machine more RAM, or swap for a peak that is short.",
            "sudo fallocate -l 64G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile && sudo swapon /swapfile",
        )
    )
    return [find, more, HOLD_LESS] if innocent else [LOAD_LESS, more, HOLD_LESS]


def _oom_checks(in_group: bool) -> tuple[Check, ...]:
    if in_group:
        return (
            Check(
                "What is the limit, and what counts towards it?",
                ("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.peak; kubectl top pod POD --containers"),
            ),
            Check(
                "Which processes did the kernel list at the time of the kill?",
                "dmesg -T | grep -B40 -i 'killed process'",
            ),
        )
    return (Check("How much memory is there, and who has it?", "free -g; ps -eo pid,rss,comm --sort=-rss | head"),)


RULES = (Rule(judge_oom_killer, (), ("host-oom-killed",), uses=(OomKill, ContainerState)),)
