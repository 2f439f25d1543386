"""LoRA adapters (PEFT folders): rank and target modules from adapter_config.json, the stored tensors beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadpath.checkpoints import safetensors
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.json_file import json_file
from loadpath.core.checkpoint import Checkpoint


class Adapter(msgspec.Struct, frozen=True):
    """`rank`: the greatest of its modules; `targets`: names of the modules that it changes (`all-linear`: all);
    `base`: the model that it was made for, as its author named it; `extra_vocabulary`: rows it adds to the vocabulary."""

    checkpoint: Checkpoint
    rank: int
    alpha: float
    targets: tuple[str, ...]
    base: str
    extra_vocabulary: int = 0


def open_adapter(folder: Path) -> Adapter:
    """The adapter in `folder`."""
    config_file = folder / "adapter_config.json"
    if not config_file.is_file():
        raise ModelError(f"{folder} holds no adapter_config.json, so it is no LoRA adapter")
    config = json_file(config_file)
    kind = str(config.get("peft_type") or "LORA")
    if kind != "LORA":
        raise ModelError(f"{config_file}: an adapter of type {kind}; only LoRA adapters are planned")
    rank = config.get("r")
    if not isinstance(rank, int):
        raise ModelError(f"{config_file}: no `r` (the adapter's rank)")
    ranks = [rank, *(int(value) for value in (config.get("rank_pattern") or {}).values())]
    targets = config.get("target_modules") or ()
    return Adapter(
        checkpoint=_stored(folder),
        rank=max(ranks),
        alpha=float(config.get("lora_alpha") or rank),
        targets=(targets,) if isinstance(targets, str) else tuple(sorted(str(target) for target in targets)),
        base=str(config.get("base_model_name_or_path") or ""),
        extra_vocabulary=_extra_rows(folder),
    )


def _stored(folder: Path) -> Checkpoint:
    file = folder / "adapter_model.safetensors"
    if file.is_file():
        return Checkpoint(str(folder), "safetensors", safetensors.read_file(file))
    if (folder / "adapter_model.bin").is_file():
        raise ModelError(
            f"{folder} stores its adapter as adapter_model.bin, which is a pickle and is not opened: convert it"
        )
    raise ModelError(f"{folder} has no adapter_model.safetensors")


def _extra_rows(folder: Path) -> int:
    file = folder / "new_embeddings.safetensors"
    return max((tensor.shape[0] for tensor in safetensors.read_file(file)), default=0) if file.is_file() else 0
