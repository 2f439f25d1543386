"""What `plan` and `launch` ask alike: a model, cards, an engine and its own flags; or a whole command, or a file."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from loadpath.core.units import GIB

if TYPE_CHECKING:
    from loadpath.forecast.request import Request

F = TypeVar("F", bound=Callable[..., Any])
PASS_ON = {"ignore_unknown_options": True}
"""The engine's own flags stand among ours: what is not ours is the engine's."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")
_THEIRS = frozenset({"--model-name", "--host", "--port", "--served-model-name", "--parallel"})
"""Flags of engines that look like ours."""
WORDS = "[MODEL [ENGINE FLAGS]... | FILE.yaml | -- COMMAND...]"


class Deployed(msgspec.Struct, frozen=True):
    """The shared options, as typed."""

    gpus: tuple[str, ...]
    count: int | None
    engine: str
    version: str
    available_kv_gib: float | None
    adapters: tuple[str, ...]
    drafter: str


def deployment_options(command: F) -> F:
    """Add the words and options that say what is deployed; the verb gets them as keyword arguments for `Deployed`."""
    for option in reversed((
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar=WORDS),
        click.option("--gpu", "gpus", multiple=True, metavar="NAME",
                     help="A card of the table (H100 80GB, RTX 4090), a MIG profile, 24GiB, or here. Again for mixed cards."),
        click.option("--gpus", "count", type=click.IntRange(1, 4096), metavar="N", help="How many such cards."),
        click.option("--engine", default="", metavar="E", help="vllm (default), sglang, llama.cpp, …"),
        click.option("--engine-version", "version", default="", metavar="V",
                     help="Whose formulas (default: the newest known)."),
        click.option("--available-kv-gib", type=float, metavar="X",
                     help="Take this KV memory per GPU instead of computing it."),
        click.option("--adapter", "adapters", multiple=True, metavar="DIR",
                     help="A LoRA adapter served beside the model (vllm); again for more."),
        click.option("--drafter", default="", metavar="MODEL",
                     help="The model that drafts for speculative decoding, beside the model (vllm, sglang)."),
    )):  # fmt: skip
        command = option(command)
    return command


def request_of(words: tuple[str, ...], asked: Deployed) -> Request:
    """What was typed, as a request: our options on top of what a command or a file says; model "" where none is named.

    Raises `forecast.request.PlanRefused`.
    """
    from loadpath.forecast.commands import FILES, from_file, from_flags, from_text
    from loadpath.forecast.flags import refuse_misspelt
    from loadpath.forecast.request import Request

    request: Request
    start = next((i for i in range(len(words)) if _is_command(words[i:])), None)
    if words and words[0].endswith(FILES):
        request = _changed(from_file(words[0]), words[1:], asked)
    elif start is not None:
        request = _changed(from_text(shlex.join(words[start:]), "command line"), words[:start], asked)
    else:
        variables = dict(word.split("=", 1) for word in words if _VARIABLE.match(word))
        rest = tuple(word for word in words if not _VARIABLE.match(word))
        _refuse_misspelt(rest)
        _refuse_words(rest)
        model, settings = from_flags(asked.engine or "vllm", rest)
        refuse_misspelt(asked.engine or "vllm", settings)
        settings |= variables
        request = Request(model or "", engine=asked.engine or "vllm", settings=settings)
    from loadpath.forecast.beside_model import with_settings_for

    request = msgspec.structs.replace(
        request,
        gpus=asked.gpus,
        count=asked.count or request.count,
        engine=asked.engine or request.engine,
        version=asked.version or request.version,
        adapters=asked.adapters,
        drafter=asked.drafter,
        available_kv_bytes=None if asked.available_kv_gib is None else round(_finite(asked.available_kv_gib) * GIB),
    )
    return with_settings_for(request)


def _changed(request: Request, words: tuple[str, ...], asked: Deployed) -> Request:
    """A request of a file or a command, with engine flags that were typed beside it in place of its own."""
    from loadpath.forecast.commands import from_flags
    from loadpath.forecast.flags import refuse_misspelt

    if asked.engine and asked.engine != request.engine:
        raise click.UsageError(f"--engine {asked.engine}: the command given starts {request.engine}")
    if words and not words[0].startswith("-"):
        raise click.UsageError(f"{words[0]}: beside a file or a command only engine flags are expected")
    _, settings = from_flags(request.engine, words)
    refuse_misspelt(request.engine, settings)
    return msgspec.structs.replace(request, settings={**request.settings, **settings})


def _refuse_words(words: tuple[str, ...]) -> None:
    """Two bare words are neither a model with flags nor a command that is known."""
    if len(words) > 1 and not words[0].startswith("-") and not words[1].startswith("-"):
        from loadpath.engines.registry import known

        engines = ", ".join(sorted(entry.engine for entry in known()))
        raise click.UsageError(
            f"{shlex.join(words[:2])}: one model with flags was expected, or a command that starts {engines} and names a model"
        )


def _finite(gib: float) -> float:
    if not math.isfinite(gib):
        raise click.UsageError(f"--available-kv-gib {gib}: a number of GiB was expected")
    return gib


def _refuse_misspelt(words: tuple[str, ...]) -> None:
    """An option that is nearly one of ours is not the engine's: it would be passed on, and silently do nothing."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    ours = [name for option in context.command.params for name in option.opts if name.startswith("--")]
    for word in words:
        name = word.partition("=")[0]
        near = difflib.get_close_matches(name, ours, 1, cutoff=0.8) if name.startswith("--") else []
        if near and name not in _THEIRS:
            raise click.UsageError(f"no option {name}: did you mean {near[0]}?")


def _is_command(words: tuple[str, ...]) -> bool:
    """Whether the words start a program (they begin with one that is known) rather than name a model."""
    from loadpath.readers.command_flags import command as settings_of

    return len(words) > 1 and bool(settings_of(shlex.join(words)))
