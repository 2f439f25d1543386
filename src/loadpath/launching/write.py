"""A launch, spelled: by the kind's name."""

from __future__ import annotations

from loadpath.launching.containers import docker_run
from loadpath.launching.manifests import compose, kubernetes
from loadpath.launching.spec import Launch
from loadpath.launching.units import command, quadlet, systemd


def written(made: Launch, kind: str) -> str:
    """The text of a file that starts it. Raises ValueError for a kind that does not suit its purpose."""
    if made.purpose == "train" and kind not in ("docker", "podman", "command"):
        raise ValueError(f"--as {kind} is for servers; a training run is started as docker, podman or command")
    match kind:
        case "docker" | "podman":
            return docker_run(made, kind)
        case "compose":
            return compose(made)
        case "kubernetes":
            return kubernetes(made)
        case "quadlet":
            return quadlet(made)
        case "systemd":
            return systemd(made)
        case "command":
            return command(made)
    raise ValueError(f"--as {kind}: not one of docker, podman, compose, kubernetes, quadlet, systemd, command")
