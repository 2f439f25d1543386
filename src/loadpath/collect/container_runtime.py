"""Layer 5, the container runtime: what engines and NVIDIA tools are installed, how they are configured, which CDI
specifications there are and whether what they name exists, the services beside the driver, the kubelet's plugins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.programs import find_program, process_names
from loadpath.collect.records import record
from loadpath.collect.windows import keep
from loadpath.core.facts.runtime import (
    DaemonSilent,
    PathSeen,
    PluginRegistered,
    PluginSockets,
    ProgramFound,
    ServiceState,
)

_VERSIONED = (
    "docker",
    "podman",
    "containerd",
    "crio",
    "runc",
    "crun",
    "nvidia-ctk",
    "nvidia-container-cli",
    "nv-fabricmanager",
)
_OTHERS = ("dockerd", "nerdctl", "crictl", "kubelet", "nvidia-container-runtime", "nvidia-container-runtime-hook",
           "nvidia-cdi-hook", "nvidia-persistenced")  # fmt: skip
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[-~+.][\w.]+)?")
_TOML = ("/etc/containerd/config.toml", "/etc/containerd/conf.d", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d",
         "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
         "/var/snap/microk8s/current/args/containerd.toml", "/etc/k0s/containerd.toml")  # fmt: skip
_DAEMON_JSON = "/etc/docker/daemon.json"
_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# Values of the keys of a specification that name something on the host. A device node's `path` is the host's too,
# where it has no `hostPath`.
_CDI_PATHS = re.compile(r"""["']?\b(?P<key>hostPath|path)["']?\s*:\s*["']?(?P<path>/[^\s"',}\]]+)""")
_BINARY = re.compile(r"""(?:BinaryName|runtime_path|"path"|ociRuntime[^\n]*)\s*[=:]\s*["']?(?P<path>/[^\s"',]+)""")
_LDCONFIG = re.compile(r"""(?m)^\s*ldconfig\s*=\s*"@?(?P<path>/[^"]+)""")
_SERVICES = {
    "nvidia-persistenced": "nvidia-persistenced", "nvidia-fabricmanager": "nv-fabricmanager", "nvidia-cdi-refresh": "",
    "docker": "dockerd", "containerd": "containerd", "crio": "crio", "kubelet": "kubelet", "nvidia-dcgm": "nv-hostengine",
}  # fmt: skip
_SILENT = re.compile(r"(?i)cannot connect to the docker daemon|permission denied|error: |is the docker daemon running")
_PLUGINS = "/var/lib/kubelet/device-plugins"
MOST_PATHS = 400
MOST_LOG = 900_000


def gather_tools(machine: Machine) -> Iterator[Sample]:
    lines, asked = [], []
    for name in (*_VERSIONED, *_OTHERS):
        path = find_program(machine, name)
        version = None
        if path and name in _VERSIONED:
            asked.append(f"{name} --version")
            said = machine.run([path, "--version"], min(machine.timeout_s, 5.0)).data.decode("utf-8", "replace")
            found = _VERSION.search(said)
            version = found[0] if found else None
        if path or name.startswith("nvidia-"):
            text = f"{name}: {path}{f', version {version}' if version else ''}" if path else f"{name}: not installed"
            lines.append(record(ProgramFound, text=text, name=name, path=path, version=version))
    command = "; ".join(["which docker podman containerd crio nvidia-ctk nvidia-container-runtime …", *asked])
    told = machine.told(lines, name="container-tools", kind="container-stack", command=command)
    yield msgspec.structs.replace(told, status=0 if asked and machine.live else None)


def gather_engines(machine: Machine) -> Iterator[Sample]:
    """What Docker and Podman say of themselves, where they are installed."""
    for name in ("docker", "podman"):
        path = find_program(machine, name)
        if path is None:
            continue
        said = machine.run([path, "info"], name=f"{name}-info", kind=f"{name}-info")
        text = said.data.decode("utf-8", "replace")
        answered = said.outcome == "ok" and ("Server Version:" in text or not _SILENT.search(text))
        if answered or said.outcome == "not-run":
            yield said
            continue
        # Not running is no fault of an engine that nobody uses: its words are a record here, no error of a start.
        words = next((line.strip() for line in text.splitlines() if _SILENT.search(line)), said.note or said.outcome)
        denied = "permission denied" in text.lower()
        late = said.outcome == "timed-out"
        line = record(DaemonSilent, text=f"{name} info: {words}", engine=name, denied=denied, timed_out=late)
        yield msgspec.structs.replace(said, kind="container-stack", data=f"{line}\n".encode())


def gather_configuration(machine: Machine) -> Iterator[Sample]:
    named: list[tuple[str, str]] = []
    home = machine.environ.get("HOME", "")
    for path in filter(None, (_DAEMON_JSON, home and f"{home}/.config/docker/daemon.json")):
        yield from _shown(machine, path, "daemon-json", f"$ cat {path}", named, _BINARY)
    for path in _files(machine, _TOML, ".toml", ".conf"):
        yield from _shown(machine, path, "runtime-toml", f"# {path}", named, _BINARY)
    yield from _shown(machine, _TOOLKIT, "toolkit-config", f"# {_TOOLKIT}", named, _LDCONFIG)
    for path in _files(machine, _CDI_FOLDERS, ".yaml", ".json", ".yml"):
        yield from _shown(machine, path, "cdi-spec", f"$ cat {path}", named, _CDI_PATHS)
    if named:
        yield machine.told(_looked_at(machine, named), name="named-paths", kind="container-stack",
                           command=f"ls -l {' '.join(path for path, _ in named[:4])} …")  # fmt: skip


def _files(machine: Machine, places: Iterable[str], *endings: str) -> Iterator[str]:
    """The files among `places`, and those in the folders among them."""
    for place in places:
        inside = [f"{place}/{name}" for name in machine.listdir(place) if name.endswith(endings)]
        yield from inside or ([place] if place.endswith(endings) and machine.exists(place) else [])


def _shown(
    machine: Machine, path: str, kind: str, title: str, named: list[tuple[str, str]], names: re.Pattern[str]
) -> Iterator[Sample]:
    """One configuration file under its name, where it is there; the paths that it names go to `named`."""
    if not machine.exists(path):
        return
    slug = re.sub(r"[^\w.]+", "-", path.strip("/"))
    sample = machine.cat(path, name=f"file-{slug}", kind=kind)
    if not sample.data:
        yield sample
        return
    text = sample.data.decode("utf-8", "replace")
    named += dict.fromkeys((found["path"], path) for found in names.finditer(text))
    yield machine.told([title, *text.splitlines()], name=sample.name, kind=kind, command=sample.command)


def _looked_at(machine: Machine, named: list[tuple[str, str]]) -> Iterator[str]:
    for path, by in named[:MOST_PATHS]:
        there = machine.exists(path)
        text = f"{path}: {'there' if there else 'not there'} (named by {by})"
        yield record(PathSeen, text=text, path=path, exists=there, named_by=by)


def gather_services(machine: Machine) -> Iterator[Sample]:
    """Services by systemd where it answers, and by their processes."""
    told: dict[str, dict[str, str]] = {}
    command = "cat /proc/*/comm"
    if find_program(machine, "systemctl") and machine.exists("/run/systemd/system"):
        asked = ["systemctl", "show", "--no-pager", "-p", "Id,LoadState,ActiveState,UnitFileState,Result",
                 *(f"{name}.service" for name in _SERVICES)]  # fmt: skip
        said = machine.run(asked)
        command = f"{' '.join(asked)}; {command}"
        told = _units(said.data.decode("utf-8", "replace"))
    names = process_names(machine)
    lines = []
    for service, process in _SERVICES.items():
        unit = told.get(service, {})
        running = bool(process) and process[:15] in names
        installed = unit.get("LoadState") == "loaded" or running or bool(process and find_program(machine, process))
        if not installed:
            continue
        active = unit.get("ActiveState") if unit.get("LoadState") == "loaded" else None
        text = f"{service}: {active or 'systemd not asked'}, process {'seen' if running else 'not seen'}"
        lines.append(record(ServiceState, text=text, name=service, active=active, enabled=unit.get("UnitFileState") or None,
                            result=unit.get("Result") or None, running=running, installed=installed))  # fmt: skip
    yield machine.told(lines, name="services", kind="container-stack", command=command)


def _units(text: str) -> dict[str, dict[str, str]]:
    """`systemctl show` of several units: blocks of `Key=value`, a blank line between."""
    units: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if name := fields.get("Id", "").removesuffix(".service"):
            units[name] = fields
    return units


def gather_fabric_log(machine: Machine) -> Iterator[Sample]:
    path = "/var/log/fabricmanager.log"
    if machine.exists(path):
        sample = machine.cat(path, name="fabricmanager-log", kind="log")
        kept = keep([sample.data], MOST_LOG)
        note = f"{kept.left_out_bytes} bytes left out" if kept.left_out_bytes else ""
        yield msgspec.structs.replace(sample, data=kept.data, note=note)


def gather_plugins(machine: Machine) -> Iterator[Sample]:
    """What device plugins registered with this node's kubelet; nothing where there is no kubelet."""
    if not machine.exists(_PLUGINS):
        return
    if machine.why_unread(f"{_PLUGINS}/kubelet_internal_checkpoint") == "denied":
        yield machine.cat(f"{_PLUGINS}/kubelet_internal_checkpoint", name="kubelet-plugins", kind="container-stack")
        return
    sockets = [name for name in machine.listdir(_PLUGINS) if name.endswith(".sock")]
    lines = [record(PluginSockets, text=f"{_PLUGINS}: {', '.join(sockets) or 'no sockets'}", names=sockets)]
    for resource, devices in _registered(machine.text(f"{_PLUGINS}/kubelet_internal_checkpoint") or ""):
        lines.append(
            record(
                PluginRegistered, text=f"{resource}: {devices} devices registered", resource=resource, devices=devices
            )
        )
    yield machine.told(lines, name="kubelet-plugins", kind="container-stack", command=f"ls {_PLUGINS}; "
                       f"cat {_PLUGINS}/kubelet_internal_checkpoint")  # fmt: skip


def _registered(text: str) -> Iterator[tuple[str, int]]:
    try:
        devices = json.loads(text)["Data"]["RegisteredDevices"] or {}
        for resource, ids in devices.items():
            yield str(resource), len(ids or ())
    except (ValueError, KeyError, TypeError, AttributeError):
        return


PROBES = (
    Probe("container-tools", "container-stack", "container-runtime", gather_tools),
    Probe("container-engines", "docker-info", "container-runtime", gather_engines),
    Probe("container-configuration", "cdi-spec", "container-runtime", gather_configuration),
    Probe("services", "container-stack", "container-runtime", gather_services),
    Probe("fabricmanager-log", "log", "container-runtime", gather_fabric_log),
    Probe("kubelet-plugins", "container-stack", "container-runtime", gather_plugins),
)
