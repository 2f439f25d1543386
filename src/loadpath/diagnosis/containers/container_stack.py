"""The container stack of a live machine: what would fail if a container asked for the GPU now.

Nothing has failed yet here, so each rule says who is concerned: a stale CDI specification stops only those who ask by CDI.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadpath.core.case import Case, version_numbers
from loadpath.core.facts.container import CdiSpec, RuntimesKnown
from loadpath.core.facts.gpu import GpuListed, GpuState, PciDevice
from loadpath.core.facts.machine import DriverLibrary
from loadpath.core.facts.runtime import (
    ConfigBroken,
    DaemonSilent,
    PathSeen,
    PluginRegistered,
    PluginSockets,
    ProgramFound,
    RuntimeBinary,
    ServiceState,
    ToolkitSetting,
)
from loadpath.core.facts.stack import EnvironmentVariable
from loadpath.core.report import Finding
from loadpath.core.vocabulary import Severity
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.machine.nodes import inside_container
from loadpath.diagnosis.rule import Rule, finding

# NVSwitch by PCI id: of V100, A100 and H100/H200 boards. On NVLink 5 boards the switches are no NVIDIA PCI device.
SWITCHES = frozenset(("1ac2", "1af1", "22a3"))
# Docker from this version on turns --gpus into CDI devices.
DOCKER_CDI_FIRST = (29,)
TOOLKIT_PARTS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook")
ENGINES = {"docker": "Docker", "dockerd": "Docker", "podman": "Podman", "containerd": "containerd", "crio": "CRI-O"}
_TOOL = {"Docker": "docker", "containerd": "containerd", "CRI-O": "crio", "Podman": "podman"}


def programs(case: Case) -> dict[str, ProgramFound]:
    """The container programs that are installed, by name."""
    return {p.name: p for p in case.all(ProgramFound) if p.path}


def engines(case: Case) -> list[str]:
    """The container engines that are installed."""
    return list(dict.fromkeys(ENGINES[name] for name in programs(case) if name in ENGINES))


def has_gpu(case: Case) -> bool:
    return any(d.is_gpu for d in case.all(PciDevice)) or case.has(GpuState) or case.has(GpuListed)


def missing_paths(case: Case, spec: CdiSpec) -> list[PathSeen]:
    """The host's paths of a specification that were looked for and are not there."""
    wanted = {*spec.device_nodes, *spec.mounts, *spec.hooks}
    seen = {p.path: p for p in case.all(PathSeen) if p.named_by == spec.path and not p.exists and p.path in wanted}
    return list(seen.values())


def cdi_users(case: Case) -> list[str]:
    """Who hands GPUs out by CDI on this machine, so that a faulty specification stops them."""
    users = []
    found = programs(case)
    if "podman" in found:
        users.append("Podman")
    docker = next((r for r in case.all(RuntimesKnown) if r.basis == "docker info"), None)
    if docker is not None and version_numbers(docker.engine_version or "") >= DOCKER_CDI_FIRST:
        users.append(f"Docker {docker.engine_version}")
    if any(s.name == "nvidia-container-runtime.mode" and s.value == "cdi" for s in case.all(ToolkitSetting)):
        users.append("NVIDIA's runtime, which is set to CDI mode,")
    users += [r.basis.split()[0] for r in case.all(RuntimesKnown) if r.cdi and r.basis.endswith("configuration")]
    return list(dict.fromkeys(users))


def shadowed(spec: CdiSpec, specs: Sequence[CdiSpec]) -> CdiSpec | None:
    """The specification in /var/run/cdi that takes the place of one in /etc/cdi for every device that it names."""
    if not (spec.path or "").startswith("/etc/"):
        return None
    return next((
        s for s in specs
        if (s.path or "").startswith(("/var/run/", "/run/")) and s.kind == spec.kind and set(spec.devices) <= set(s.devices)
    ), None)  # fmt: skip


