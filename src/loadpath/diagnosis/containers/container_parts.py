"""Parts of the container stack that a paste shows by themselves: what they say when nothing has failed (yet)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case
from loadpath.core.facts.container import CdiSpec, ContainerCliInfo, EventListed, PodListed, RuntimesKnown
from loadpath.core.facts.engine import Setting
from loadpath.core.facts.runtime import PathSeen
from loadpath.core.report import Check, Finding, Remedy
from loadpath.diagnosis.rule import Rule, finding

# The operator's chain, in the order in which its pods wait for each other.
CHAIN = (
    ("nvidia-driver-daemonset", "the driver's pod"),
    ("nvidia-container-toolkit", "the toolkit's pod"),
    ("nvidia-operator-validator", "the validator"),
    ("nvidia-device-plugin", "the device plugin"),
    ("gpu-feature-discovery", "feature discovery"),
    ("nvidia-dcgm", "DCGM"),
)
# Fewer events say nothing about a pod as a whole.
MANY_EVENTS = 3
_FINE = ("Running", "Completed", "Succeeded")


def judge_cli(case: Case) -> Iterator[Finding]:
    """`nvidia-container-cli info` answered: driver and GPUs are there as the toolkit sees them."""
    info = case.all(ContainerCliInfo)[-1]
    names = ", ".join(name for _, name in info.devices) or "no GPU"
    driver = (
        f"driver {info.driver_version}"
        if info.driver_version
        else "a driver without a version of its own (normal on Jetson)"
    )
    cause = (
        f"nvidia-container-cli finds {driver}, CUDA up to {info.cuda_version or 'unknown'}, and {names}. If a "
        "container still sees no GPU, it was not asked for one, or the runtime is not registered."
    )
    yield finding("container-toolkit-sees-driver", [info], case=case, cause=cause)


def judge_runtimes(case: Case) -> Iterator[Finding]:
    """Runtimes are listed and none of them is NVIDIA's."""
    known = [r for r in case.all(RuntimesKnown) if r.basis == "docker info" and r.names]
    if not known or any("nvidia" in name for r in case.all(RuntimesKnown) for name in r.names):
        return
    cause = (
        f"{known[-1].basis} lists the runtimes {', '.join(known[-1].names)}. `--runtime=nvidia` fails here; `--gpus` works only if the "
        "toolkit's hook is installed, and CDI devices only if the engine does CDI."
    )
    yield finding("container-engine-without-nvidia-runtime", known[-1:], case=case, cause=cause)


