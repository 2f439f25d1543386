"""A JSON file of a model, or a sentence on why it is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadpath.checkpoints import safetensors
from loadpath.checkpoints.errors import ModelError


def json_file(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        return msgspec.json.decode(path.read_bytes().replace(b"Infinity", b"1e999"), type=dict[str, Any])
    except msgspec.DecodeError as error:
        if safetensors.head_of_pointer(path):
            raise ModelError(f"{path} is a Git LFS pointer, not the file itself") from error
        raise ModelError(f"{path} is no valid JSON: {error}") from error
