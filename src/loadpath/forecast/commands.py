"""From a pasted command, a compose file or a Kubernetes manifest to a request: the same readers as for a log."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from loadpath.core.case import Case
from loadpath.core.facts.engine import EngineStarted, ModelNamed, Setting
from loadpath.engines.registry import flag, known
from loadpath.forecast.request import PlanRefused, Request
from loadpath.readers.command_flags import flags

UNITS = (".service", ".container")
FILES = (".yaml", ".yml", ".sh", *UNITS)
_MODEL = ("model", "model-path", "hf-repo", "model-name", "model-id")
_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "tp-size", "pp-size", "dp-size",
             "tp_size", "pp_size", "tp", "num-shard")  # fmt: skip
_COUNTS = ("docker:gpus", "k8s:limits.nvidia.com/gpu", "k8s:requests.nvidia.com/gpu")
_IMAGE_TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)*)")


def from_text(text: str, source: str) -> Request:
    """The request that a command line, or the text of a file that starts a server, states.

    Raises PlanRefused where it starts none of the engines.
    """
    from loadpath.intake.clean import clean
    from loadpath.reading.service import captures_of, case_of

    case = case_of(captures_of(source, clean(text.encode())), [])
    return from_case(case, source)


def from_file(path: str) -> Request:
    """The request of a compose file, a manifest, a unit or a script. Raises PlanRefused."""
    try:
        text = Path(path).read_text("utf-8", errors="replace")
    except OSError as error:
        raise PlanRefused(f"cannot read {path}: {error.strerror or error}") from error
    return from_text(_unit_command(text) if path.endswith(UNITS) else text, path)


def _unit_command(text: str) -> str:
    """What a systemd unit or a podman quadlet runs, as one command line."""
    lines = text.replace("\\\n", " ").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", ";")))
    run = " ".join(said[key] for key in ("Entrypoint", "Exec", "ExecStart") if key in said)
    run = run.removeprefix("/usr/bin/env ")
    mounts = [line.partition("=")[2] for line in lines if line.startswith("Volume=")]
    volumes = " ".join(f"--volume {shlex.quote(mount.replace('%h', '~'))}" for mount in mounts)
    return f"podman run {volumes} {said['Image']} {run}" if "Image" in said else run


def from_case(case: Case, source: str) -> Request:
    """The request that the settings of a case (a command line, or a log's own dump) state."""
    engine = case.engine
    if engine is None:
        engines = ", ".join(sorted(entry.engine for entry in known()))
        raise PlanRefused(f"{source}: no command that starts an engine was found; known are {engines}")
    own: dict[str, str] = {}
    for setting in case.all(Setting):
        if setting.engine in (engine, None) and ":" not in setting.name:
            if setting.basis != "command" and setting.name in own:
                continue  # a command line beats what was dumped or derived
            own[setting.name] = setting.value
    _refuse_several(case, source)
    named = next((fact.name for fact in reversed(case.all(ModelNamed)) if fact.name), None)
    model = next((own.pop(name) for name in _MODEL if name in own), None) or named
    if not model:
        raise PlanRefused(f"{source}: the command names no model ({' or '.join('--' + name for name in _MODEL[:2])})")
    count = _count(case)
    if count and count > 1 and not any(name in own for name in _PARALLEL):
        own |= lever(engine, "tensor-parallel", 1)  # the container is given more cards than its command uses
    return Request(_on_host(case, model), count=count, engine=engine, version=_version(case), settings=own)


def _refuse_several(case: Case, source: str) -> None:
    """Raises PlanRefused where a file starts several servers: their settings must not be mixed."""
    models: dict[tuple[str | None, str], None] = {}
    for setting in case.all(Setting):
        if setting.basis == "command" and setting.name in _MODEL and setting.engine:
            models[setting.engine, setting.value] = None
    if len(models) > 1 and not case.has(EngineStarted):
        told = ", ".join(f"{engine} with {model}" for engine, model in models)
        raise PlanRefused(f"{source} starts {len(models)} servers ({told}): plan them one by one")


def _on_host(case: Case, model: str) -> str:
    """A model's folder in a container as the folder that is mounted there, where it is on this machine."""
    if not model.startswith("/") or Path(model).exists():
        return model
    for setting in case.all(Setting):
        if setting.name not in ("docker:volume", "k8s:volume") or ":" not in setting.value:
            continue
        source, target = setting.value.split(":")[:2]
        inside = Path(model)
        if target and inside.is_relative_to(target):
            outside = Path(os.path.expandvars(source)).expanduser() / inside.relative_to(target)
            if outside.exists():
                return str(outside)
    return model


def _count(case: Case) -> int | None:
    """Cards that a container was given; None where it says all, or nothing."""
    for name in _COUNTS:
        value = case.setting(name)
        if value and value.isdigit():
            return int(value)
        if value and (devices := re.search(r"device=([\d,]+)", value)):
            return devices[1].count(",") + 1
    return None


def _version(case: Case) -> str:
    started = case.last(EngineStarted)
    if started is not None and started.version:
        return started.version
    image = case.setting("docker:image", "k8s:image") or ""
    tag = _IMAGE_TAG.search(image)
    return tag[1] if tag else ""


def from_flags(engine: str, words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """(model, settings) of an engine's own flags as typed after `loadpath plan`; the first bare word is the model."""
    bare = [i for i, word in enumerate(words[:1]) if not word.startswith("-")]
    model = words[0] if bare else None
    found = flags(engine, words[1:] if bare else words)
    settings = {one.name: one.value for one in found}
    named = next((settings.pop(name) for name in _MODEL if name in settings), None)
    return model or named, settings


def lever(engine: str, name: str, value: object) -> dict[str, str]:
    """A lever (`context-length`, `kv-dtype`, …) as settings of that engine; {} where it has no such flag."""
    return {one.name: one.value for one in flags(engine, flag(engine, name, value).split())}
