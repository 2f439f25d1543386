"""The launch as one `docker run` (or `podman run`) command, with a reason for each of its lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from loadpath.core.units import GIB
from loadpath.launching.gate import SECONDS, WHY, gate_words
from loadpath.launching.spec import Launch, Probes

Reasoned = tuple[str, str]
"""A line, and why it is there."""


def docker_run(made: Launch, program: str = "docker") -> str:
    """A shell script: the reasons as comments, then the command, a flag a line."""
    lines = [*_options(made), (shlex.quote(made.image), "a fixed version: latest changes under you")]
    words = [_quoted(w) for w in made.words]
    entry = words[0]
    rest = words[1 : len(made.program)]
    arguments = [" ".join(_quoted(word) for word in argument.words) for argument in made.arguments]
    reasons = [*lines[:-1], lines[-1], *zip(arguments, (a.why for a in made.arguments), strict=True)]
    body = [f"{program} run", *(text for text, _ in lines[:-1]), f"--entrypoint {entry}", lines[-1][0]]
    body += ([" ".join(rest)] if rest else []) + arguments
    return "\n".join([*_head(made), *_comments(reasons), _joined(body), ""])


def _options(made: Launch) -> list[Reasoned]:
    serving = made.purpose == "serve"
    lines: list[Reasoned] = [(f"--name {made.name}", "so that logs and stop find it")]
    if serving:
        lines.append(("--detach", "in the background; `docker logs -f` follows it"))
        lines.append(
            ("--restart unless-stopped", "comes back after a crash or reboot, and keeps its log; --rm would delete it")
        )
    else:
        lines.append(("--rm", "a finished run leaves no container; its results are in the mounts"))
    lines += gpu_options(made)
    if serving and made.gpus == 1:
        lines.append(
            (f"--shm-size {made.shm_bytes // GIB}g", "Docker gives 64 MiB; the engine's queues are in /dev/shm")
        )
    else:
        lines.append(
            ("--ipc=host", "NCCL and data loaders share memory between processes; Docker's 64 MiB is too little")
        )
    if not serving or made.gpus > 1:
        lines.append(("--ulimit memlock=-1", "RDMA and pinned buffers lock memory"))
        lines.append(("--ulimit stack=67108864", "deep stacks of compiler and loader threads"))
    if serving:
        lines.append((f"--publish {made.host}:{made.port}:{made.port}", f"reachable from {_reach(made.host)}"))
    if made.probes and made.probes.generates:
        lines += _health(made, made.probes)
    for mount in made.mounts:
        lines.append(
            (
                f"--volume {_volume(mount.source)}:{shlex.quote(mount.target)}{':ro' if mount.read_only else ''}",
                mount.why,
            )
        )
    for variable in made.environment:
        text = variable.name if variable.secret else f"{variable.name}={shlex.quote(variable.value)}"
        lines.append((f"--env {text}", variable.why))
    return lines


def _health(made: Launch, probes: Probes) -> list[Reasoned]:
    return [
        (f"--health-cmd {shlex.quote(shlex.join(gate_words(made)))}", WHY),
        (f"--health-start-period {probes.start_seconds}s", probes.why),
        (f"--health-timeout {SECONDS}s", "a first generation takes seconds"),
    ]


def gpu_options(made: Launch) -> list[Reasoned]:
    """The GPUs: all, a number, or named ones; the inner quotes are Docker's own syntax for a list."""
    if made.cdi:
        names = made.devices or ("all",) if not made.devices else made.devices
        return [
            (f"--device nvidia.com/gpu={name}", "by CDI: /etc/cdi/nvidia.yaml lists it (nvidia-ctk cdi list)")
            for name in names
        ]
    if made.devices:
        listed = ",".join(str(d) for d in made.devices)
        return [(f"""--gpus '"device={listed}"'""", "these cards; without the inner quotes Docker splits at the comma")]
    count = "all" if made.gpus == 0 else str(made.gpus)
    return [(f"--gpus {count}", "so many cards; needs the NVIDIA container toolkit")]


def _reach(host: str) -> str:
    return (
        "this machine only" if host in ("127.0.0.1", "localhost", "::1") else "everywhere: put authentication before it"
    )


def _volume(source: str) -> str:
    """`$HOME` has to be expanded by the shell, everything else must not be."""
    return f'"{source}"' if source.startswith("$") else shlex.quote(source)


def _quoted(word: str) -> str:
    return shlex.quote(word)


def _head(made: Launch) -> list[str]:
    return ["#!/bin/sh", *(f"# {line}" for line in made.header), "#"]


def _comments(lines: Iterable[Reasoned]) -> list[str]:
    rows = [(text, why) for text, why in lines if why]
    width = min(44, max((len(text) for text, _ in rows), default=0))
    return [f"# {text:<{width}}  {why}" for text, why in rows]


def _joined(body: list[str]) -> str:
    return " \\\n  ".join(body)
