"""What a look into a container shows against the host: which part of the GPU's way in is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.engine import Setting
from loadpath.core.facts.gpu import GpuState
from loadpath.core.facts.machine import ProbeRan
from loadpath.core.facts.runtime import InsideSeen
from loadpath.core.report import Finding
from loadpath.core.units import show_bytes
from loadpath.diagnosis.containers.container_stack import has_gpu
from loadpath.diagnosis.containers.shared_memory import DEFAULT_BYTES
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.rule import Rule, finding
from loadpath.diagnosis.stack.installed_runtime import offered
from loadpath.knowledge import cuda

_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)*)$")
LOST = "Unknown Error"


def judge(case: Case) -> Iterator[Finding]:
    """Each place that was looked into: the first thing that is missing there."""
    for seen in case.all(InsideSeen):
        yield from _gpu(case, seen)
        yield from _program(case, seen)
        yield from _memory(case, seen)


def gpu_files(seen: InsideSeen) -> list[str]:
    """The GPUs' own device files that are inside."""
    return [path for path in seen.devices if re.fullmatch(r"/dev/nvidia\d+", path)]


def driver_inside(seen: InsideSeen) -> str | None:
    """The version of the libcuda that is inside; None where there is none, or its file name does not say it."""
    real = next((real for path, real in seen.libraries.items() if path.endswith("/libcuda.so.1")), "")
    found = _VERSION.search(real)
    return found[1] if found else None


def gives_gpu(seen: InsideSeen) -> bool:
    """Whether device files that open and both driver libraries are inside."""
    names = {path.rpartition("/")[2] for path in seen.libraries}
    lost = any(LOST in line for line in seen.smi or ())
    return (
        bool(gpu_files(seen))
        and all(seen.devices.values())
        and {"libcuda.so.1", "libnvidia-ml.so.1"} <= names
        and not lost
    )


def _gpu(case: Case, seen: InsideSeen) -> Iterator[Finding]:
    gpus = gpu_files(seen)
    module = loaded_version(case)
    library = next((real for path, real in seen.libraries.items() if path.endswith("/libcuda.so.1")), None)
    have = driver_inside(seen)
    refused = [path for path, opened in seen.devices.items() if not opened]
    if not gpus:
        yield from _without(case, seen)
    elif any(LOST in line for line in seen.smi or ()) or refused:
        yield from _shut(case, seen, refused)
    elif library is None or not any(path.endswith("/libnvidia-ml.so.1") for path in seen.libraries):
        yield _capability(case, seen, "compute" if library is None else "utility")
    elif have and module and have != module:
        values = {"place": seen.place, "have": have, "module": module}
        yield finding("container-driver-stale", [seen], case=case, values=values)
    else:
        yield finding(
            "container-sees-gpu",
            [seen],
            case=case,
            values={"place": seen.place, "count": len(gpus), "version": have or "?"},
        )


def _without(case: Case, seen: InsideSeen) -> Iterator[Finding]:
    """No GPU's device file is inside: nobody asked for it, or the request brought nothing."""
    if not has_gpu(case) or (seen.place.startswith("image ") and not seen.asked):
        return  # the host has none either, which other findings say; or a trial that did not ask
    requests = [s for s in case.all(Setting) if s.name in ("docker:device-requests", "docker:gpus", "docker:runtime")]
    visible = seen.environment.get("NVIDIA_VISIBLE_DEVICES")
    if seen.asked:
        cause = (
            f"A container of the {seen.place} was started with `{seen.asked}` and has no /dev/nvidia0. {seen.tool} took the request and "
            "brought nothing in: its NVIDIA runtime or CDI specification gives no device files. The host's GPU is there."
        )
        yield finding("gpu-lost-between-host-and-container", [seen], case=case, cause=cause)
        return
    void = f" Its NVIDIA_VISIBLE_DEVICES is `{visible}`." if visible in ("void", "none", "") else ""
    if visible not in (None, "void", "none", ""):
        void = f" NVIDIA_VISIBLE_DEVICES={visible} is set, and only NVIDIA's runtime heeds it: this container runs under another one."
    cause = (
        f"{_begin(seen)} has no /dev/nvidia0, and the host has a GPU: it was started without one.{void} A GPU cannot be added to a "
        "container that exists."
    )
    yield finding("gpu-not-requested", [seen, *requests], case=case, cause=cause)


