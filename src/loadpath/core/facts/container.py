"""Facts about containers, their runtimes and Kubernetes. Sizes in bytes, durations in seconds."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

Probe = Literal["liveness", "readiness", "startup"]


class ContainerState(Fact, frozen=True, kw_only=True):
    """How a container stands or ended, as `docker inspect`, `docker ps` or `kubectl` states it.

    `oom_killed` is None where the source does not say; `previous` marks the state before the last restart.
    Kubernetes' reason (`OOMKilled`, `Error`, `Completed`, `CrashLoopBackOff`, `ContainerCreating`) is kept as printed.
    """

    name: str | None = None
    state: Literal["running", "waiting", "terminated"] = "terminated"
    reason: str | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    error: str | None = None
    restarts: int | None = None
    ran_seconds: float | None = None
    previous: bool = False


class RuntimesKnown(Fact, frozen=True, kw_only=True):
    """The OCI runtimes that a container engine knows, by `docker info` or its configuration file.

    `basis` names the place (`docker info`, `daemon.json`); `cdi` is whether CDI is switched on, None where not said.
    """

    names: tuple[str, ...]
    default: str | None = None
    basis: str = "docker info"
    engine_version: str | None = None
    cgroup_driver: str | None = None
    cgroup_version: int | None = None
    rootless: bool = False
    cdi: bool | None = None
    total_memory_bytes: int | None = None


class CdiSpec(Fact, frozen=True, kw_only=True):
    """One CDI specification: the devices that it names and the host's paths that it wants.

    `driver_versions`: versions in the names of the driver libraries that it mounts (`libcuda.so.550.54.15`).
    `path`: where the file lay, where the paste shows it (`cat /etc/cdi/nvidia.yaml`).
    """

    kind: str | None = None
    version: str | None = None
    devices: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    driver_versions: tuple[str, ...] = ()
    path: str | None = None
    broken: str | None = None
    """Why the text could not be read as a specification; the other fields are then empty."""


class CdiDevicesListed(Fact, frozen=True, kw_only=True):
    """What `nvidia-ctk cdi list` (or `podman info`, `docker info`) found: qualified names, `nvidia.com/gpu=0`."""

    names: tuple[str, ...]


class ContainerCliInfo(Fact, frozen=True, kw_only=True):
    """What `nvidia-container-cli info` prints: the host's driver as the container toolkit sees it."""

    driver_version: str | None = None
    cuda_version: str | None = None
    devices: tuple[tuple[int, str], ...] = ()
    uuids: tuple[str, ...] = ()


class ProbeConfigured(Fact, frozen=True, kw_only=True):
    """A probe of a container, as the manifest or `kubectl describe pod` states it (Kubernetes' defaults filled in)."""

    probe: Probe
    path: str | None = None
    port: str | None = None
    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    failure_threshold: int = 3

    @property
    def patience_seconds(self) -> float:
        """How long after its start a server that does not answer is left alone."""
        return self.initial_delay_seconds + self.period_seconds * self.failure_threshold


class ProbeFailed(Fact, frozen=True, kw_only=True):
    """A probe that failed. `how`: `status` (an HTTP answer ≥ 400), `refused`, `timeout`, `reset`, `exec`, `other`."""

    probe: Probe
    how: Literal["status", "refused", "timeout", "reset", "exec", "other"]
    status: int | None = None
    path: str | None = None
    port: str | None = None
    times: int = 1
    over_seconds: float | None = None


class ProbeKilled(Fact, frozen=True, kw_only=True):
    """The kubelet ended a container because a probe failed."""

    container: str
    probe: Probe
    times: int = 1


class PodListed(Fact, frozen=True, kw_only=True):
    """One row of `kubectl get pods`."""

    name: str
    ready: int
    containers: int
    status: str
    restarts: int = 0


class EventListed(Fact, frozen=True, kw_only=True):
    """One row of a pod's or cluster's events."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str = ""
    about: str | None = None
    """The object, where the table names it (`pod/nvidia-device-plugin-daemonset-abc`)."""
