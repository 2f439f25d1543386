"""Kubernetes objects in YAML or JSON: what the pod's containers are given, their probes, and how they ended.

apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      runtimeClassName: nvidia
      containers: [{name: vllm, args: [--model, org/m], resources: {limits: {nvidia.com/gpu: 1}}}]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.container import ContainerState, Probe, ProbeConfigured
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture, Line
from loadpath.readers.command_flags import engine_of_image, inside
from loadpath.readers.documents import Broken, json_extent, mappings, parse_json, parse_yaml, texts, yaml_extent

_BEGINS = re.compile(
    r"""^\s*(?:---\s*)?(?P<json>\{?\s*")?(?:apiVersion"?\s*:|(?:kind)"?\s*:\s*"?(?:Pod|Deployment|StatefulSet|DaemonSet|Job|LeaderWorkerSet|InferenceService))"""
)
_FRAGMENT = re.compile(
    r"^\s*(?:- )?(?:containers|livenessProbe|startupProbe|readinessProbe|resources|volumeMounts|template):\s*$"
)
_TOP = frozenset(
    """
    apiVersion kind metadata spec status data items template containers initContainers volumes volumeMounts resources
    livenessProbe startupProbe readinessProbe env args command image name ports securityContext nodeSelector tolerations
    affinity runtimeClassName replicas selector strategy hostIPC handler type
    """.split()  # noqa: SIM905
)
_PROBES: tuple[tuple[str, Probe], ...] = (
    ("livenessProbe", "liveness"), ("startupProbe", "startup"), ("readinessProbe", "readiness"),
)  # fmt: skip
SHM = "/dev/shm"


def extent(lines: Sequence[Line], i: int) -> int:
    begins = _BEGINS.match(lines[i].text)
    if begins is not None:
        if begins["json"]:
            return json_extent(lines, i, 0 if lines[i].text.lstrip().startswith("{") else 1)
        return yaml_extent(lines, i, _TOP)
    if not _FRAGMENT.match(lines[i].text):
        return i
    end = yaml_extent(lines, i, _TOP)
    return end if end - i >= 3 else i


def read(capture: Capture) -> Iterator[Fact]:
    text = "\n".join(line.text for line in capture.lines)
    where = at(capture, capture.lines[0], capture.lines[-1])
    try:
        documents = [parse_json(text)] if text.lstrip().startswith(("{", '"')) else parse_yaml(text)
    except Broken:
        return
    for document in documents:
        yield from _document(where, document)


def _document(where: dict[str, Any], document: Any) -> Iterator[Fact]:
    seen: set[int] = set()
    for mapping in mappings(document):
        if isinstance(mapping.get("runtimeClassName"), str):
            yield _setting(where, "runtime-class", mapping["runtimeClassName"])
        if mapping.get("hostIPC") is True:
            yield _setting(where, "host-ipc", "True")
        for container in _list(mapping.get("containers")):
            seen.add(id(container))
            yield from _container(where, container, _list(mapping.get("volumes")))
        for status in _list(mapping.get("containerStatuses")):
            yield from _status(where, status)
        if id(mapping) not in seen and not seen.intersection(map(id, mapping.values())):
            yield from _probes(where, mapping)


def _container(where: dict[str, Any], container: dict[str, Any], volumes: list[dict[str, Any]]) -> Iterator[Fact]:
    image = container.get("image") if isinstance(container.get("image"), str) else ""
    yield _setting(where, "container", str(container.get("name") or image))
    if image:
        yield _setting(where, "image", str(image))
    yield from _resources(where, container.get("resources"))
    yield from _shm(where, container, volumes)
    for source, target in _mounts(container, volumes):
        yield _setting(where, "volume", f"{source}:{target}")
    for variable in _list(container.get("env")):
        if isinstance(variable.get("name"), str) and isinstance(variable.get("value"), str | int):
            secret = re.search(r"TOKEN|SECRET|PASSW|API_?KEY", variable["name"], re.IGNORECASE)
            value = "***" if secret else str(variable["value"])
            yield Setting(**where, name=variable["name"], value=value, basis="environment")
    words = [*texts(container.get("command")), *texts(container.get("args"))]
    for found in inside(engine_of_image(str(image)), words):
        yield Setting(**where, name=found.name, value=found.value, basis=found.basis, engine=found.engine)
    yield from _probes(where, container)


def _resources(where: dict[str, Any], resources: Any) -> Iterator[Setting]:
    for part in ("limits", "requests"):
        asked = resources.get(part) if isinstance(resources, dict) else None
        for what, value in asked.items() if isinstance(asked, dict) else ():
            yield _setting(where, f"{part}.{what}", str(value))


def _mounts(container: dict[str, Any], volumes: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """(folder of the node, folder in the container) of each hostPath mount."""
    for mount in _list(container.get("volumeMounts")):
        volume = next((v for v in volumes if v.get("name") == mount.get("name")), {})
        host = volume.get("hostPath")
        if isinstance(host, dict) and isinstance(host.get("path"), str) and isinstance(mount.get("mountPath"), str):
            yield host["path"], mount["mountPath"]


def _shm(where: dict[str, Any], container: dict[str, Any], volumes: list[dict[str, Any]]) -> Iterator[Setting]:
    for mount in _list(container.get("volumeMounts")):
        if mount.get("mountPath") != SHM:
            continue
        volume = next((v for v in volumes if v.get("name") == mount.get("name")), {})
        folder = volume.get("emptyDir")
        if isinstance(folder, dict) and folder.get("medium") == "Memory":
            yield _setting(where, "shm-size", str(folder.get("sizeLimit") or "half of the node's memory"))
        yield _setting(where, "shm-mounted", "True")


def _probes(where: dict[str, Any], container: dict[str, Any]) -> Iterator[ProbeConfigured]:
    for key, probe in _PROBES:
        asked = container.get(key)
        if not isinstance(asked, dict):
            continue
        http = asked.get("httpGet") if isinstance(asked.get("httpGet"), dict) else asked.get("tcpSocket")
        http = http if isinstance(http, dict) else {}

        def number(name: str, default: float, asked: dict[str, Any] = asked) -> float:
            value = asked.get(name)
            return float(value) if isinstance(value, int | float) else default

        yield ProbeConfigured(
            **where, probe=probe, path=http.get("path") if isinstance(http.get("path"), str) else None,
            port=str(http["port"]) if "port" in http else None, initial_delay_seconds=number("initialDelaySeconds", 0),
            period_seconds=number("periodSeconds", 10), timeout_seconds=number("timeoutSeconds", 1),
            failure_threshold=int(number("failureThreshold", 3)),
        )  # fmt: skip


def _status(where: dict[str, Any], status: dict[str, Any]) -> Iterator[ContainerState]:
    for key, previous in (("lastState", True), ("state", False)):
        states = status.get(key)
        ended = states.get("terminated") if isinstance(states, dict) else None
        waiting = states.get("waiting") if isinstance(states, dict) else None
        if isinstance(ended, dict) and isinstance(ended.get("exitCode"), int):
            reason = ended.get("reason")
            yield ContainerState(
                **where, name=_name(status), state="terminated", previous=previous, exit_code=ended["exitCode"],
                reason=str(reason) if reason else None, oom_killed=True if reason == "OOMKilled" else False if reason == "Error" else None,
                restarts=status.get("restartCount") if isinstance(status.get("restartCount"), int) else None,
            )  # fmt: skip
        elif isinstance(waiting, dict) and waiting.get("reason"):
            yield ContainerState(**where, name=_name(status), state="waiting", reason=str(waiting["reason"]))


def _name(status: dict[str, Any]) -> str | None:
    return str(status["name"]) if status.get("name") else None


def _setting(where: dict[str, Any], name: str, value: str) -> Setting:
    return Setting(**where, name=f"k8s:{name}", value=value, basis="dump")


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
