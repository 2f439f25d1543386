"""Training with offload to the CPU whose process was killed: the host's RAM against what the offload needs.

ZeRO with Adam keeps 12 bytes of optimizer state per parameter in fp32 (master copy, momentum, variance) where the
optimizer lives, 16 with fp32 gradients (arXiv 1910.02054); offloading moves that from the GPUs to the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.errors import OutOfMemory, Symptom
from loadpath.core.facts.host import HostMemory, OptimizerPartition, TrainingGpuMemory
from loadpath.core.report import Check, Figures, Finding, Remedy
from loadpath.core.units import show_bytes, show_count, show_seconds
from loadpath.diagnosis.rule import Rule, finding

OPTIMIZER_BYTES = 12
WITH_GRADIENTS_BYTES = 16
# From this share on, "nearly full" is a fair word for the host's memory.
NEARLY_FULL = 0.8


def judge(case: Case) -> Iterator[Finding]:
    """A training process ended without an exception while DeepSpeed reported host memory."""
    killed = case.symptoms("killed-by-signal-9")
    stopped = [*killed, *case.symptoms("deepspeed-stopped-processes")]
    memory = case.last(HostMemory)
    part = case.last(OptimizerPartition)
    if not stopped or memory is None or any(oom.kind == "cuda" for oom in case.all(OutOfMemory)):
        return
    needed = part.parameters * OPTIMIZER_BYTES if part else None
    full = (memory.used_share or 0) >= NEARLY_FULL
    if not killed and not full and needed is None:
        return
    gpu = case.last(TrainingGpuMemory)
    facts: list[Fact] = [f for f in (part, gpu, memory, *stopped) if f is not None]
    cause = [*_ended(killed, stopped, memory), *_host(memory), *_needed(part, memory)]
    if gpu is not None:
        cause.append(f"The GPU held {show_bytes(gpu.allocated_bytes)} at that time: it is not GPU memory.")
    yield finding(
        "train-killed-offload",
        facts,
        case=case,
        cause=" ".join(cause),
        figures=_figures(memory, needed),
        certainty="likely" if killed or full else "possible",
        remedies=_remedies(needed),
        next_checks=(
            Check("Did the kernel kill it, and how much did it hold?", "dmesg -T | grep -iE 'killed process|oom-kill'"),
            Check(
                ("How much RAM may the job use? A container or Slurm may allow less than the machine has."),
                "free -g; cat /sys/fs/cgroup/memory.max",
            ),
        ),
    )


def _ended(killed: Sequence[Symptom], stopped: Sequence[Symptom], memory: HostMemory) -> Iterator[str]:
    after = None
    if stopped[0].origin.time is not None and memory.origin.time is not None:
        after = stopped[0].origin.time - memory.origin.time
    when = f" {show_seconds(after)} after the last memory line" if after is not None and after >= 0 else ""
    if killed:
        yield (
            f"The process got SIGKILL (return code -9){when}, with no exception of its "
            "own: the kernel's way to end a process when host RAM runs out."
        )
    else:
        yield (
            f"The launcher stopped its processes{when}, and the one that ended first "
            "printed no exception: killed from outside, most likely by the kernel for "
            "host memory."
        )


def _host(memory: HostMemory) -> Iterator[str]:
    if memory.used_bytes is None or not memory.used_share:
        return
    total = memory.total_bytes or memory.used_bytes / memory.used_share
    yield (
        f"Host memory stood at {show_bytes(memory.used_bytes, 1)}, {memory.used_share:.1%} of about {show_bytes(total, 0)}"
        + (
            ", nearly full before the next allocation: NVMe offload still needs pinned buffers and a copy of the weights in RAM."
            if memory.used_share >= NEARLY_FULL
            else "."
        )
    )


def _needed(part: OptimizerPartition | None, memory: HostMemory) -> Iterator[str]:
    if part is None:
        return
    low, high = part.parameters * OPTIMIZER_BYTES, part.parameters * WITH_GRADIENTS_BYTES
    yield (
        f"Adam's states of {show_count(part.parameters)} parameters per rank take {OPTIMIZER_BYTES} bytes each when they "
        f"are offloaded, {show_bytes(low, 1)} ({show_bytes(high, 1)} with fp32 gradients), for every rank on this host."
    )


def _remedies(needed: int | None) -> list[Remedy]:
    room = f" of at least {show_bytes(needed, 0)} per rank beyond what is used now" if needed else ""
    return [
        Remedy(
            (f"Give the job more host RAM or a higher memory limit{room}, or spread it over more nodes."),
            "sbatch --mem=0 …  # docker run without --memory; Kubernetes: resources.limits.memory",
        ),
        Remedy(
            ("Train fewer parameters: LoRA or QLoRA need optimizer states for the adapters only."),
            "finetuning_type: lora  # peft: get_peft_model(model, LoraConfig(r=16))",
        ),
        Remedy(
            (
                "Keep smaller states: an 8-bit optimizer takes 2 bytes per parameter in "
                "place of 8 for momentum and variance."
            ),
            "optim: adamw_bnb_8bit  # without offload of the optimizer",
        ),
        Remedy(
            "Offload the optimizer to NVMe in place of RAM, with few and small pinned buffers.",
            (
                '"offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", '
                '"pin_memory": false, "buffer_count": 4}'
            ),
        ),
    ]


def _figures(memory: HostMemory, needed: int | None) -> Figures:
    figures: Figures = {}
    if memory.used_bytes:
        figures["host_used_bytes"] = memory.used_bytes
    if needed:
        figures["optimizer_bytes"] = needed
    return figures


RULES = (Rule(judge, (HostMemory,), ("train-killed-offload",), uses=(Symptom, OptimizerPartition, TrainingGpuMemory)),)
