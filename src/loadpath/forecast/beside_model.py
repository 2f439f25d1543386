"""What is loaded beside the model: the drafter that its settings or `--drafter` name, and LoRA adapters.

Both take memory that the model's own shape does not show: a drafter weights and a cache of its own, adapters the slots
that the engine reserves for them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from loadpath.checkpoints.adapters import Adapter, open_adapter
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from loadpath.core.shape import ModelShape
from loadpath.forecast.request import PlanRefused, Request

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's --max-lora-rank may be (its configuration class; releases before 0.11 start at 8)."""
DRAFTED = 3
"""Tokens drafted a step where nothing is said: what model cards of EAGLE heads recommend."""
_DRAFTER_FLAGS = ("speculative-draft-model-path", "speculative-model")


def with_settings_for(request: Request) -> Request:
    """The request with the engine's own flags for its adapters and its drafter; what was typed stays.

    Raises PlanRefused for an adapter that is none, and for engines whose slots are not modelled.
    """
    settings = {**_for_adapters(request), **_for_drafter(request), **request.settings}
    model = request.model or next((a.base for a in _adapters(request) if a.base), "")
    return msgspec.structs.replace(request, model=model, settings=settings)


def drafter_of(request: Request) -> ModelShape | None:
    """The shape of the drafter; None where there is none, or where the settings name one that is not known here."""
    if request.drafter:
        try:
            return _opened(request.drafter)
        except ModelError as error:
            raise PlanRefused(f"--drafter: {error}") from error
    name = _named_drafter(request)
    try:
        return _opened(name) if name else None
    except ModelError:
        return None


def notes_of(request: Request) -> tuple[str, ...]:
    """What the user is to know of the drafter and the adapters."""
    notes = []
    name = _named_drafter(request)
    if name and not request.drafter and drafter_of(request) is None:
        notes.append(
            f"the drafter {name} is not known here: its own weights are not counted (--drafter DIR names them)"
        )
    for text, adapter in zip(request.adapters, _adapters(request), strict=True):
        if (
            adapter.base
            and adapter.base.rpartition("/")[2].lower() != request.model.rstrip("/").rpartition("/")[2].lower()
        ):
            notes.append(f"the adapter {text} was made for {adapter.base}, and {request.model} is planned")
    return tuple(notes)


def _named_drafter(request: Request) -> str:
    """The drafter that the settings name; "" where they name none."""
    for flag in _DRAFTER_FLAGS:
        value = request.settings.get(flag, "")
        if value and not value.startswith("["):  # "[ngram]": no model at all
            return value
    try:
        said = json.loads(request.settings.get("speculative-config") or "{}")
    except ValueError:
        return ""  # the engine's planner says so
    name = said.get("model") if isinstance(said, dict) else None
    own = not name or name == request.model or name in ("ngram", "[ngram]")
    return "" if own else str(name)


def _for_drafter(request: Request) -> dict[str, str]:
    if not request.drafter:
        return {}
    shape = drafter_of(request)
    head = shape is not None and len(shape.layers) <= 2
    if request.engine == "vllm":
        said: dict[str, object] = {"model": request.drafter, "num_speculative_tokens": DRAFTED}
        return {"speculative-config": json.dumps({**said, "method": "eagle3"} if head else said)}
    if request.engine == "sglang":
        return {
            "speculative-algorithm": "EAGLE3" if head else "STANDALONE", "speculative-draft-model-path": request.drafter,
            "speculative-num-steps": str(DRAFTED), "speculative-eagle-topk": "1",
            "speculative-num-draft-tokens": str(DRAFTED + 1),
        }  # fmt: skip
    raise PlanRefused(f"--drafter: drafters are planned for vllm and sglang, not for {request.engine}")


def _for_adapters(request: Request) -> dict[str, str]:
    found = _adapters(request)
    if not found:
        return {}
    if request.engine != "vllm":
        raise PlanRefused(f"--adapter: LoRA slots are planned for vllm only, not for {request.engine}")
    rank = max(adapter.rank for adapter in found)
    slot = next((size for size in LORA_RANKS[1:] if size >= rank), None)
    if slot is None:
        raise PlanRefused(f"--adapter: rank {rank} is above {LORA_RANKS[-1]}, the greatest that vLLM serves")
    told = request.settings.get("max-lora-rank", "")
    if told.isdigit() and int(told) < rank:
        raise PlanRefused(f"--max-lora-rank {told}: the adapter's rank is {rank}, so vLLM refuses it")
    modules = " ".join(f"{Path(folder).resolve().name}={folder}" for folder in request.adapters)
    return {"enable-lora": "True", "max-loras": str(len(found)), "max-lora-rank": str(slot), "lora-modules": modules}


def _adapters(request: Request) -> tuple[Adapter, ...]:
    return tuple(_adapter(folder) for folder in request.adapters)


@cache
def _adapter(folder: str) -> Adapter:
    try:
        return open_adapter(Path(folder).expanduser())
    except (ModelError, OSError) as error:
        raise PlanRefused(f"--adapter: {error}") from error


@cache
def _opened(name: str) -> ModelShape:
    return open_model(name).shape
