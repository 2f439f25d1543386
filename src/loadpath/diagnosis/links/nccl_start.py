"""A start that breaks off inside NCCL's initialisation: a hang, or a log that was cut there."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.collective import NcclStartUnfinished
from loadpath.core.facts.container import ProbeFailed, ProbeKilled
from loadpath.core.facts.engine import ServerReady
from loadpath.core.report import Check, Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding

_STAGES = {
    "loaded": "NCCL's version is the last thing printed: its communicator is being created",
    "bootstrap": "NCCL has chosen its network interface and is creating its communicator",
    "unique-id": "NCCL has been asked for a communicator (ncclGetUniqueId), and that call or the next has not returned",
    "communicator": "NCCL has begun to connect the ranks of its communicator and has not said that it is complete",
}


def judge(case: Case) -> Iterator[Finding]:
    """The last words of a log are NCCL's, and the server never got ready."""
    last = case.all(NcclStartUnfinished)[-1]
    if case.has(ServerReady):
        return
    cause = [
        f"{_STAGES[last.stage]}, and nothing follows.",
        "That takes seconds when it works. Either the log was cut here, or the process hangs: it waits for a rank that has not "
        "come, for a network interface that the others cannot reach, for peer access that IOMMU or ACS blocks, or in a library "
        "that was put between it and the driver (a GPU-sharing shim such as HAMi's libvgpu.so, loaded by LD_PRELOAD).",
    ]
    if last.interface == "lo":
        cause.append("It uses the loopback interface lo, which is right on one host and cannot work between hosts.")
    if case.has(ProbeFailed) or case.has(ProbeKilled):
        cause.append("Restarts by a probe are a consequence of the hang.")
    yield finding(
        "nccl-start-unfinished",
        [last],
        case=case,
        cause=" ".join(cause),
        remedies=[
            Remedy(
                "As a test, without peer access: if it starts then, IOMMU or ACS is to blame.", "NCCL_P2P_DISABLE=1"
            ),
            Remedy(
                "On a shared GPU: switch the sharing shim's control off, or update it.",
                "CUDA_DISABLE_CONTROL=true  # HAMi-core",
            ),
        ],
        next_checks=(
            Check(
                "Is it still there a minute later, and where does it hang?",
                "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET …; py-spy dump --pid PID; gdb -p PID -batch -ex bt",
            ),
            Check(
                "Is something put between the program and the driver?",
                "cat /etc/ld.so.preload; env | grep -E 'LD_PRELOAD|CUDA_|NCCL_'",
            ),
            Check("Have all ranks come as far as this one?", "grep -c 'NCCL INFO' LOG_OF_EACH_RANK"),
        ),
    )


RULES = (Rule(judge, (NcclStartUnfinished,), ("nccl-start-unfinished",), uses=(ProbeFailed, ProbeKilled)),)
