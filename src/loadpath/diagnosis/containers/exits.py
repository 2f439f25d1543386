"""Processes and containers that ended, where all that is known is a signal or an exit code.

A SIGKILL says nothing of its reason. Only a kernel line, Docker's `OOMKilled`, Kubernetes' reason or Slurm's notice
proves the OOM killer; without one of them it is the likely reason at best, and SGLang ends itself with -9 on bad settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import ContainerState
from loadpath.core.facts.engine import Setting
from loadpath.core.facts.errors import ProcessEnded, Symptom
from loadpath.core.facts.host import HostMemory
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import show_bytes
from loadpath.diagnosis.containers.host_limits import HOLD_LESS, LOAD_LESS, MORE_MEMORY
from loadpath.diagnosis.rule import Rule, finding

TRAIN_LESS = Remedy(
    "Train with less in RAM: LoRA in place of all parameters, an 8-bit optimizer, offload to NVMe in place of RAM, fewer "
    "processes per host.",
    "finetuning_type: lora  # ZeRO: offload_optimizer.device: nvme",
)
SIGKILL = (-9, 137)
_KERNEL_LOG = Check(
    "Did the kernel kill it, and how much did it hold?",
    "dmesg -T | grep -iE 'killed process|oom-kill'; journalctl -k | grep -i oom",
)
_CONTAINER_STATE = Check(
    "Did the container reach its memory limit?",
    "docker inspect -f '{{.State.OOMKilled}} {{.State.ExitCode}}' CONTAINER; kubectl describe pod POD | grep -A4 'Last State'",
)


def judge_killed(case: Case) -> Iterator[Finding]:
    """Something was killed with signal 9, and nothing says by whom."""
    ended = [p for p in case.all(ProcessEnded) if p.exit_code in SIGKILL or p.signal in ("SIGKILL", "9")]
    facts: list[Fact] = [*case.symptoms("killed-by-signal-9"), *ended]
    if not facts:
        return
    name = next((p.name for p in ended if p.name), None)
    who = f"`{name}` was ended" if name else "A process was ended"
    cause = [f"{who} with SIGKILL ({_spelling(facts)}), which leaves no message of its own."]
    if case.engine == "sglang":
        cause.append(
            "SGLang kills its own process group with -9 after an error at start, so look for its exception above first; "
            "if there is none, the kernel's OOM killer (host RAM) is the likely one."
        )
    else:
        cause.append(
            "Most often that is the kernel's OOM killer: host RAM or the container's memory limit, not GPU memory, which "
            "would give an exception. An orchestrator, a time limit or a person can have done it too."
        )
    memory = case.last(HostMemory)
    if memory is not None and memory.used_share is not None:
        facts.append(memory)
        cause.append(f"Host memory was {memory.used_share:.1%} full{_of_total(memory)}.")
    offload = next((s for s in case.all(Setting) if "offload" in s.value.lower() and s.basis == "command"), None)
    if offload is not None:
        facts.append(offload)
        cause.append(
            f"The run offloads to the CPU (`{offload.value}`): Adam's states then take 12 bytes of host RAM per parameter, "
            "16 with fp32 gradients."
        )
    yield finding(
        "killed-by-signal-9",
        facts,
        case=case,
        cause=" ".join(cause),
        certainty="possible" if case.engine == "sglang" else "likely",
        remedies=[
            Remedy(f"If the check shows an OOM kill: {_lower(MORE_MEMORY.action)}", MORE_MEMORY.command),
            Remedy(f"Or {_lower(LOAD_LESS.action)}", LOAD_LESS.command),
            TRAIN_LESS if offload is not None or _trains(case, facts) else HOLD_LESS,
        ],
        next_checks=(_KERNEL_LOG, _CONTAINER_STATE),
    )


def _trains(case: Case, facts: Sequence[Fact]) -> bool:
    """Is it a training? Its launcher's words or options say so."""
    launched = any(s.name.startswith(("torchrun:", "deepspeed:", "accelerate:")) for s in case.all(Setting))
    return launched or any(word in f.text for f in facts for word in ("return code = -9", "elastic", "DataLoader"))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _of_total(memory: HostMemory) -> str:
    if memory.used_bytes is None or not memory.used_share:
        return ""
    return f" ({show_bytes(memory.used_bytes)} of about {show_bytes(memory.used_bytes / memory.used_share)})"


