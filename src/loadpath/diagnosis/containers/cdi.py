"""CDI: a device name that no specification resolves, and a specification that no longer fits the driver.

Podman gives one text, `unresolvable CDI devices`, for no specification, a device that is not in it, a specification that
it cannot parse, one of a version that it does not know (4.3 reads up to 0.5.0) and two that name the same device; with the
specification in the paste they can be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case, version_numbers
from loadpath.core.facts.container import CdiDevicesListed, CdiSpec, ContainerCliInfo
from loadpath.core.facts.errors import Symptom
from loadpath.core.facts.gpu import DriverVersions, GpuListed, GpuState
from loadpath.core.facts.kernel import DriverPart, GpuIdentity
from loadpath.core.report import Check, Finding, Remedy
from loadpath.core.vocabulary import Certainty
from loadpath.diagnosis.rule import Rule, finding

# The newest specification version that Podman 4.3's CDI library reads; newer ones need Podman 4.6 or later.
OLD_READERS_LIMIT = (0, 5, 0)
_GENERATE = Remedy(
    "Generate the specification anew from the running driver, and see which devices it names.",
    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && nvidia-ctk cdi list",
    "The names that the list prints can be asked for; /etc/cdi outlives a reboot, /var/run/cdi does not.",
)
_DRIVER_FIRST = Check(
    "A specification can only be made when the driver works: is its kernel module loaded?",
    "lsmod | grep ^nvidia; nvidia-smi -L",
)
_LIST = Check(
    "Which devices do the specifications name, and in which CDI version?",
    "nvidia-ctk cdi list; grep -n 'cdiVersion\\|kind:' /etc/cdi/* /var/run/cdi/*",
)


def judge(case: Case) -> Iterator[Finding]:
    symptoms = case.symptoms("cdi-device-unresolvable")
    if not symptoms:
        return
    asked = [word for s in symptoms for word in s.groups.get("devices", "").replace(" ", "").split(",") if word]
    asked = [word.partition("](")[0].strip("[]") for word in asked]  # a link that Markdown made of the name
    device = asked[-1] if asked else "nvidia.com/gpu=all"
    specs = case.all(CdiSpec)
    listed = [name for fact in case.all(CdiDevicesListed) for name in fact.names]
    why, certainty, first = _why(device, specs, listed)
    there = _gpu_is_there(case, device)
    cause = [
        f"The container engine looked for the CDI device `{device}` and found no specification that resolves it.",
        why,
        *there,
    ]
    yield finding(
        "cdi-device-unresolvable",
        [*symptoms, *specs],
        case=case,
        cause=" ".join(cause),
        certainty=certainty,
        remedies=[*first, _GENERATE, *_classes(device)][:4],
        next_checks=(_LIST, _DRIVER_FIRST),
    )


Reason = tuple[str, Certainty, list[Remedy]]


def _why(device: str, specs: Sequence[CdiSpec], listed: Sequence[str]) -> Reason:
    """Why the name is not resolved, how sure that is, and the remedy for it."""
    kind, _, name = device.partition("=")
    own = [s for s in specs if s.kind == kind]
    if broken := next((s for s in specs if s.broken), None):
        return (
            f"The specification {broken.path or 'shown'} cannot be read and is passed over: {broken.broken}.",
            "likely",
            [],
        )
    if naming := [s for s in own if name in s.devices]:
        return _named_all_the_same(naming)
    if own:
        return _not_among(own[0], kind, name)
    if listed:
        return _listed(device, listed)
    return _nothing_shown(kind, name, specs)


def _named_all_the_same(naming: Sequence[CdiSpec]) -> Reason:
    """A specification does name the device, and the engine still does not find it."""
    if len(naming) > 1:
        files = ", ".join(s.path or "one without a path" for s in naming)
        remedy = Remedy("Keep one of the two files.", "sudo rm /etc/cdi/OLD.yaml")
        return f"Two specifications name it ({files}); a conflict makes both void.", "likely", [remedy]
    version = naming[0].version or ""
    if version_numbers(version) > OLD_READERS_LIMIT:
        why = (
            f"The specification does name it, in cdiVersion {version}: a container engine whose CDI library is older passes "
            "the whole file over (Podman 4.3 reads up to 0.5.0)."
        )
        newer = "Update the container engine (Podman 4.6 or newer), or write the specification in an older version."
        return why, "likely", [Remedy(newer, "podman --version")]
    why = (
        "The specification shown does name it, so the engine does not read that file: another folder, permissions, "
        "rootless, or a second file with the same device."
    )
    return why, "possible", []


def _not_among(spec: CdiSpec, kind: str, name: str) -> Reason:
    names = ", ".join(spec.devices[:8]) or "none"
    remedies = [
        Remedy("Ask for a name that the specification has.", f"--device {kind}={device}") for device in spec.devices[:1]
    ]
    return f"The specification of {kind} names {names}, but not `{name}`.", "established", remedies


def _listed(device: str, listed: Sequence[str]) -> Reason:
    """What nvidia-ctk lists, against the name that was asked for."""
    if device not in listed:
        why = f"nvidia-ctk lists {', '.join(listed[:6])}, but not this name."
        return why, "established", [Remedy("Ask for a name that is listed.", f"--device {listed[0]}")]
    why = (
        "nvidia-ctk lists this name, so a specification has it; the container engine does not read that file: its CDI "
        "library is older than the file's cdiVersion (Podman before 4.6), the file is not readable for this user, it lies "
        "in another folder, or a second file defines the same device."
    )
    compare = "podman --version; grep -H cdiVersion /etc/cdi/* /var/run/cdi/*; sudo chmod a+r /etc/cdi/*"
    return why, "likely", [Remedy("Compare versions, make the file readable, and keep one file.", compare)]


def _nothing_shown(kind: str, name: str, specs: Sequence[CdiSpec]) -> Reason:
    """No specification of this kind is in the paste."""
    if specs:
        return f"The specification shown is of kind {specs[0].kind}, not {kind}.", "established", []
    if kind.startswith("management."):
        why = (
            "That class is made for the GPU operator's own pods: its specification names only `all`, never one GPU by UUID "
            "or index."
        )
        return why, "likely" if name == "all" else "established", []
    why = (
        "Either there is no specification in /etc/cdi and /var/run/cdi (the latter is lost at every reboot, and none is "
        "made while the driver is not loaded), or it does not name this device (GPU or MIG layout changed), or this engine "
        "cannot read its version."
    )
    return why, "likely", []


def _gpu_is_there(case: Case, device: str) -> Iterator[str]:
    name = device.partition("=")[2]
    uuids = {
        u
        for u in (
            *(g.uuid for g in case.all(GpuState)),
            *(g.uuid for g in case.all(GpuListed)),
            *(g.uuid for g in case.all(GpuIdentity)),
        )
        if u
    }
    uuids |= {u for info in case.all(ContainerCliInfo) for u in info.uuids}
    if name in uuids:
        yield "The GPU itself is there: the driver lists this UUID. Only the CDI name is missing."
    elif case.has(GpuState) or case.has(GpuListed):
        yield "The GPU itself is there: the driver lists it."


def _classes(device: str) -> list[Remedy]:
    kind = device.partition("=")[0]
    if kind == "nvidia.com/gpu":
        return [
            Remedy(
                "If generating fails, repair the driver first: load its module.",
                "sudo modprobe nvidia && nvidia-smi -L",
            )
        ]
    return [
        Remedy(
            "Kubernetes: run workloads with the plain `nvidia` runtime class, whose devices are nvidia.com/gpu; "
            f"`{kind}` is not for them.",
            "runtimeClassName: nvidia",
        ),
    ]


def judge_outdated(case: Case) -> Iterator[Finding]:
    """The driver version in the specification's file names against the running driver's."""
    running = next((v.driver for v in case.all(DriverVersions) if v.driver), None)
    running = running or next((p.version for p in case.all(DriverPart) if p.side == "module"), None)
    running = running or next((i.driver_version for i in case.all(ContainerCliInfo) if i.driver_version), None)
    specs = [s for s in case.all(CdiSpec) if s.driver_versions and running and running not in s.driver_versions]
    if not specs or running is None:
        return
    failed = case.symptoms("cdi-host-path-missing")
    spec = specs[0]
    lost = (
        " A specification in /var/run/cdi is lost at reboot and made anew then."
        if (spec.path or "").startswith(("/var/run", "/run"))
        else ""
    )
    cause = (
        f"The specification{f' {spec.path}' if spec.path else ''} mounts libraries of "
        f"driver {', '.join(spec.driver_versions)}, and driver {running} runs. "
        "It was generated before the driver was changed: its files are gone, or would put the wrong user-space driver into the "
        f"container.{lost}"
    )
    yield finding("cdi-spec-outdated", [spec, *failed], case=case, cause=cause, severity="error" if failed else None)


RULES = (
    Rule(judge, (Symptom,), ("cdi-device-unresolvable",), uses=(CdiSpec, CdiDevicesListed, GpuState)),
    Rule(judge_outdated, (CdiSpec,), ("cdi-spec-outdated",), uses=(DriverVersions, DriverPart, ContainerCliInfo)),
)
