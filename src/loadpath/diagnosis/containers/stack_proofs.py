"""What proves the container runtime, the engine and the host's limits of a checked machine; what would show them."""

from __future__ import annotations

from loadpath.core.case import Case
from loadpath.core.facts.container import CdiSpec, RuntimesKnown
from loadpath.core.facts.gpu import DeviceNode
from loadpath.core.facts.host import FilesystemUse, HostMemory, ResourceLimit
from loadpath.core.facts.machine import DriverLibrary, Whereabouts
from loadpath.core.facts.runtime import (
    CgroupLimits,
    DaemonSilent,
    EndpointAsked,
    EngineInstalled,
    EngineProcess,
    HostSetting,
    InsideSeen,
    PathSeen,
    RuntimeBinary,
)
from loadpath.core.layers import Layer
from loadpath.core.units import show_bytes
from loadpath.diagnosis.containers.container_stack import engines, missing_paths, programs
from loadpath.diagnosis.containers.inside import driver_inside, gives_gpu
from loadpath.diagnosis.machine.engines_seen import NAMES
from loadpath.diagnosis.machine.layers import Proof, Seen
from loadpath.diagnosis.machine.module import loaded_version
from loadpath.diagnosis.machine.nodes import inside_container


def container_runtime(case: Case) -> Proof | None:
    if inside_container(case):
        return _injected(case)
    running = loaded_version(case)
    for seen in case.all(InsideSeen):
        if gives_gpu(seen) and (not running or driver_inside(seen) in (None, running)):
            return Proof(f"{seen.place} has the GPU's device files and the driver's libraries", (seen,))
    for spec in case.all(CdiSpec):
        looked = any(p.named_by == spec.path for p in case.all(PathSeen))
        fits = not running or not spec.driver_versions or running in spec.driver_versions
        if (
            (spec.kind or "").startswith("nvidia.com/")
            and spec.devices
            and looked
            and fits
            and not missing_paths(case, spec)
        ):
            count = len(spec.device_nodes) + len(spec.mounts) + len(spec.hooks)
            made = f", made for the loaded driver {running}" if running and running in spec.driver_versions else ""
            return Proof(
                f"{spec.path} defines {len(spec.devices)} devices and all its {count} host paths exist{made}", (spec,)
            )
    there = {p.path for p in case.all(PathSeen) if p.exists}
    for runtime in case.all(RuntimeBinary):
        if "nvidia" in runtime.name and runtime.binary in there:
            return Proof(f"{runtime.engine} has the runtime `{runtime.name}`, and its program is there", (runtime,))
    for known in case.all(RuntimesKnown):
        if known.basis == "docker info" and "nvidia" in known.names and "nvidia-container-runtime" in programs(case):
            return Proof("Docker runs and lists the runtime nvidia, whose program is installed", (known,))
    return None


def _injected(case: Case) -> Proof | None:
    """Inside a container: the driver's files were put in."""
    nodes = [n for n in case.all(DeviceNode) if not n.missing and n.path.removeprefix("/dev/nvidia").isdigit()]
    library = next((x for x in case.all(DriverLibrary) if x.soname == "libcuda.so.1" and x.path and not x.stub), None)
    if not nodes or library is None:
        return None
    return Proof(
        f"this container was given {len(nodes)} GPU file{'s' if len(nodes) > 1 else ''} and {library.path}",
        (nodes[0], library),
    )


def container_runtime_missing(case: Case) -> str:
    if inside_container(case):
        return "the runtime is outside this container: run loadpath on the host"
    if not engines(case):
        return "no container engine is installed here"
    silent = case.first(DaemonSilent)
    if silent is not None and silent.denied:
        return f"{silent.engine} may not be asked by this user: run as root, or docker info"
    if silent is not None:
        return f"no daemon of {silent.engine} answers, and no configuration names NVIDIA's runtime: docker info"
    return "no NVIDIA runtime and no CDI specification: nvidia-ctk cdi list; docker info | grep -iE 'runtimes|cdi'"


def engine(case: Case) -> Proof | None:
    for asked in case.all(EndpointAsked):
        process = next((p for p in case.all(EngineProcess) if p.pid == asked.pid), None)
        if asked.status is not None and asked.status < 400 and process is not None:
            return Proof(
                f"{NAMES.get(asked.engine, asked.engine)} answers {asked.status} on port {process.port}",
                (asked, process),
            )
    return None


def engine_missing(case: Case) -> str:
    if running := case.first(EngineProcess):
        return f"{NAMES.get(running.engine, running.engine)} runs and was not seen to serve: curl -m 5 http://127.0.0.1:PORT/health"
    if case.has(EngineInstalled):
        names = dict.fromkeys(NAMES.get(e.engine, e.engine) for e in case.all(EngineInstalled))
        return f"{', '.join(names)} installed, none runs: start one, then check again"
    where = case.first(Whereabouts)
    more = "" if where is not None and where.user == "root" else " (as root, more processes are seen)"
    return f"no engine runs and none was found installed{more}"


def host(case: Case) -> Proof | None:
    memory = next((m for m in case.all(HostMemory) if m.available_bytes is not None and m.total_bytes), None)
    if memory is None or memory.available_bytes is None or memory.total_bytes is None:
        return None
    parts = [f"{show_bytes(memory.available_bytes)} of {show_bytes(memory.total_bytes)} RAM available"]
    cache = next((s.value for s in case.all(HostSetting) if s.name == "memory.page-cache"), "")
    if cache.isdigit():
        parts.append(f"page cache {show_bytes(int(cache))}")
    shm = next((f for f in case.all(FilesystemUse) if f.mount == "/dev/shm"), None)
    if shm is not None:
        parts.append(f"/dev/shm {show_bytes(shm.size_bytes)}")
    locked = next((x for x in reversed(case.all(ResourceLimit)) if x.name == "memlock"), None)
    if locked is not None:
        parts.append(f"memlock {'unlimited' if locked.value is None else show_bytes(locked.value)}")
    group = case.last(CgroupLimits)
    if group is not None and group.memory_bytes:
        parts.append(f"limit of the control group {show_bytes(group.memory_bytes)}")
    return Proof(", ".join(parts), (memory, *([shm] if shm else [])))


def host_missing(case: Case) -> str:
    return "free -g; df -h /dev/shm; ulimit -a"


PROOFS: dict[Layer, Seen] = {
    "container-runtime": Seen(container_runtime, container_runtime_missing),
    "engine": Seen(engine, engine_missing),
    "host": Seen(host, host_missing),
}
