"""The launch as a systemd unit around the bare command, and as a podman quadlet."""

from __future__ import annotations

import shlex

from loadpath.core.units import GIB
from loadpath.launching.spec import Launch

DESCRIPTION = "Description"
RESTART = "not on-failure: vLLM exits with 0 after its engine was killed"


def quadlet(made: Launch) -> str:
    """A `.container` file of podman 4.4 or newer (~/.config/containers/systemd/)."""
    devices = [f"nvidia.com/gpu={d}" for d in made.devices] or ["nvidia.com/gpu=all"]
    rows: list[tuple[str, str]] = [
        ("[Unit]", ""),
        (f"{DESCRIPTION}={made.header[0]}", ""),
        ("After=network-online.target", ""),
        ("", ""),
        ("[Container]", ""),
        (f"ContainerName={made.name}", ""),
        (f"Image={made.image}", "a fixed version"),
        (f"Entrypoint={made.program[0]}", "the same start whatever the image's own entry point is"),
        (f"Exec={shlex.join(made.words[1:])}", "the engine's own flags"),
        *((f"AddDevice={name}", "by CDI: nvidia-ctk cdi list has the names") for name in devices),
        *([("PodmanArgs=--ipc=host", "NCCL shares memory between the ranks")] if made.gpus > 1
          else [(f"ShmSize={made.shm_bytes // GIB}g", "podman gives 64 MiB; the engine's queues are in /dev/shm")]),
        *([("Ulimit=memlock=-1:-1", "RDMA and pinned buffers lock memory")] if made.gpus > 1 else []),
        (f"PublishPort={made.host}:{made.port}:{made.port}", "host side first"),
        *((f"Volume={m.source.replace('$HOME', '%h')}:{m.target}{':ro' if m.read_only else ''}", m.why) for m in made.mounts),
        *((f"Environment={v.name}={v.value}", v.why) for v in made.environment if not v.secret),
        *((f"Secret={v.name},type=env", f"{v.why}: podman secret create {v.name} -") for v in made.environment if v.secret),
        ("", ""),
        ("[Service]", ""),
        ("Restart=always", RESTART),
        (f"TimeoutStartSec={made.probes.start_seconds if made.probes else 900}", "pulling the image counts too"),
        ("", ""),
        ("[Install]", ""),
        ("WantedBy=default.target", ""),
    ]  # fmt: skip
    return _written(made, rows)


def systemd(made: Launch) -> str:
    """A `.service` file that runs the bare command."""
    visible = ",".join(str(d) for d in made.devices)
    rows: list[tuple[str, str]] = [
        ("[Unit]", ""),
        (f"{DESCRIPTION}={made.header[0]}", ""),
        ("After=network-online.target nvidia-persistenced.service", "the driver stays loaded between starts"),
        ("", ""),
        ("[Service]", ""),
        (f"ExecStart=/usr/bin/env {shlex.join(made.words)}", "the engine as found on PATH"),
        *([(f"Environment=CUDA_VISIBLE_DEVICES={visible}", "these cards")] if visible else []),
        *((f"Environment={v.name}={v.value}", v.why) for v in made.environment if not v.secret),
        *((f"EnvironmentFile=-/etc/{made.name}.env", f"{v.name}={v.why}") for v in made.environment if v.secret),
        ("LimitMEMLOCK=infinity", "RDMA and pinned buffers lock memory"),
        ("LimitNOFILE=1048576", "a socket a request, a file a shard"),
        ("Restart=always", RESTART),
        ("RestartSec=30", "a start that fails at once must not spin"),
        ("TimeoutStopSec=60", "requests in flight may end"),
        ("", ""),
        ("[Install]", ""),
        ("WantedBy=multi-user.target", ""),
    ]
    return _written(made, rows)


def command(made: Launch) -> str:
    """The bare command, a flag a line, with the reasons above it."""
    visible = f"CUDA_VISIBLE_DEVICES={','.join(str(d) for d in made.devices)} " if made.devices else ""
    rows = [(" ".join(a.words), a.why) for a in made.arguments]
    width = min(44, max(len(text) for text, _ in rows))
    body = [f"{visible}{shlex.join(made.program)}", *(shlex.join(a.words) for a in made.arguments)]
    head = [
        "#!/bin/sh",
        *(f"# {line}" for line in made.header),
        "#",
        *(f"# {text:<{width}}  {why}" for text, why in rows),
    ]
    return "\n".join([*head, " \\\n  ".join(body), ""])


def _written(made: Launch, rows: list[tuple[str, str]]) -> str:
    """Units know comments only on lines of their own: each reason stands above its line."""
    lines = [f"# {line}" for line in made.header]
    for text, why in rows:
        lines += [f"# {why}"] * bool(why) + [text]
    return "\n".join([*lines, ""])