def _shut(case: Case, seen: InsideSeen, refused: list[str]) -> Iterator[Finding]:
    """The device files are inside and do not open."""
    works = any(s.total_bytes for s in case.all(GpuState))
    host = " NVML works on the host, so only this container's access is cut." if works else ""
    files = f" Opening {', '.join(refused[:3])} is refused." if refused else ""
    cause = (
        f"{_begin(seen)} has the device files and may not use them: its device cgroup does not allow them any more (or never did)."
        f"{files}{host} A `systemctl daemon-reload` on the host does that to devices which NVIDIA's hook had added."
    )
    yield finding(
        "container-lost-gpu-access",
        [seen],
        case=case,
        cause=cause,
        certainty="established" if refused and works else "likely",
    )


def _capability(case: Case, seen: InsideSeen, missing: str) -> Finding:
    asked = seen.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    brings = "libcuda" if missing == "compute" else "libnvidia-ml and nvidia-smi"
    why = (
        f"NVIDIA_DRIVER_CAPABILITIES is `{asked}`, without `{missing}`"
        if asked and missing not in asked and "all" not in asked
        else f"NVIDIA_DRIVER_CAPABILITIES is `{asked or 'not set'}`; the part `{missing}` did not arrive all the same"
    )
    cause = f"{_begin(seen)} has the device files and not {brings}: {why}. The host's driver is not at fault."
    certain = bool(asked and missing not in asked)
    return finding(
        "driver-capability-missing", [seen], case=case, cause=cause, certainty="established" if certain else "likely"
    )


def _program(case: Case, seen: InsideSeen) -> Iterator[Finding]:
    """The torch of an image against this machine's driver."""
    torch = seen.packages.get("torch", "")
    tag = re.search(r"\+cu(\d{2})(\d)$", torch)
    offers = offered(case)
    if tag is None or not offers:
        return
    built = f"{tag[1]}.{tag[2]}"
    if cuda.runs(built, offers) in ("full", "unknown", "minor"):
        return
    values = {"place": seen.place, "torch": torch, "built": built, "offered": offers, "major": offers.partition(".")[0],
              "branch": cuda.branch_for(built)}  # fmt: skip
    row = "image-cuda-newer-than-driver"
    if seen.compat:
        cause = (
            f"A program of CUDA {built} needs a driver of that major version. {seen.compat[0]} lies in the image: on a data-centre GPU it "
            "offers the newer CUDA, where the loader finds it before the host's libcuda; on other GPUs it ends with error 803 or 804."
        )
        yield finding(row, [seen], case=case, values=values, cause=cause, severity="warning", certainty="possible")
    else:
        yield finding(row, [seen], case=case, values=values)


def _memory(case: Case, seen: InsideSeen) -> Iterator[Finding]:
    """/dev/shm of a running container; that of a trial is not how anybody starts it."""
    if seen.place.startswith("image ") or seen.shm_bytes is None or seen.shm_bytes > DEFAULT_BYTES:
        return
    cause = (
        f"{_begin(seen)} has a /dev/shm of {show_bytes(seen.shm_bytes)}, what a container gets without --shm-size or "
        "--ipc=host. One process on one GPU can do with it; with tensor parallelism NCCL and the workers put segments of many MiB there "
        "and the start fails. No error is shown here, so this is a suspicion."
    )
    yield finding("dev-shm-small", [seen], case=case, cause=cause, figures={"shm_bytes": seen.shm_bytes})


def _begin(seen: InsideSeen) -> str:
    """The place as a sentence begins with it."""
    return f"{seen.place[:1].upper()}{seen.place[1:]}"


def judge_unseen(case: Case) -> Iterator[Finding]:
    """A container or image that was to be looked into, and was not."""
    for ran in case.all(ProbeRan):
        if ran.name in ("inside-container", "inside-image") and ran.outcome != "ok":
            with_gpu = " --device " in ran.command or " --gpus " in ran.command
            values = {"what": ran.name.partition("-")[2], "why": ran.note or f"The command ended with status {ran.status}",
                      "how": " with the GPU" if with_gpu else " "}  # fmt: skip
            yield finding("inside-not-seen", [ran], case=case, values=values)


RULES = (
    Rule(judge_unseen, (ProbeRan,), ("inside-not-seen",)),
    Rule(judge, (InsideSeen,), (
        "container-sees-gpu", "container-driver-stale", "image-cuda-newer-than-driver", "gpu-lost-between-host-and-container",
        "gpu-not-requested", "container-lost-gpu-access", "driver-capability-missing", "dev-shm-small",
    ), uses=(GpuState, Setting)),
)  # fmt: skip
