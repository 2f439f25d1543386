"""Facts about what stands between a machine and its engines: container runtimes as installed, services, limits of the
host, engines found and running. Sizes in bytes, durations in seconds."""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact


class ProgramFound(Fact, frozen=True, kw_only=True):
    """A program of the container stack that was looked for: where it lies (None: nowhere) and what it says of its version."""

    name: str
    path: str | None = None
    version: str | None = None


class PathSeen(Fact, frozen=True, kw_only=True):
    """A path of the host that a configuration names, and whether it is there. `named_by`: that file."""

    path: str
    named_by: str
    exists: bool = False


class RuntimeBinary(Fact, frozen=True, kw_only=True):
    """A runtime that a container engine's configuration registers, and the program that it names for it."""

    engine: str
    name: str
    binary: str
    path: str = ""
    """The configuration file."""


class ConfigBroken(Fact, frozen=True, kw_only=True):
    """A configuration file that cannot be parsed, and where it breaks off."""

    path: str
    why: str


class ToolkitSetting(Fact, frozen=True, kw_only=True):
    """One setting of the NVIDIA Container Toolkit's config.toml, its tables joined by dots."""

    name: str
    value: str


class ServiceState(Fact, frozen=True, kw_only=True):
    """A service of the GPU stack. `active`: systemd's word (`active`, `inactive`, `failed`); None where systemd did not say.

    `running`: whether its process was seen. `installed`: whether there is a unit or a program of that name.
    """

    name: str
    active: str | None = None
    enabled: str | None = None
    result: str | None = None
    running: bool = False
    installed: bool = False


class DaemonSilent(Fact, frozen=True, kw_only=True):
    """A container engine whose program is here and whose daemon did not answer. `denied`: this user may not ask it."""

    engine: str
    denied: bool = False
    timed_out: bool = False


class PluginRegistered(Fact, frozen=True, kw_only=True):
    """A resource that a device plugin registered with this node's kubelet, and how many devices it has."""

    resource: str
    devices: int | None = None


class PluginSockets(Fact, frozen=True, kw_only=True):
    """The sockets in the kubelet's folder of device plugins."""

    names: tuple[str, ...]


class HostSetting(Fact, frozen=True, kw_only=True):
    """One setting or figure of the host, as the kernel states it (`vm.overcommit_memory`, `cpu.governor`)."""

    name: str
    value: str


class HugePages(Fact, frozen=True, kw_only=True):
    """Memory that is set aside for huge pages: nothing else can use it."""

    total: int
    free: int
    page_bytes: int


class CgroupLimits(Fact, frozen=True, kw_only=True):
    """The tightest limits of a control group and those above it. None: unlimited, or not stated.

    `used_bytes` counts page cache too; `cache_bytes` is the part of it that the kernel gives back under pressure.
    `throttled_share`: of the scheduling periods, those in which it had to wait (0..1).
    """

    path: str
    memory_bytes: int | None = None
    used_bytes: int | None = None
    cache_bytes: int | None = None
    swap_bytes: int | None = None
    oom_kills: int | None = None
    cpus: float | None = None
    throttled_share: float | None = None
    pids: int | None = None
    pids_used: int | None = None


class ModelCache(Fact, frozen=True, kw_only=True):
    """A folder that models are downloaded to, and the room on its file system. `named_by`: the variable, or `default`."""

    path: str
    mount: str
    size_bytes: int
    free_bytes: int
    filesystem: str = ""
    named_by: str = "default"


class EngineInstalled(Fact, frozen=True, kw_only=True):
    """An engine that is installed: a Python package (`python`: whose) or a program (`path`)."""

    engine: str
    version: str | None = None
    path: str = ""
    python: str | None = None


class EngineProcess(Fact, frozen=True, kw_only=True):
    """A running engine: its first process, and `family`, the ids of it and all processes that it started.

    `argv`: its command line, secrets masked. `state`: the kernel's letter (`D`: cannot be interrupted, `Z`: ended).
    """

    engine: str
    pid: int
    argv: tuple[str, ...] = ()
    family: tuple[int, ...] = ()
    age_seconds: float | None = None
    ports: tuple[int, ...] = ()
    port: int | None = None
    state: str = ""
    stuck: tuple[int, ...] = ()
    """Those of the family that are in state D."""
    rss_bytes: int | None = None
    container: str | None = None


class EndpointAsked(Fact, frozen=True, kw_only=True):
    """A page of a running engine that was asked for. `status` is None where none came: `error` says why."""

    engine: str
    pid: int
    url: str
    status: int | None = None
    seconds: float = 0.0
    error: Literal["", "refused", "timeout", "reset", "no-http", "other"] = ""


class EngineLog(Fact, frozen=True, kw_only=True):
    """Where a running engine's output goes. `how`: `file`, `journal`, `docker`, `terminal`, `pipe`, `nowhere`, …"""

    engine: str
    pid: int
    how: str
    where: str = ""
    read: bool = False


class InsideSeen(Fact, frozen=True, kw_only=True):
    """What a look into a container, or into one started from an image for it, showed of the GPU's way in.

    `place`: `container NAME` or `image NAME`; `asked`: the options by which GPUs were asked for (of an image's trial).
    `devices`: NVIDIA's device files, each with whether it could be opened. `libraries`: driver libraries, path → the file
    that it leads to. `compat`: forward-compatibility libraries of the image. `smi`: what `nvidia-smi -L` said, if it is there.
    """

    place: str
    tool: str
    asked: str = ""
    devices: dict[str, bool] = {}
    libraries: dict[str, str] = {}
    compat: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    shm_bytes: int | None = None
    memlock_bytes: int | None = None
    memlock_unlimited: bool = False
    open_files: int | None = None
    memory_bytes: int | None = None
    smi: tuple[str, ...] | None = None
    packages: dict[str, str] = {}
    os: str | None = None