def judge_paths(case: Case) -> Iterator[Finding]:
    """A CDI specification that names files which are not there."""
    specs = case.all(CdiSpec)
    for spec in specs:
        missing = missing_paths(case, spec)
        if not missing:
            continue
        by = shadowed(spec, specs)
        users = cdi_users(case)
        severity: Severity = "info" if by is not None else "error" if users else "warning"
        named = len(spec.mounts) + len(spec.device_nodes) + len(spec.hooks)
        yield finding(
            "cdi-spec-paths-missing",
            [spec, *missing],
            case=case,
            severity=severity,
            values={"path": spec.path, "nodes": next((p.path for p in missing if p.path.startswith("/dev/")), None)},
            cause=" ".join(_stale(case, spec, missing, by, users)),
            figures={"missing_paths": len(missing), "named_paths": named},
        )


def _stale(
    case: Case, spec: CdiSpec, missing: Sequence[PathSeen], by: CdiSpec | None, users: Sequence[str]
) -> Iterator[str]:
    total = len({*spec.device_nodes, *spec.mounts, *spec.hooks})
    names = ", ".join(p.path for p in missing[:3]) + (" …" if len(missing) > 3 else "")
    gone = "1 of them does" if len(missing) == 1 else f"{len(missing)} of them do"
    yield f"{spec.path} names {total} paths of the host, and {gone} not exist: {names}."
    running = loaded_version(case)
    if spec.driver_versions and running and running not in spec.driver_versions:
        yield f"It was made for driver {', '.join(spec.driver_versions)}; {running} is loaded, so it is older than the last driver change."
    if by is not None:
        yield f"{by.path} defines the same devices and comes first, so nothing fails because of it."
    elif users:
        yield f"{' and '.join(users[:2])} {'uses' if len(users) == 1 else 'use'} it: containers that ask for {spec.kind} cannot be started."
    else:
        yield f"Whoever asks for {spec.kind} by CDI cannot start; `docker run --gpus` with NVIDIA's hook does not read it."


def judge_conflict(case: Case) -> Iterator[Finding]:
    """Two specifications of one folder that define the same device."""
    specs = [s for s in case.all(CdiSpec) if s.path and not s.broken]
    for i, spec in enumerate(specs):
        for other in specs[i + 1 :]:
            folder = str(spec.path).rpartition("/")[0]
            both = [d for d in spec.devices if d in other.devices]
            if (
                other.kind != spec.kind
                or str(other.path).rpartition("/")[0] != folder
                or not both
                or other.path == spec.path
            ):
                continue
            running = loaded_version(case)
            older = other if running and running in spec.driver_versions else spec
            devices = ", ".join(f"{spec.kind}={d}" for d in both[:3])
            users = cdi_users(case)
            yield finding(
                "cdi-specs-conflict", [spec, other], case=case, severity="error" if users else "warning",
                values={"folder": folder, "files": f"{spec.path} and {other.path}", "devices": devices, "older": older.path},
            )  # fmt: skip


def judge_binary(case: Case) -> Iterator[Finding]:
    """A registered runtime whose program is not there."""
    gone = {(p.named_by, p.path): p for p in case.all(PathSeen) if not p.exists}
    default = {r.default for r in case.all(RuntimesKnown)}
    nowhere = {p.name: p for p in case.all(ProgramFound) if p.path is None}
    for runtime in case.all(RuntimeBinary):
        # A full path was looked at; a bare name is looked for as a program.
        seen = gone.get((runtime.path, runtime.binary)) or nowhere.get(runtime.binary)
        if seen is None:
            continue
        row = "container-runtime-program-gone"
        tail = (
            "It is the default runtime: no container can be started."
            if runtime.name in default
            else "Containers that ask for this runtime cannot be started; others are not concerned."
        )
        cause = f"{runtime.path} registers the runtime `{runtime.name}` with `{runtime.binary}`, and there is no such program. {tail}"
        values = {"engine": runtime.engine, "binary": runtime.binary, "path": runtime.path, "name": runtime.name,
                  "tool": _TOOL.get(runtime.engine, "docker")}  # fmt: skip
        severity: Severity = "error" if runtime.name in default or "nvidia" in runtime.name else "warning"
        yield finding(row, [runtime, seen], case=case, values=values, cause=cause, severity=severity)