def _spelling(facts: Sequence[Fact]) -> str:
    """How the log writes it: `-9`, `137`, `Killed`."""
    for fact in facts:
        if isinstance(fact, Symptom) and fact.groups.get("code"):
            code = fact.groups["code"]
            return "exit code 137 = 128 + 9" if code == "137" else "return code -9"
        if isinstance(fact, ProcessEnded) and fact.exit_code is not None:
            return "exit code 137 = 128 + 9" if fact.exit_code == 137 else "exit code -9"
    return "signal 9, `Killed`"


EXITS = {
    139: (
        "a segmentation fault (SIGSEGV, 128 + 11)",
        ("a crash in native code: driver, NCCL, a CUDA extension, or a library of another version"),
    ),
    134: (
        "an abort (SIGABRT, 128 + 6)",
        "a failed assertion or an uncaught C++ exception; its words stand above it in the log",
    ),
    135: ("a bus error (SIGBUS, 128 + 7)", "usually a full /dev/shm, else a truncated mapped file"),
    143: (
        "SIGTERM (128 + 15)",
        "it was asked to stop: by a rollout, an eviction, a probe, a scale-down or docker stop",
    ),
    1: ("an error that it reported itself", "its log says which"),
    2: ("wrong usage", "mostly a flag that this version does not know; the log's first lines say which"),
    126: ("a command that cannot be executed", "permissions, or an image for another CPU architecture"),
    127: ("a command that was not found", "the image has no such program, or a hook of the runtime is missing"),
}


def judge_exit(case: Case) -> Iterator[Finding]:
    """A container's state, where it is all that is known of its end."""
    ended = [
        s
        for s in case.all(ContainerState)
        if s.exit_code not in (None, 0) and not s.oom_killed and s.reason != "OOMKilled"
    ]
    looping: list[Fact] = [s for s in case.all(ContainerState) if s.reason == "CrashLoopBackOff"]
    looping += case.symptoms("k8s-crash-loop")
    if ended and ended[-1].exit_code == 137:
        yield _exit_137(case, ended[-1])
    elif ended or looping:
        yield _other_exit(case, ended[-1] if ended else None, [*ended[-1:], *looping[-1:]])


def _exit_137(case: Case, state: ContainerState) -> Finding:
    proof = (
        "the runtime does not count it as an OOM kill"
        if state.oom_killed is False or state.reason == "Error"
        else "nothing says by whom"
    )
    cause = (
        f"Exit code 137 is 128 + 9, SIGKILL, and {proof}. A liveness or startup probe that gave up, a stop whose grace period "
        "ran out, and an eviction end a container this way; so does the kernel's OOM killer when it takes a child or the whole "
        "node is short, because only the container's own limit is reported as OOMKilled."
    )
    return finding(
        "exited-on-sigkill",
        [state],
        case=case,
        cause=cause,
        remedies=[],
        next_checks=(
            Check("Did a probe kill it, or was the pod evicted?", "kubectl describe pod POD | sed -n '/^Events/,$p'"),
            Check("Did the node's kernel kill it?", "dmesg -T | grep -iE 'killed process|oom-kill'  # on the node"),
        ),
    )


def _other_exit(case: Case, state: ContainerState | None, facts: Sequence[Fact]) -> Finding:
    known = EXITS.get(state.exit_code or 0) if state else None
    restarts = max((s.restarts or 0 for s in case.all(ContainerState)), default=0)
    again = f" It was restarted {restarts} times." if restarts else ""
    if known is not None and state is not None:
        cause = f"Exit code {state.exit_code} is {known[0]}: {known[1]}.{again}"
    else:
        cause = f"The container's program ends by itself each time; what is shown does not say why.{again}"
    return finding(
        "k8s-crash-loop",
        facts,
        case=case,
        cause=cause,
        remedies=[],
        next_checks=(
            Check(
                "What did the run that ended say?", "kubectl logs POD --previous | tail -100  # docker logs CONTAINER"
            ),
            Check("With which exit code and reason did it end?", "kubectl describe pod POD | grep -A6 'Last State'"),
        ),
    )


RULES = (
    Rule(judge_killed, (), ("killed-by-signal-9",), uses=(Symptom, ProcessEnded, HostMemory)),
    Rule(judge_exit, (), ("exited-on-sigkill", "k8s-crash-loop"), uses=(ContainerState, Symptom)),
)
