"""From the host's driver into the container: which link is cut.

Three questions decide: does the driver work on the host, does the container engine know the NVIDIA runtime or a CDI
specification, and does a minimal image see the GPU? Each rule says what the paste answers, and which command asks the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.core.case import Case
from loadpath.core.facts.base import Fact
from loadpath.core.facts.container import ContainerCliInfo, RuntimesKnown
from loadpath.core.facts.engine import Setting
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.gpu import DriverVersions, GpuListed, GpuState
from loadpath.core.report import Check, Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding, row_remedies
from loadpath.knowledge.tables import findings

# Findings that only say: this process sees no GPU.
NO_GPU_SEEN = (
    "t-no-gpus",
    "no-cuda-device",
    "driver-too-old",
    "cuda-init-failed",
    "device-type-undetermined",
    "llama-without-gpu-backend",
    "nvidia-smi-not-found",
    "nvml-library-missing",
    "torch-cannot-use-nvml",
    "libcuda-missing",
    "container-command-not-found",
    "driver-not-injected",
)
UTILITY_MISSING = (
    "nvidia-smi-not-found",
    "nvml-library-missing",
    "torch-cannot-use-nvml",
    "container-command-not-found",
)
COMPUTE_MISSING = ("libcuda-missing", "t-no-gpus", "device-type-undetermined")
# Errors of the container engine or toolkit itself: they say more than "no GPU seen".
TOOLKIT_ERRORS = (
    "docker-",
    "cdi-",
    "nvc-",
    "container-runtime-",
    "container-hook-",
    "container-gpu-request-",
    "container-lost-",
)


def host_driver(case: Case) -> tuple[str | None, list[Fact]]:
    """A sentence that says that the driver works, with the facts that show it; None where nothing shows it."""
    versions = next((v for v in case.all(DriverVersions) if v.driver), None)
    gpus: list[GpuState | GpuListed] = [*case.all(GpuState), *case.all(GpuListed)]
    info = case.first(ContainerCliInfo)
    named = next((g.name for g in gpus if g.name), None)
    shown: list[Fact] = [f for f in (versions, *gpus[:1], info) if f is not None]
    if versions is not None:
        card = f" and lists the {named}" if named else ""
        return f"The driver itself works: nvidia-smi shows {versions.driver}{card}.", shown
    if gpus:
        return f"The driver itself works: it lists the {named or 'GPU'}.", shown
    if info is not None and info.driver_version:
        return f"The driver itself works: nvidia-container-cli sees {info.driver_version}.", shown
    return None, []


def judge_toolkit(case: Case) -> Iterator[Finding]:
    """Docker has nobody who could hand out GPUs."""
    symptoms = case.symptoms("docker-without-nvidia-toolkit")
    if not symptoms:
        return
    works, shown = host_driver(case)
    known = [r for r in case.all(RuntimesKnown) if (r.names or r.default) and r.basis in ("docker info", "daemon.json")]
    row = findings()["docker-without-nvidia-toolkit"]
    cause = [*row.cause, *([works] if works else [])]
    for runtimes in known[-1:]:
        if "nvidia" in runtimes.names:
            cause.append(
                f"{runtimes.basis} does list the runtime nvidia, so the toolkit is configured: dockerd was "
                "not restarted since, or --runtime=nvidia is the way here."
            )
        else:
            cause.append(
                f"{runtimes.basis} lists only {', '.join(runtimes.names) or runtimes.default}: no nvidia runtime."
            )
    yield finding(
        row.id,
        [*symptoms, *shown, *known[-1:]],
        case=case,
        cause=" ".join(cause),
        next_checks=[c for c in _checks(row.id) if not (works and c.command == "nvidia-smi")],
    )


def _checks(row_id: str) -> list[Check]:
    return [Check(c.why, c.command.replace("{{", "{").replace("}}", "}")) for c in findings()[row_id].next_checks]


def judge_lost(case: Case) -> Iterator[Finding]:
    """NVML says Unknown Error: after having worked in the same place, or from the start."""
    symptoms = case.symptoms("container-lost-gpu-access")
    if not symptoms:
        return
    first = symptoms[0]
    before = [
        f
        for f in (*case.all(DriverVersions), *case.all(GpuState), *case.all(GpuListed))
        if f.span.source == first.span.source and f.span.first_line < first.span.first_line
    ]
    why = (
        "The device nodes are there, but the container's device cgroup no longer allows them: a `systemctl daemon-reload` on the "
        "host (package upgrades do one) makes systemd rewrite the cgroup's device list from what it knows, and devices that the "
        "NVIDIA hook had added are not in it."
    )
    if before:
        cause = (
            "nvidia-smi worked here before and now answers Unknown Error: access was lost while the container "
            f"ran. {why} Host and driver are not at fault."
        )
    else:
        cause = (
            "NVML could not open the devices (Unknown Error). In a container that saw "
            f"its GPU before, this is the usual reason: {why[:1].lower()}{why[1:]} "
            "In a new container it means missing or forbidden device nodes."
        )
    yield finding(
        "container-lost-gpu-access",
        [*before[-1:], *symptoms],
        case=case,
        cause=cause,
        certainty="established" if before else "likely",
        step="serving" if before else None,
    )


def judge_library(case: Case) -> Iterator[Finding]:
    """nvidia-container-cli does not find the driver's library on the host."""
    symptoms = case.symptoms("nvc-lib-missing")
    if not symptoms:
        return
    lib = next((s.groups["lib"] for s in symptoms if s.groups.get("lib")), None)
    # Old toolkits do not name the library.
    what = lib or "a library of the driver (the line does not name it; libnvidia-ml.so.1 or libcuda.so.1)"
    works, shown = host_driver(case)
    row = findings()["nvc-lib-missing"]
    cause = [
        f"`nvidia-container-cli` runs on the host, before the container starts, and could not load {what} there: the toolkit is "
        "installed, the NVIDIA driver's user-space libraries are missing on the host or not where the loader looks."
    ]
    remedies = list(row_remedies(row, {}))
    if works:
        cause.append(
            f"{works} So the libraries exist: the loader's cache is stale, or this container engine (snap, another root) cannot see them."
        )
        remedies = [remedies[1], remedies[2]]
    else:
        cause.append(
            "Install order matters: driver first, then toolkit. On WSL the library comes from Windows (/usr/lib/wsl/lib)."
        )
    yield finding(row.id, [*symptoms, *shown], case=case, cause=" ".join(cause), remedies=remedies)