def judge_toolkit(case: Case) -> Iterator[Finding]:
    """Container engines and a GPU, and nothing that could bring them together."""
    found = programs(case)
    own = engines(case)
    specs = any((s.kind or "").startswith("nvidia.com/") for s in case.all(CdiSpec))
    if not own or not has_gpu(case) or specs or any(name in found for name in TOOLKIT_PARTS) or inside_container(case):
        return
    absent = [p for p in case.all(ProgramFound) if p.name in TOOLKIT_PARTS]
    shown = [found[name] for name in found if name in ENGINES]
    yield finding(
        "container-toolkit-not-installed", [*shown, *absent], case=case, values={"engines": " and ".join(own)}
    )


def judge_silent(case: Case) -> Iterator[Finding]:
    """A container engine that is installed and did not answer."""
    for silent in case.all(DaemonSilent):
        name = ENGINES[silent.engine]
        service = next((s for s in case.all(ServiceState) if s.name == silent.engine), None)
        meant = silent.engine == "docker" and service is not None and (service.enabled == "enabled" or service.running)
        severity: Severity = "warning" if silent.timed_out or (meant and not silent.denied) else "info"
        if silent.denied:
            title, why = (
                f"{name} may not be asked by this user",
                "Its socket refused this user: run loadpath as root to see its runtimes.",
            )
        elif silent.engine == "podman" and not silent.timed_out:
            title, why = (
                "`podman info` fails",
                f"Podman starts no container either until that is mended. It says: {silent.text.partition(': ')[2]}",
            )
        elif silent.timed_out:
            title, why = (
                f"{name} does not answer",
                "Its daemon took the question and gave no answer in time: it hangs, or waits for a driver call.",
            )
        else:
            title = f"{name}'s client is here, and no daemon answers it"
            why = "No container can be started with it now." + (
                "" if meant else " If it is not meant to run here, that is no fault."
            )
        yield finding("container-daemon-silent", [silent, *([service] if service else [])], case=case, severity=severity,
                      title=title, cause=why, values={"engine": name, "command": silent.engine})  # fmt: skip


def judge_configuration(case: Case) -> Iterator[Finding]:
    """Configuration files that cannot be read, and toolkit settings that cannot work."""
    for broken in case.all(ConfigBroken):
        yield finding(
            "container-configuration-unreadable", [broken], case=case, values={"path": broken.path, "why": broken.why}
        )
    for setting in case.all(ToolkitSetting):
        key = setting.name.rpartition(".")[2]
        gone = next((p for p in case.all(PathSeen) if not p.exists and p.path == setting.value.lstrip("@")), None)
        if key == "ldconfig" and gone is not None:
            yield finding(
                "toolkit-ldconfig-missing",
                [setting, gone],
                case=case,
                values={"path": gone.path, "file": gone.named_by},
            )
        elif key == "no-cgroups" and setting.value == "true":
            docker = next((r for r in case.all(RuntimesKnown) if r.basis == "docker info"), None)
            if docker is not None and not docker.rootless:
                yield finding("toolkit-no-cgroups", [setting, docker], case=case)


def judge_fragile(case: Case) -> Iterator[Finding]:
    """Docker with systemd's cgroups and NVIDIA's hook: access that a daemon-reload takes away."""
    docker = next((r for r in case.all(RuntimesKnown) if r.basis == "docker info"), None)
    if docker is None or docker.cgroup_driver != "systemd" or "nvidia" not in docker.names or not has_gpu(case):
        return
    by_cdi = any(s.name == "nvidia-container-runtime.mode" and s.value == "cdi" for s in case.all(ToolkitSetting))
    if not by_cdi and version_numbers(docker.engine_version or "") < DOCKER_CDI_FIRST:
        yield finding("container-gpu-access-fragile", [docker], case=case)


