"""The launch as YAML: a compose file, and a Kubernetes Deployment with its Service; every line carries its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from loadpath.core.units import GIB
from loadpath.launching.gate import SECONDS, WHY, gate_words
from loadpath.launching.spec import Launch, Probes

PERIOD = 10


def compose(made: Launch) -> str:
    """A compose file with one service."""
    return "".join(f"{line}\n" for line in (*_head(made), "services:", f"  {made.name}:", *_compose_service(made)))


def _compose_service(made: Launch) -> Iterator[str]:
    yield _line(4, f"image: {made.image}", "a fixed version: latest changes under you")
    yield _line(
        4, f"entrypoint: {json.dumps(list(made.program))}", "the same start whatever the image's own entry point is"
    )
    yield "    command:"
    for argument in made.arguments:
        yield _line(6, f"- {_scalar(argument.words[0])}", argument.why)
        for word in argument.words[1:]:
            yield f"      - {_scalar(word)}"
    yield _line(4, "restart: unless-stopped", "comes back after a crash or reboot")
    if made.gpus > 1:
        yield _line(4, "ipc: host", "NCCL shares memory between the ranks; Docker's 64 MiB is too little")
        yield "    ulimits:"
        yield _line(6, "memlock: -1", "RDMA and pinned buffers lock memory")
        yield _line(6, "stack: 67108864", "deep stacks of compiler and loader threads")
    else:
        yield _line(
            4, f"shm_size: {made.shm_bytes // GIB}gb", "Docker gives 64 MiB; the engine's queues are in /dev/shm"
        )
    yield "    ports:"
    yield _line(6, f'- "{made.host}:{made.port}:{made.port}"', "host side first: 127.0.0.1 keeps it on this machine")
    yield "    volumes:"
    for mount in made.mounts:
        source = mount.source.replace("$HOME", "${HOME}")
        yield _line(6, f"- {_scalar(source + ':' + mount.target + (':ro' if mount.read_only else ''))}", mount.why)
    yield "    environment:"
    for variable in made.environment:
        value = f"${{{variable.name}:-}}" if variable.secret else variable.value
        yield _line(6, f"{variable.name}: {json.dumps(value)}", variable.why)
    yield from _compose_gpus(made)
    if made.probes:
        yield from _compose_health(made, made.probes)


def _compose_gpus(made: Launch) -> Iterator[str]:
    yield from ("    deploy:", "      resources:", "        reservations:", "          devices:")
    if made.cdi:
        names = [f"nvidia.com/gpu={d}" for d in made.devices] or ["nvidia.com/gpu=all"]
        yield _line(12, "- driver: cdi", "devices of /etc/cdi/nvidia.yaml; needs Docker 28.2 or newer")
        yield f"              device_ids: {json.dumps(names)}"
    else:
        yield _line(12, "- driver: nvidia", "needs the NVIDIA container toolkit")
        chosen = f"device_ids: {json.dumps([str(d) for d in made.devices])}" if made.devices else f"count: {made.gpus}"
        yield _line(14, chosen, "the cards; compose refuses count and device_ids together")
    yield "              capabilities: [gpu]"


def _compose_health(made: Launch, probes: Probes) -> Iterator[str]:
    url = f"http://127.0.0.1:{made.port}{probes.path}"
    test = ["CMD", *gate_words(made)] if probes.generates else ["CMD-SHELL", f"curl -sf {url} || exit 1"]
    yield _line(4, "healthcheck:", f"{WHY}; {probes.why}" if probes.generates else probes.why)
    yield f"      test: {json.dumps(test)}"
    yield _line(6, f"start_period: {probes.start_seconds}s", "failures in this time do not count")
    yield f"      interval: {PERIOD}s"
    yield f"      timeout: {SECONDS if probes.generates else 5}s"
    yield "      retries: 3"


def kubernetes(made: Launch) -> str:
    """A Deployment and a Service, in one file."""
    lines = [*_head(made), *_deployment(made), "---", *_service(made)]
    return "".join(f"{line}\n" for line in lines)


def _deployment(made: Launch) -> Iterator[str]:
    yield from ("apiVersion: apps/v1", "kind: Deployment", "metadata:", f"  name: {made.name}", "spec:")
    yield _line(2, "replicas: 1", "each replica takes its own cards")
    yield _line(
        2, f"progressDeadlineSeconds: {_start(made) + 300}", "longer than the start, or the rollout is called failed"
    )
    yield from ("  strategy:",)
    yield _line(4, "type: Recreate", "a rolling update would need the cards twice")
    yield from ("  selector:", "    matchLabels:", f"      app: {made.name}", "  template:", "    metadata:", "      labels:",
                f"        app: {made.name}", "    spec:")  # fmt: skip
    if made.runtime_class:
        yield _line(6, f"runtimeClassName: {made.runtime_class}", "the runtime that injects driver and devices")
    yield _line(6, "terminationGracePeriodSeconds: 60", "requests in flight may end")
    yield "      containers:"
    yield from _container(made)
    yield "      volumes:"
    yield _line(8, "- name: shm", "/dev/shm is 64 MiB otherwise; counts against the memory limit")
    yield f"          emptyDir: {{medium: Memory, sizeLimit: {made.shm_bytes // GIB}Gi}}"
    for number, mount in enumerate(made.mounts):
        yield f"        - name: {_volume_name(number)}"
        source = mount.source.replace("$HOME", "/var/lib/loadpath")
        kind = "File" if mount.source.endswith(".gguf") else "Directory" if mount.read_only else "DirectoryOrCreate"
        yield _line(
            10,
            f"hostPath: {{path: {_scalar(source)}, type: {kind}}}",
            f"{mount.why}; a PersistentVolumeClaim in a fleet",
        )


def _container(made: Launch) -> Iterator[str]:
    yield f"        - name: {made.engine.replace('.', '-')}"
    yield _line(10, f"image: {made.image}", "a fixed version: latest changes under you")
    yield _line(
        10, f"command: {json.dumps(list(made.program))}", "the same start whatever the image's own entry point is"
    )
    yield "          args:"
    for argument in made.arguments:
        yield _line(12, f"- {_scalar(argument.words[0])}", argument.why)
        for word in argument.words[1:]:
            yield f"            - {_scalar(word)}"
    yield from ("          ports:", f"            - {{name: http, containerPort: {made.port}}}", "          env:")
    for variable in made.environment:
        yield f"            - name: {variable.name}"
        if variable.secret:
            key = f"{{secretKeyRef: {{name: {made.name}, key: {variable.name}, optional: true}}}}"
            yield _line(14, f"valueFrom: {key}", "from a Secret; the pod starts without it")
        else:
            yield _line(14, f"value: {json.dumps(variable.value)}", variable.why)
    yield from ("          resources:", "            limits:")
    yield _line(14, f"nvidia.com/gpu: {made.gpus}", "whole cards; requests equal limits for devices")
    memory = math.ceil((made.memory_bytes + made.shm_bytes) / GIB) * 2
    yield _line(
        14,
        f"memory: {memory}Gi",
        "host side only: process, pinned buffers, /dev/shm; too little ends in OOMKilled (137)",
    )
    yield from (
        "            requests:",
        f"              nvidia.com/gpu: {made.gpus}",
        f"              memory: {memory // 2}Gi",
        "              cpu: 4",
    )
    if made.probes:
        yield from _probes(made, made.probes)
    yield from ("          volumeMounts:", "            - {name: shm, mountPath: /dev/shm}")
    for number, mount in enumerate(made.mounts):
        read_only = ", readOnly: true" if mount.read_only else ""
        yield f"            - {{name: {_volume_name(number)}, mountPath: {_scalar(mount.target)}{read_only}}}"


def _probes(made: Launch, probes: Probes) -> Iterator[str]:
    get = f"httpGet: {{path: {probes.path}, port: http}}"
    asked = f"exec: {{command: {json.dumps(gate_words(made))}}}" if probes.generates else get
    failures = math.ceil(probes.start_seconds / PERIOD)
    yield _line(10, "startupProbe:", f"{WHY}; {probes.why}" if probes.generates else probes.why)
    yield f"            {asked}"
    yield f"            periodSeconds: {PERIOD}"
    if probes.generates:
        yield _line(12, f"timeoutSeconds: {SECONDS}", "a first generation takes seconds; the default is 1 s")
    yield _line(12, f"failureThreshold: {failures}", f"{failures * PERIOD} s before the start is given up")
    yield _line(10, "readinessProbe:", "takes it out of the Service while it does not answer")
    yield from (
        f"            {asked}",
        f"            periodSeconds: {PERIOD}",
        f"            timeoutSeconds: {SECONDS if probes.generates else 5}",
        "            failureThreshold: 3",
    )
    yield _line(10, "livenessProbe:", "restarts a dead server; slow to act, for a restart costs a whole start")
    yield from (
        f"            {get}",
        "            periodSeconds: 30",
        "            timeoutSeconds: 10",
        "            failureThreshold: 6",
    )


def _service(made: Launch) -> Iterator[str]:
    yield from ("apiVersion: v1", "kind: Service", "metadata:", f"  name: {made.name}", "spec:", "  selector:",
                f"    app: {made.name}", "  ports:", f"    - {{name: http, port: {made.port}, targetPort: http}}")  # fmt: skip


def _start(made: Launch) -> int:
    return made.probes.start_seconds if made.probes else 600


def _volume_name(number: int) -> str:
    return "model" if number == 0 else f"data-{number}"


def _head(made: Launch) -> list[str]:
    return [f"# {line}" for line in made.header]


def _line(indent: int, text: str, why: str) -> str:
    return f"{' ' * indent}{text}  # {why}" if why else f"{' ' * indent}{text}"


def _scalar(word: str) -> str:
    """A YAML scalar: quoted unless it is plainly a word."""
    plain = word.replace("-", "").replace("_", "").replace("/", "").replace(".", "").isalnum()
    return (
        word
        if plain and not word[0].isdigit() and word.lower() not in ("true", "false", "null", "yes", "no", "on", "off")
        else json.dumps(word)
    )
