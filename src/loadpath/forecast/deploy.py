"""From a request to a deployment: the model opened, the cards looked up, the parallel sizes made to match them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import Opened, open_model
from loadpath.core.case import version_numbers
from loadpath.engines.registry import by_engine, known, load
from loadpath.forecast.beside_model import drafter_of, with_settings_for
from loadpath.forecast.commands import lever
from loadpath.forecast.request import PlanRefused, Request
from loadpath.knowledge.models import model
from loadpath.planning.cards import CardUnknown, cards_of
from loadpath.planning.deployment import Card, Deployment

_PARALLEL = {
    "vllm": ("tensor-parallel-size", "pipeline-parallel-size"),
    "sglang": ("tp-size", "pp-size"),
    "tensorrt-llm": ("tp_size", "pp_size"),
    "lmdeploy": ("tp",),
    "tgi": ("num-shard",),
}
"""Settings whose product is the number of cards of one replica."""


_NEED_VOLTA = ("vllm", "sglang", "tgi", "lmdeploy", "tensorrt-llm")
VOLTA = (7, 0)
"""The least compute capability that these engines' own documentation names in any release."""


def planners() -> tuple[str, ...]:
    """Engines whose memory can be planned."""
    return tuple(entry.engine for entry in known() if hasattr(load(entry), "plan"))


def deployment(request: Request) -> Deployment:
    """Everything that the engine's memory model needs. Raises PlanRefused with what was not found."""
    if by_engine(request.engine) is None:
        raise PlanRefused(f"unknown engine {request.engine!r}; known are {', '.join(e.engine for e in known())}")
    request = with_settings_for(request)
    opened = opened_model(request.model)
    if opened.shape.max_position <= 0:
        raise PlanRefused(f"{request.model}: the longest context is not stated (`max_position_embeddings`)")
    settings = dict(request.settings)
    _refuse_old(request.engine, cards_of_request(request))
    cards = cards_of_request(request)
    settings |= spread_over(request.engine, settings, len(cards))
    return Deployment(
        opened.shape, cards, request.engine, _version(request.version), settings, checkpoint=opened.checkpoint,
        drafter=drafter_of(request), available_kv_bytes=request.available_kv_bytes,
    )  # fmt: skip


def _refuse_old(engine: str, cards: tuple[Card, ...]) -> None:
    """Raises PlanRefused for a card on which the engine does not start at all, whatever its memory."""
    for card in cards:
        if engine in _NEED_VOLTA and card.capability and card.capability < VOLTA:
            had = ".".join(map(str, card.capability))
            raise PlanRefused(
                f"{card.name} has compute capability {had}; {engine} needs 7.0 or more (llama.cpp and Ollama run on it)"
            )


def cards_of_request(request: Request) -> tuple[Card, ...]:
    """The cards by name, as many as were asked for or the settings need. Raises PlanRefused."""
    needed = _needed(request.engine, request.settings)
    if request.count and request.count < needed:
        flags = " x ".join(f"--{n} {request.settings[n]}" for n in _PARALLEL[request.engine] if n in request.settings)
        raise PlanRefused(f"{flags} needs {needed} GPUs, but {request.count} were given")
    return _cards(request.gpus, request.count or needed)


@cache
def opened_model(name: str) -> Opened:
    """The model of that name, opened once. Raises PlanRefused.

    A path that is not on this machine (of a pasted command, of a log) is known by its last part, if the table has it.
    """
    try:
        return open_model(name)
    except ModelError as error:
        if "/" in name and not Path(name).exists() and (shape := model(Path(name).name)):
            return Opened(shape, None, "table", f"{name} is not here: planned with the table's {shape.id}.")
        raise PlanRefused(str(error)) from error


def spread_over(engine: str, settings: Mapping[str, str], cards: int) -> dict[str, str]:
    """The parallel size that uses all cards, where the settings name none; {} where nothing is to be added."""
    if cards < 2 or engine not in _PARALLEL or any(name in settings for name in _PARALLEL[engine]):
        return {}
    return lever(engine, "tensor-parallel", cards)


def cards_used(request: Request) -> int | None:
    """Cards that the parallel sizes in the settings use, with data-parallel replicas; None where they say nothing."""
    if not any(name in request.settings for name in _PARALLEL.get(request.engine, ())):
        return None
    replicas = next((request.settings[n] for n in ("data-parallel-size", "dp-size") if n in request.settings), "1")
    needed = _needed(request.engine, request.settings)
    return needed * (int(replicas) if replicas.isdigit() else 1)


def _needed(engine: str, settings: dict[str, str]) -> int:
    """Cards that one replica takes by its own settings."""
    product = 1
    for name in _PARALLEL.get(engine, ()):
        value = settings.get(name, "1")
        if not re.fullmatch(r"\d+", value) or value == "0":
            raise PlanRefused(f"--{name} {value}: a whole number of at least 1 was expected")
        product *= int(value)
    return product


def _cards(names: tuple[str, ...], count: int) -> tuple[Card, ...]:
    if names == ("here",):
        from loadpath.forecast.here import cards_here

        seen = cards_here()
        if count > len(seen):
            raise PlanRefused(f"--gpu here: {len(seen)} GPUs are here, but {count} are needed")
        return seen[:count]
    if not names:
        raise PlanRefused(
            "which GPU? --gpu NAME ('H100 80GB', 'RTX 4090', 24GiB), --gpu here, or --which-gpu for all that do"
        )
    try:
        cards = tuple(card for name in names for card in cards_of(name))
    except CardUnknown as error:
        raise PlanRefused(str(error)) from error
    if len(cards) == 1:
        return cards * count
    if count > len(cards):
        raise PlanRefused(f"{len(cards)} cards are named, but the settings need {count}")
    return cards


def _version(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    numbers = version_numbers(text.removeprefix("b"))  # llama.cpp counts builds: b9000
    if not numbers:
        raise PlanRefused(f"--engine-version {text}: a version such as 0.19.0 was expected (llama.cpp: b9000)")
    return numbers


def with_settings(deployed: Deployment, settings: Mapping[str, str]) -> Deployment:
    """The same deployment with further settings: nothing is looked up again."""
    return msgspec.structs.replace(deployed, settings={**deployed.settings, **settings})