def judge_fabric(case: Case) -> Iterator[Finding]:
    """NVSwitches without the service that sets them up."""
    switches = [d for d in case.all(PciDevice) if d.device_id in SWITCHES]
    service = next((s for s in case.all(ServiceState) if s.name == "nvidia-fabricmanager"), None)
    if not switches or inside_container(case) or not case.has(ProgramFound):
        return
    version = loaded_version(case)
    installed = programs(case).get("nv-fabricmanager")
    if installed is not None and installed.version and version and installed.version != version:
        values = {"manager": installed.version, "driver": version}
        yield finding("fabric-manager-version", [installed, *switches[:1]], case=case, values=values, step="unseen")
        return
    if service is not None and (service.running or service.active == "active"):
        return
    exact = f" ({version})" if version else ""
    if service is None:
        how = "It is not installed."
        install = f"sudo apt-get install nvidia-fabricmanager-{version.partition('.')[0]}" if version else None
    else:
        result = f" ({service.result})" if service.result not in (None, "success") else ""
        how = f"Its service is {service.active or 'not running'}{result}."
        install = None
    row_cause = (
        "CUDA starts on an NVSwitch board only after Fabric Manager has set the switches up; until then cuInit gives error 802 "
        "(system not yet initialized), while nvidia-smi lists the cards."
    )
    yield finding(
        "fabric-manager-not-running", [*switches[:2], *([service] if service else [])], case=case,
        values={"switches": len(switches), "install": install},
        cause=f"{how} {row_cause} Its version has to equal the driver's exactly{exact}.",
    )  # fmt: skip


def judge_plugin(case: Case) -> Iterator[Finding]:
    """What NVIDIA's device plugin registered with this node's kubelet."""
    sockets = case.last(PluginSockets)
    registered = [p for p in case.all(PluginRegistered) if p.resource.startswith("nvidia.com/")]
    if sockets is None or not has_gpu(case):
        return
    if not registered and not any("nvidia" in name for name in sockets.names):
        yield finding("device-plugin-missing", [sockets], case=case)
    for plugin in registered:
        if not plugin.devices and plugin.resource == "nvidia.com/gpu" and not any(p.devices for p in registered):
            yield finding(
                "device-plugin-without-devices", [plugin, sockets], case=case, values={"resource": plugin.resource}
            )


def judge_capabilities(case: Case) -> Iterator[Finding]:
    """Inside a container: a part of the driver that was left out on request."""
    asked = next((v for v in reversed(case.all(EnvironmentVariable)) if v.name == "NVIDIA_DRIVER_CAPABILITIES"), None)
    if asked is None or not inside_container(case):
        return
    words = {word.strip() for word in asked.value.split(",")}
    libraries = case.all(DriverLibrary)
    absent = {x.soname for x in libraries if x.path is None} - {x.soname for x in libraries if x.path}
    for soname, capability, brings in (
        ("libnvidia-ml.so.1", "utility", "NVML and nvidia-smi"), ("libcuda.so.1", "compute", "libcuda, which all CUDA programs need"),
    ):  # fmt: skip
        if capability in words or "all" in words or soname not in absent:
            continue
        cause = (
            f"NVIDIA_DRIVER_CAPABILITIES is `{asked.value}`, without `{capability}`, which brings {brings}; {soname} is not in this "
            "container. The driver and the container's devices are not at fault."
        )
        shown = [x for x in libraries if x.soname == soname][:1]
        yield finding("driver-capability-missing", [asked, *shown], case=case, cause=cause, certainty="established")
        return


RULES = (
    Rule(judge_paths, (CdiSpec, PathSeen), ("cdi-spec-paths-missing",), uses=(RuntimesKnown, ProgramFound)),
    Rule(judge_conflict, (CdiSpec,), ("cdi-specs-conflict",)),
    Rule(judge_binary, (RuntimeBinary,), ("container-runtime-program-gone",), uses=(PathSeen, ProgramFound)),
    Rule(judge_toolkit, (ProgramFound,), ("container-toolkit-not-installed",), uses=(PciDevice,)),
    Rule(judge_silent, (DaemonSilent,), ("container-daemon-silent",)),
    Rule(judge_configuration, (), ("container-configuration-unreadable", "toolkit-ldconfig-missing", "toolkit-no-cgroups"),
         uses=(ConfigBroken, ToolkitSetting)),
    Rule(judge_fragile, (RuntimesKnown,), ("container-gpu-access-fragile",)),
    Rule(judge_fabric, (PciDevice, ProgramFound), ("fabric-manager-not-running", "fabric-manager-version"), uses=(ServiceState,)),
    Rule(judge_plugin, (PluginSockets,), ("device-plugin-missing", "device-plugin-without-devices")),
    Rule(judge_capabilities, (EnvironmentVariable, DriverLibrary), ("driver-capability-missing",)),
)  # fmt: skip