def judge_not_requested(case: Case) -> Iterator[Finding]:
    """What started the container is in the paste, asks for no GPU, and something in it sees none."""
    missing = [s for s in case.all(Symptom) if s.finding in NO_GPU_SEEN]
    started = next((s for s in reversed(case.all(Setting)) if s.name in ("docker:run", "k8s:container")), None)
    if not missing or started is None or _asks_for_gpu(case):
        return
    lies = "no GPU was passed in; whatever runs inside cannot see one, however well the driver works."
    remedies = None
    if started.name == "k8s:container":
        cause = f"Container `{started.value}` of the pod has no nvidia.com/gpu limit, so {lies}"
        remedies = [Remedy("Ask for the GPU in the container's limits.", "resources: {limits: {nvidia.com/gpu: 1}}")]
    else:
        name = case.setting("docker:name") or case.setting("docker:image") or "the container"
        cause = (
            f"The start of {name} ({started.value}) has neither --gpus nor --runtime=nvidia nor an nvidia.com/gpu device, "
            f"so {lies}"
        )
    yield finding(
        "gpu-not-requested", [started, *missing], case=case, cause=cause, certainty="likely", remedies=remedies
    )


def _asks_for_gpu(case: Case) -> bool:
    devices = [s.value for s in case.all(Setting) if s.name in ("docker:device", "docker:volume")]
    return (
        case.setting("docker:gpus") is not None
        or any(s.name.startswith("k8s:limits.nvidia.com/") for s in case.all(Setting))
        or "nvidia" in (case.setting("k8s:runtime-class") or "")
        or "nvidia" in (case.setting("docker:runtime") or "")
        or any("nvidia" in value for value in devices)
        or any("nvidia" in (r.default or "") for r in case.all(RuntimesKnown))
        or case.setting("docker:privileged") == "True"
    )


def judge_capabilities(case: Case) -> Iterator[Finding]:
    """NVIDIA_DRIVER_CAPABILITIES is shown and lacks what failed."""
    setting = next((s for s in reversed(case.all(Setting)) if s.name == "NVIDIA_DRIVER_CAPABILITIES"), None)
    if setting is None or "all" in setting.value.split(","):
        return
    given = {part.strip() for part in setting.value.split(",")}
    for part, ids, brings in (
        ("utility", UTILITY_MISSING, "libnvidia-ml and nvidia-smi"),
        ("compute", COMPUTE_MISSING, "libcuda"),
    ):
        hit = [s for s in case.all(Symptom) if s.finding in ids]
        if part not in given and hit:
            cause = (
                f"NVIDIA_DRIVER_CAPABILITIES is `{setting.value}`, without `{part}`: the toolkit therefore mounted no {brings} into the "
                "container, though the GPU itself was passed in."
            )
            yield finding("driver-capability-missing", [setting, *hit], case=case, cause=cause)
            return


def judge_chain(case: Case) -> Iterator[Finding]:
    """The driver answers somewhere in the paste, a GPU was asked for, and the container sees none."""
    missing = [s for s in case.all(Symptom) if s.finding in NO_GPU_SEEN]
    works, shown = host_driver(case)
    started = next((s for s in reversed(case.all(Setting)) if s.name in ("docker:run", "k8s:container")), None)
    if not missing or works is None or started is None or not (_asks_for_gpu(case) or started.name == "k8s:container"):
        return
    if any(s.finding.startswith(TOOLKIT_ERRORS) for s in case.all(Symptom)):
        return
    cause = (
        f"{works} A GPU was asked for when the container was started, and inside it none is found: what is cut is the way in between, the "
        "container engine's NVIDIA runtime or the driver parts that it mounts."
    )
    yield finding("gpu-lost-between-host-and-container", [started, *missing, *shown[:1]], case=case, cause=cause)


RULES = (
    Rule(judge_toolkit, (Symptom,), ("docker-without-nvidia-toolkit",), uses=(DriverVersions, GpuState, RuntimesKnown)),
    Rule(judge_lost, (Symptom,), ("container-lost-gpu-access",), uses=(DriverVersions, GpuState)),
    Rule(judge_library, (Symptom,), ("nvc-lib-missing",), uses=(DriverVersions, GpuState)),
    Rule(judge_not_requested, (Symptom, Setting), ("gpu-not-requested",)),
    Rule(judge_capabilities, (Symptom, Setting), ("driver-capability-missing",)),
    Rule(judge_chain, (Symptom, Setting), ("gpu-lost-between-host-and-container",), uses=(DriverVersions, GpuState)),
)
