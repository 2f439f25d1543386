"""/dev/shm: too small, full of leftovers, or about to be.

Error 28 (No space left on device) on a shared-memory segment is proof; a DataLoader's bus error is a strong hint; a
file system of 64 MB at /dev/shm is what Docker gives by default and too little for any multi-GPU start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.engine import Progress, Setting
from loadpath.core.facts.errors import PythonException, Symptom
from loadpath.core.facts.host import FilesystemUse
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.units import MIB, show_bytes, show_count
from loadpath.core.vocabulary import FindingStep
from loadpath.diagnosis.ladder import step_at
from loadpath.diagnosis.rule import Rule, finding

DEFAULT_BYTES = 64 * MIB
FULL = "dev-shm-full"
# Files whose errors 28 are about /dev/shm: shared segments, and the semaphores of multiprocessing's locks and queues.
SHM_CODE = ("shared_memory", "shm", "multiprocessing/synchronize.py", "multiprocessing/heap.py")
NO_SPACE = ("no space", "errno 28", "error 28")
_CHECK = Check("How large is /dev/shm, and what lies in it?", "df -h /dev/shm; ls -lS /dev/shm | head")


def judge(case: Case) -> Iterator[Finding]:
    """Something failed on shared memory."""
    if symptoms := _full_symptoms(case):
        yield _full(case, symptoms, shm_mount(case))


def judge_size(case: Case) -> Iterator[Finding]:
    """Nothing failed on it yet, but /dev/shm has the size that it has by accident."""
    mounted = shm_mount(case)
    if mounted is not None and mounted.size_bytes <= DEFAULT_BYTES and not _full_symptoms(case):
        yield _small(case, mounted)


def _full_symptoms(case: Case) -> list[Fact]:
    """Lines that say so, and exceptions with error 28 whose frames are in shared-memory code."""
    told: list[Fact] = [*case.symptoms(FULL)]
    raised = [
        e
        for e in case.all(PythonException)
        if "Errno 28" in e.message and any(place in file for file, _, _ in e.frames for place in SHM_CODE)
    ]
    return told + raised


def shm_mount(case: Case) -> FilesystemUse | None:
    return next((f for f in reversed(case.all(FilesystemUse)) if f.mount == "/dev/shm"), None)


def _full(case: Case, symptoms: Sequence[Fact], mounted: FilesystemUse | None) -> Finding:
    sizes = [int(s.groups["size"]) for s in symptoms if isinstance(s, Symptom) and s.groups.get("size")]
    size = max(sizes, default=None)
    no_space = _said(symptoms, *NO_SPACE)
    facts = [*symptoms, *([mounted] if mounted else [])]
    figures = {"segment_bytes": size} if size else {}
    if mounted is not None:
        figures |= {"shm_bytes": mounted.size_bytes, "shm_free_bytes": mounted.free_bytes}
    return finding(
        FULL,
        facts,
        case=case,
        cause=" ".join(_why(case, symptoms, size, mounted)),
        certainty="established" if no_space else "likely",
        step=_step(case, symptoms),
        remedies=_remedies(case, symptoms, mounted),
        next_checks=(_CHECK,),
        figures=figures,
    )


def _why(case: Case, symptoms: Sequence[Fact], size: int | None, mounted: FilesystemUse | None) -> Iterator[str]:
    if size is not None:
        made = f"A shared-memory segment of {show_bytes(size)} ({show_count(size)} bytes)"
        if _said(symptoms, *NO_SPACE):
            yield (
                f"{made} did not fit: No space left on device (28) means /dev/shm, which is memory, and no file system "
                "on storage."
            )
        else:
            yield f"{made} could not be made. The line does not print the error; a full /dev/shm is nearly always it."
    elif _said(symptoms, "dataloader", "bus error"):
        yield (
            "The DataLoader's workers pass batches to the trainer through /dev/shm; a worker that writes when it is "
            "full dies of a bus error."
        )
    elif not _said(symptoms, *NO_SPACE):
        yield (
            "A shared-memory object could not be made. The line does not say that there was no space; a full /dev/shm is "
            "nearly always it."
        )
    else:
        yield (
            "A shared-memory object could not be made: No space left on device means /dev/shm, which is memory, and "
            "no file system on storage."
        )
    bar = next((p for p in reversed(case.all(Progress)) if p.step == "weight-load" and p.done < p.total), None)
    if bar is not None and _step(case, symptoms) == "weight-load":
        yield f"It happened while the weights were loaded, with {bar.done} of {bar.total} shards done."
    yield _how_large(case, mounted)
    if mounted is None or mounted.size_bytes > DEFAULT_BYTES:
        yield "Segments that earlier, crashed runs left behind stay until the container or pod is recreated and count too."


def _how_large(case: Case, mounted: FilesystemUse | None) -> str:
    """What is known of its size: measured, given on the command line, or the default."""
    if mounted is not None:
        used = f"{show_bytes(mounted.size_bytes)}, {show_bytes(mounted.used_bytes)} of it in use"
        default = " (Docker's default)" if mounted.size_bytes == DEFAULT_BYTES else ""
        return f"/dev/shm has {used}{default}."
    asked = case.setting("docker:shm-size", "k8s:shm-size")
    if asked is not None:
        return f"/dev/shm was given {asked} and is used up."
    if case.setting("docker:ipc") == "host":
        return (
            "With --ipc=host it is the host's own /dev/shm, half of its RAM by default, shared by all processes there."
        )
    if case.setting("docker:run") is not None:
        return "The command line has neither --ipc=host nor --shm-size, so the container has the default of 64 MB."
    return "Containers get 64 MB unless told otherwise, too small for NCCL, for weight loading by several workers or a DataLoader."


def _remedies(case: Case, symptoms: Sequence[Fact], mounted: FilesystemUse | None) -> list[Remedy]:
    grow = [
        Remedy(
            "Give the container the host's shared memory, or a larger one of its own.",
            "docker run --ipc=host …  # or --shm-size=16g; compose: shm_size: 16gb",
            "The segments fit; nothing else changes. Only memory that is used counts.",
        ),
        Remedy(
            "Kubernetes: mount a memory-backed emptyDir at /dev/shm (it counts towards the pod's memory limit).",
            "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]; volumeMounts: [{name: shm, mountPath: /dev/shm}]",
        ),
    ]
    if _in_kubernetes(case):
        grow.reverse()
    clear = Remedy(
        "Remove what dead runs left, while no process of this container uses it; recreating the container or pod does it too.",
        "rm -f /dev/shm/nccl-* /dev/shm/psm_* /dev/shm/torch_*",
    )
    roomy = (mounted is not None and mounted.size_bytes > DEFAULT_BYTES) or case.setting("docker:ipc") == "host"
    made = [clear, *grow] if roomy else [*grow, clear]
    if _said(symptoms, "nccl"):
        made.append(Remedy("As a slow detour: keep NCCL out of shared memory.", "NCCL_SHM_DISABLE=1"))
    if _said(symptoms, "dataloader"):
        made.append(Remedy("As a test: load in the main process, without workers.", "DataLoader(…, num_workers=0)"))
    return made


def _small(case: Case, mounted: FilesystemUse) -> Finding:
    cause = (
        f"/dev/shm has {show_bytes(mounted.size_bytes)}, {show_bytes(mounted.used_bytes)} of it in use: what a container "
        "gets without --shm-size or --ipc=host. One process on one GPU can do with it; as soon as several GPUs are used, "
        "NCCL and the workers of tensor parallelism put segments of many MiB there and the start fails. No error is shown "
        "here, so this is a suspicion."
    )
    return finding(
        "dev-shm-small",
        [mounted],
        case=case,
        cause=cause,
        remedies=_remedies(case, (), mounted)[:2],
        next_checks=(
            Check(
                "Does the start fail on shared memory? Its log says so.",
                "docker logs CONTAINER 2>&1 | grep -iE 'shm|shared memory|No space|Bus error'",
            ),
        ),
        figures={"shm_bytes": mounted.size_bytes, "shm_free_bytes": mounted.free_bytes},
    )


def _step(case: Case, symptoms: Sequence[Fact]) -> FindingStep:
    seen = step_at(case, symptoms[0])
    if seen == "unseen" and _said(symptoms, "nccl"):
        return "context-creation"
    return seen


def _said(symptoms: Sequence[Fact], *words: str) -> bool:
    return any(word in s.text.lower() for s in symptoms for word in words)


def _in_kubernetes(case: Case) -> bool:
    return any(s.name.startswith("k8s:") for s in case.all(Setting))


RULES = (
    Rule(judge, (), (FULL,), uses=(Symptom, PythonException, FilesystemUse, Setting)),
    Rule(judge_size, (FilesystemUse,), ("dev-shm-small",)),
)
