"""Tiny Hugging Face model folders, made without torch: real configurations and headers, and zeros for weights.

The headers are those that ../shared/tools/make_tiny_model.py writes with transformers (checkpoints/data/tiny.json).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

TINY = Path(__file__).parent / "checkpoints" / "data" / "tiny.json"
KINDS = ("llama", "qwen3", "qwen3moe", "gemma3", "mla", "hybrid", "mamba2")


def tiny(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(config.json, header of model.safetensors) of a tiny model."""
    row = json.loads(TINY.read_text("utf-8"))[kind]
    return row["config"], row["header"]


def write_tiny_checkpoint(folder: Path, kind: str = "llama", **settings: Any) -> Path:
    """The model in `folder`. `settings`: changes to its config.json (a `quantization_config`, …)."""
    config, header = tiny(kind)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | settings), "utf-8")
    write_safetensors(folder / "model.safetensors", header)
    return folder


def write_safetensors(path: Path, header: dict[str, Any]) -> None:
    """A file with that header, and zeros (a hole, on most file systems) for the tensors."""
    data = json.dumps(header).encode()
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        file.truncate(8 + len(data) + end)


def header_of(tensors: dict[str, tuple[str, tuple[int, ...], int]]) -> dict[str, Any]:
    """A header of tensors by name: (type, shape, bytes)."""
    found, at = dict[str, Any](), 0
    for name, (kind, shape, size) in tensors.items():
        found[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return found