def judge_spec(case: Case) -> Iterator[Finding]:
    """A specification by itself: what it names, and whether it can be read."""
    looked = {seen.named_by for seen in case.all(PathSeen)}  # of a live machine: whether the paths exist is known
    for spec in [s for s in case.all(CdiSpec) if s.broken or s.path not in looked][:1]:
        if spec.broken:
            yield finding(
                "cdi-spec-read",
                [spec],
                case=case,
                severity="warning",
                certainty="established",
                title="The CDI specification cannot be read",
                boundary="container-injection",
                cause=f"It is no valid YAML or JSON, so container engines pass it over without a word: {spec.broken}.",
                remedies=[Remedy("Generate it anew.", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")],
            )
            continue
        made_for = (
            f"; it mounts the libraries of driver {', '.join(spec.driver_versions)}" if spec.driver_versions else ""
        )
        cause = (
            f"It defines {spec.kind} with the devices {', '.join(spec.devices[:10]) or 'none'} (cdiVersion {spec.version}){made_for}. "
            f"It wants {len(spec.device_nodes)} device nodes, {len(spec.mounts)} mounts and {len(spec.hooks)} hook programs of the host; "
            "whether they exist has to be seen there."
        )
        yield finding(
            "cdi-spec-read",
            [spec],
            case=case,
            cause=cause,
            next_checks=(
                Check(
                    "Do the paths exist, and does the driver version fit?",
                    (f"ls -l {' '.join((*spec.device_nodes, *spec.hooks)[:6])}; cat /proc/driver/nvidia/version"),
                ),
            ),
        )


def judge_pods(case: Case) -> Iterator[Finding]:
    """The list of the GPU operator's pods."""
    pods = case.all(PodListed)
    own = [pod for pod in pods if any(pod.name.startswith(prefix) for prefix, _ in CHAIN)]
    if not own:
        return
    leaving = [pod for pod in own if pod.name.startswith("nvidia-driver") and pod.status == "Terminating"]
    stuck = [pod for pod in own if not _is_fine(pod) and pod.status != "Terminating"]
    if leaving:
        cause = (
            f"{leaving[0].name} is Terminating: a driver change is under way. Its modules "
            "can only be unloaded when no pod on the node uses a GPU, and GPU pods there "
            "lose the driver with it."
        )
        yield finding("gpu-operator-driver-leaving", leaving, case=case, cause=cause)
    elif stuck:
        yield _stuck(case, stuck)
    elif len(own) > 1:
        done = sum(pod.status != "Running" for pod in pods)
        cause = (
            f"{len(pods) - done} pods run with all their containers and {done} have "
            "completed; the driver, toolkit and plugin of the nodes listed are ready."
        )
        yield finding("gpu-operator-pods-ready", own, case=case, cause=cause)


def _is_fine(pod: PodListed) -> bool:
    return pod.status in _FINE and (pod.status != "Running" or pod.ready == pod.containers)


def _stuck(case: Case, stuck: Sequence[PodListed]) -> Finding:
    first = min(stuck, key=lambda pod: next(i for i, (prefix, _) in enumerate(CHAIN) if pod.name.startswith(prefix)))
    role = next(words for prefix, words in CHAIN if first.name.startswith(prefix))
    cause = (
        f"{len(stuck)} of the operator's pods are not ready. They wait for each other in the order driver, toolkit, validator, plugin; the "
        f"first of them that is not ready is {role}, {first.name} ({first.status}, "
        f"{first.ready}/{first.containers}). Its log has the cause; the others only "
        "wait."
    )
    return finding(
        "gpu-operator-pods-stuck",
        [first, *(pod for pod in stuck if pod is not first)],
        case=case,
        cause=cause,
        remedies=[
            Remedy(
                f"Repair {role} first; the rest follows by itself.",
                f"kubectl -n gpu-operator describe pod {first.name}",
            )
        ],
        next_checks=(
            Check("What does it say?", f"kubectl -n gpu-operator logs {first.name} --all-containers --tail=50"),
            Check("Does the driver work on that node?", "nvidia-smi; dmesg | grep -i nvrm | tail  # on the node"),
        ),
    )


def judge_events(case: Case) -> Iterator[Finding]:
    """Events of which none is a warning."""
    events = case.all(EventListed)
    if len(events) < MANY_EVENTS or any(event.kind == "Warning" for event in events):
        return
    started = sum(event.reason == "Started" for event in events)
    pods = {event.about.rpartition("/")[2] for event in events if event.about}
    of = f" of {len(pods)} pods" if pods else ""
    cause = f"All {len(events)} events{of} are Normal ({started} containers started): an ordinary start or restart, no failure among them."
    yield finding("k8s-events-normal", events, case=case, cause=cause)


def judge_node(case: Case) -> Iterator[Finding]:
    """`describe node`: GPUs that the node has against those that it offers."""
    amounts = {
        s.name: s
        for s in case.all(Setting)
        if s.name.startswith(("k8s:capacity.nvidia.com/", "k8s:allocatable.nvidia.com/"))
    }
    for name, capacity in amounts.items():
        offered = amounts.get(name.replace(":capacity.", ":allocatable."))
        if ":capacity." not in name or offered is None or not (capacity.value.isdigit() and offered.value.isdigit()):
            continue
        if int(offered.value) < int(capacity.value):
            cause = (
                f"The node has {capacity.value} of `{name.partition('.')[2]}` and offers "
                f"{offered.value}: the device plugin marked the rest unhealthy, usually after "
                "an Xid, and the scheduler no longer counts them."
            )
            yield finding("k8s-gpus-unhealthy", [capacity, offered], case=case, cause=cause)


RULES = (
    Rule(judge_node, (Setting,), ("k8s-gpus-unhealthy",)),
    Rule(judge_events, (EventListed,), ("k8s-events-normal",)),
    Rule(judge_cli, (ContainerCliInfo,), ("container-toolkit-sees-driver",)),
    Rule(judge_runtimes, (RuntimesKnown,), ("container-engine-without-nvidia-runtime",)),
    Rule(judge_spec, (CdiSpec,), ("cdi-spec-read",)),
    Rule(
        judge_pods, (PodListed,), ("gpu-operator-pods-ready", "gpu-operator-driver-leaving", "gpu-operator-pods-stuck")
    ),
)
