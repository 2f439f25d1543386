"""Compose files: each service's GPU reservation, shared memory, limits, environment and command.

services:
  vllm:
    image: vllm/vllm-openai:latest
    command: --model org/m --max-model-len 8192
    shm_size: 16gb
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from loadpath.core.facts.base import Fact, at
from loadpath.core.facts.engine import Setting
from loadpath.core.text import Capture, Line
from loadpath.readers.command_flags import engine_of_image, inside, words_of
from loadpath.readers.documents import Broken, mappings, parse_yaml, texts, yaml_extent

_BEGINS = re.compile(r"^(?:version:\s*['\"]?[\d.]+['\"]?|services:)\s*$")
_TOP = frozenset(("version", "name", "services", "networks", "volumes", "configs", "secrets", "include"))
# Keys of a service that say the same as an option of docker run.
_OPTIONS = {"shm_size": "shm-size", "ipc": "ipc", "runtime": "runtime", "mem_limit": "memory", "gpus": "gpus", "privileged": "privileged",
            "pids_limit": "pids-limit", "network_mode": "network"}  # fmt: skip
# A service by itself, without the `services:` above it, is known by keys that no Kubernetes container has.
_IMAGE = re.compile(r"^(?P<indent>\s*)image:\s*\S")
_OWN_KEYS = re.compile(
    r"^\s*(?:container_name|deploy|shm_size|restart|ipc|runtime|gpus|extra_hosts|depends_on|mem_limit):"
)
LOOK_AHEAD = 8


def extent(lines: Sequence[Line], i: int) -> int:
    if found := _IMAGE.match(lines[i].text):
        return _service_extent(lines, i, len(found["indent"]))
    if not _BEGINS.match(lines[i].text):
        return i
    if not any(line.text.startswith("services:") for line in lines[i : i + LOOK_AHEAD]):
        return i
    return yaml_extent(lines, i, _TOP)


def _service_extent(lines: Sequence[Line], i: int, indent: int) -> int:
    end = i
    while end < len(lines) and lines[end].text and len(lines[end].text) - len(lines[end].text.lstrip()) >= indent:
        if not lines[end].text.startswith(" ") and not re.match(r"^[a-z_]+:(?:\s|$)", lines[end].text):
            break
        end += 1
    return end if any(_OWN_KEYS.match(line.text) for line in lines[i:end]) else i


def read(capture: Capture) -> Iterator[Fact]:
    try:
        documents = parse_yaml("\n".join(line.text for line in capture.lines))
    except Broken:
        return
    where = at(capture, capture.lines[0], capture.lines[-1])
    for document in documents:
        if isinstance(document, dict) and "services" not in document:
            yield from _service(where, str(document.get("container_name") or "shown"), document)
            continue
        services = document.get("services") if isinstance(document, dict) else None
        for name, service in services.items() if isinstance(services, dict) else ():
            if isinstance(service, dict):
                yield from _service(where, str(name), service)


def _service(where: dict[str, Any], name: str, service: dict[str, Any]) -> Iterator[Setting]:
    image = str(service.get("image") or "")
    engine = engine_of_image(image)
    words = [*_words(service.get("entrypoint")), *_words(service.get("command"))]
    gpus = _gpus(service)
    if engine is None and not gpus and not words:
        return
    yield Setting(**where, name="docker:run", value=f"compose service {name}", basis="command")
    if image:
        yield Setting(**where, name="docker:image", value=image, basis="command")
    if gpus:
        yield Setting(**where, name="docker:gpus", value=gpus, basis="command")
    for key, option in _OPTIONS.items():
        if isinstance(service.get(key), str | int):
            yield Setting(**where, name=f"docker:{option}", value=str(service[key]), basis="command")
    for volume in _volumes(service.get("volumes")):
        yield Setting(**where, name="docker:volume", value=volume, basis="command")
    for variable, value in _environment(service.get("environment")):
        yield Setting(**where, name=variable, value=value, basis="environment")
    for found in inside(engine, words):
        yield Setting(**where, name=found.name, value=found.value, basis=found.basis, engine=found.engine)


def _gpus(service: dict[str, Any]) -> str | None:
    """What the service reserves: the count or the ids, `all` where neither is said."""
    for device in mappings(service.get("deploy")):
        if "gpu" in texts(device.get("capabilities")) or device.get("driver") == "nvidia":
            ids = ",".join(texts(device.get("device_ids")))
            return f"device={ids}" if ids else str(device.get("count") or "all")
    devices = texts(service.get("devices"))
    return next((d for d in devices if "nvidia" in d), None)


def _volumes(value: Any) -> Iterator[str]:
    """`source:target` of each mount, written short or long."""
    for volume in value if isinstance(value, list) else ():
        if isinstance(volume, str) and ":" in volume:
            yield volume
        elif isinstance(volume, dict) and volume.get("source") and volume.get("target"):
            yield f"{volume['source']}:{volume['target']}"


def _words(value: Any) -> list[str]:
    return words_of(value) if isinstance(value, str) else texts(value)


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    pairs = value.items() if isinstance(value, dict) else (str(item).partition("=")[::2] for item in texts(value))
    for name, given in pairs:
        if given not in (None, ""):
            secret = re.search(r"TOKEN|SECRET|PASSW|API_?KEY", str(name), re.IGNORECASE)
            yield str(name), "***" if secret else str(given)
