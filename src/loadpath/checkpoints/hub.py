"""Models of the Hugging Face hub: the local cache first, then config and tensor headers over the network.

Nothing is downloaded but the configuration; headers are read by range requests of `huggingface_hub` (extra `hub`).
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from loadpath.checkpoints.errors import ModelError
from loadpath.core.checkpoint import Checkpoint, StoredTensor

Found = tuple[Path | None, dict[str, Any] | None, Checkpoint | None]
"""A snapshot's folder; or a configuration with the headers where they could be read."""
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def cache_folder() -> Path:
    """Where `huggingface_hub` keeps snapshots, by its environment variables."""
    if own := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(own).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


def offline() -> bool:
    """Whether the user forbade the network to the hub's client."""
    return any(os.environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def snapshot(name: str) -> Path | None:
    """The newest cached snapshot of `name` that has a config.json or a GGUF file."""
    repository = cache_folder() / f"models--{name.replace('/', '--')}"
    main = repository / "refs" / "main"
    folders = sorted(
        (path for path in (repository / "snapshots").glob("*") if path.is_dir()),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    if main.is_file():
        folders.insert(0, repository / "snapshots" / main.read_text("utf-8").strip())
    return next((path for path in folders if (path / "config.json").is_file() or any(path.glob("*.gguf"))), None)


def fetch(name: str, *, network: bool = True) -> Found:
    """`name` from the cache, else its config.json and headers from the hub."""
    if folder := snapshot(name):
        return folder, None, None
    if not network or offline():
        raise ModelError(
            f"{name} is neither in the table nor in the local hub cache ({cache_folder()}), and the hub is not asked: offline"
        )
    try:
        client = import_module("huggingface_hub")
    except ImportError:
        raise ModelError(
            f"{name} is neither in the table nor in the local hub cache; to ask the hub: pip install 'loadpath[hub]'"
        ) from None
    return None, _config(client, name), _headers(client, name)


def _config(client: Any, name: str) -> dict[str, Any]:
    from loadpath.checkpoints.json_file import json_file

    try:
        config = json_file(Path(client.hf_hub_download(name, "config.json")))
    except Exception as error:
        raise ModelError(f"the hub gave no config.json of {name}: {_reason(error)}") from error
    try:
        config["hf_quant_config"] = json_file(Path(client.hf_hub_download(name, "hf_quant_config.json")))
    except Exception:  # most models have none
        config.pop("hf_quant_config", None)
    return config


def _headers(client: Any, name: str) -> Checkpoint | None:
    """Tensors by the headers alone; None where the repository has no safetensors or they cannot be read."""
    try:
        metadata = client.get_safetensors_metadata(name)
    except Exception:  # the shape alone is still worth a plan
        return None
    tensors: list[StoredTensor] = []
    for file in metadata.files_metadata.values():
        for key, info in file.tensors.items():
            start, stop = info.data_offsets
            tensors.append(StoredTensor(key, info.dtype, tuple(info.shape), stop - start))
    return Checkpoint(f"hub ({name})", "safetensors", tuple(tensors)) if tensors else None


def _reason(error: Exception) -> str:
    """The cause in a few words: the client's messages run over many lines."""
    kind = type(error).__name__
    match kind:
        case "RepositoryNotFoundError":
            return "no such repository, or a private one that needs HF_TOKEN"
        case "GatedRepoError":
            return "the repository is gated: accept its terms on the hub and set HF_TOKEN"
        case "EntryNotFoundError" | "RemoteEntryNotFoundError":
            return "the repository has no such file (of a GGUF repository, download one file and name it)"
        case "LocalEntryNotFoundError" | "ConnectError" | "ConnectTimeout" | "ConnectionError" | "MaxRetryError":
            return "the hub could not be reached"
        case _:
            return f"{kind}: {str(error).splitlines()[0][:160] if str(error) else ''}"
