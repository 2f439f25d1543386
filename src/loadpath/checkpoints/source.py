"""A model as the user names it: a folder, a file, a name of the table, or an id of the hub.

Local files come before the table and the table before the network; a hub id is asked for only when the table does not
know it, and only its configuration and tensor headers are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec

from loadpath.checkpoints import safetensors
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.json_file import json_file
from loadpath.core.checkpoint import Checkpoint
from loadpath.core.shape import Dtype, ModelShape
from loadpath.knowledge import models

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_CACHED = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+)")


class Opened(msgspec.Struct, frozen=True):
    """A model and where it was found. `checkpoint`: its stored tensors, None where only the configuration is known."""

    shape: ModelShape
    checkpoint: Checkpoint | None
    source: str
    note: str = ""
    """What the user is to know of how it was found."""


def open_model(text: str, *, network: bool = True) -> Opened:
    """What `text` names. ModelError where nothing is found or a file is damaged. `network`: whether the hub may be asked."""
    path = Path(text).expanduser()
    if path.exists():
        return open_path(path)
    named = hub_name(text)
    if _looks_like_path(text) and not _CACHED.search(text):
        raise ModelError(f"no such file or folder: {text}")
    if shape := models.model(named):
        return Opened(shape, None, "table")
    if not _HUB_ID.fullmatch(named):
        raise ModelError(f"no model named {text!r} in the table, and no such file", models.close(named))
    from loadpath.checkpoints import hub

    try:
        return _open_snapshot(named, *hub.fetch(named, network=network))
    except ModelError as error:
        raise ModelError(str(error), models.close(named)) from error


def hub_name(text: str) -> str:
    """The hub's name in an address, a cache path of another machine or a name with a revision; else `text` itself."""
    if found := _CACHED.search(text):
        return f"{found[1]}/{found[2]}"
    if found := _ADDRESS.match(text):
        text = found[1]
    return text.partition("@")[0]


def open_path(path: Path) -> Opened:
    """A model folder, its config.json, one of its safetensors files, or a GGUF file."""
    if path.is_dir():
        return _open_folder(path)
    if path.suffix == ".gguf":
        return _open_gguf(path)
    if path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return _open_folder(path.parent)
    if path.suffix == ".json":
        return Opened(read_config(path, path.parent), None, str(path))
    raise ModelError(f"{path} is no model: expected a folder, config.json, a .safetensors or a .gguf file")


def read_config(path: Path, folder: Path | None = None, name: str = "") -> ModelShape:
    """The shape by a config.json and, beside it, the quantisation that ModelOpt writes to a file of its own."""
    from loadpath.checkpoints.hf_config import shape_of

    config = json_file(path)
    beside = (folder or path.parent) / "hf_quant_config.json"
    quantisation = json_file(beside) if beside.is_file() else None
    return shape_of(config, str(path), name or path.resolve().parent.name, quantisation)


def _open_folder(folder: Path) -> Opened:
    config = folder / "config.json"
    if config.is_file():
        return _typed(
            Opened(read_config(config, folder), safetensors.read_folder(folder), str(folder)), json_file(config)
        )
    if (folder / "params.json").is_file():
        return _open_mistral(folder)
    files = sorted(folder.glob("*.gguf"))
    if files:
        first = [
            file for file in files if not re.search(r"-\d{5}-of-\d{5}\.gguf$", file.name) or "-00001-of-" in file.name
        ]
        chosen = [file for file in first if not file.name.startswith("mmproj")]
        if len(chosen) == 1:
            return _open_gguf(chosen[0])
        names = ", ".join(file.name for file in chosen[:5])
        raise ModelError(f"{folder} holds {len(chosen)} GGUF models: name one of them ({names})")
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} holds a LoRA adapter, not a model: plan its base model, and name the adapter beside it (--adapter {folder})"
        )
    snapshot = next(iter(sorted(folder.glob("snapshots/*/config.json"))), None)
    if snapshot is not None:
        return _open_folder(snapshot.parent)
    raise ModelError(f"{folder} has no config.json and no .gguf file")


_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _typed(opened: Opened, config: dict[str, Any]) -> Opened:
    """With the type of the stored weights where the configuration names none."""
    sections = [config, *(value for value in config.values() if isinstance(value, dict))]
    if opened.checkpoint is None or any(section.get("dtype") or section.get("torch_dtype") for section in sections):
        return opened
    sizes: dict[str, int] = {}
    for tensor in opened.checkpoint.tensors:
        if tensor.dtype in _FLOATS:
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.elements
    if not sizes:
        return opened
    dtype = cast("Dtype", _FLOATS[max(sizes, key=lambda kind: sizes[kind])])
    return msgspec.structs.replace(opened, shape=msgspec.structs.replace(opened.shape, dtype=dtype))


def _open_mistral(folder: Path) -> Opened:
    from loadpath.checkpoints.hf_config import shape_of
    from loadpath.checkpoints.mistral import config_of

    path = folder / "params.json"
    shape = shape_of(config_of(json_file(path)), str(path), folder.resolve().name)
    return _typed(Opened(shape, safetensors.read_folder(folder), str(folder)), {})


def _open_gguf(path: Path) -> Opened:
    from loadpath.checkpoints.gguf import checkpoint_of, read, shape_of

    file = read(path)
    try:
        shape = shape_of(file)
    except (ZeroDivisionError, IndexError, TypeError) as error:
        raise ModelError(f"{path}: its tensors do not fit its metadata ({error})") from error
    return Opened(shape, checkpoint_of(file), str(path))


def _open_snapshot(
    name: str, folder: Path | None, config: dict[str, Any] | None, checkpoint: Checkpoint | None
) -> Opened:
    if folder is not None:
        opened = _open_folder(folder)
        shape = msgspec.structs.replace(opened.shape, id=name)
        return Opened(shape, opened.checkpoint or checkpoint, f"hub cache ({folder})")
    from loadpath.checkpoints.hf_config import shape_of

    assert config is not None
    shape = shape_of(config, f"{name}/config.json", name, config.get("hf_quant_config"))
    return Opened(shape, checkpoint, f"hub ({name})")


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text.endswith((".json", ".safetensors", ".gguf")) or "\\" in text
