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


GGUF_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210), 30: (1, 2)}
"""Type number → (elements of a block, its bytes), for the types that the tests write."""


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, tuple[int, tuple[int, ...]]],
    order: str = "<",
    version: int = 3,
) -> None:
    """A GGUF file with zeros for weights. `tensors`: name → (type number, shape, rows first); `order`: `>`: big-endian."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack(f"{order}Q", len(data)) + data

    def typed(value: Any) -> bytes:
        if isinstance(value, bool):
            return struct.pack(f"{order}I?", 7, value)
        if isinstance(value, int):
            return struct.pack(f"{order}II", 4, value)
        if isinstance(value, float):
            return struct.pack(f"{order}If", 6, value)
        if isinstance(value, str):
            return struct.pack(f"{order}I", 8) + text(value)
        inner = [typed(item) for item in value]
        kind = inner[0][:4] if inner else struct.pack(f"{order}I", 4)
        return (
            struct.pack(f"{order}I", 9) + kind + struct.pack(f"{order}Q", len(inner)) + b"".join(x[4:] for x in inner)
        )

    head = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + typed(value) for key, value in metadata.items())
    at = 0
    for name, (kind, shape) in tensors.items():
        head += text(name) + struct.pack(f"{order}I{len(shape)}QIQ", len(shape), *shape[::-1], kind, at)
        block, size = GGUF_BLOCKS.get(kind, (1, 1))
        elements = 1
        for width in shape:
            elements *= width
        at += -(-(elements // block * size) // 32) * 32
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % 32))
        file.truncate(file.tell() + at)
