"""From a pasted command, a compose file or a Kubernetes manifest to a request: the same readers as for a log."""

from __future__ import annotations

import re
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
    return f"podman run {said['Image']} {run}" if "Image" in said else run


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
    named = next((fact.name for fact in reversed(case.all(ModelNamed)) if fact.name), None)
    model = next((own.pop(name) for name in _MODEL if name in own), None) or named
    if not model:
        raise PlanRefused(f"{source}: the command names no model ({' or '.join('--' + name for name in _MODEL[:2])})")
    return Request(model, count=_count(case), engine=engine, version=_version(case), settings=own)


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
