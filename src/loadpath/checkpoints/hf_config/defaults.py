"""What a configuration class of `transformers` assumes for a key that config.json leaves out.

`defaults.json` is generated from `transformers` itself (tests/transformers_reference.py): model_type → key → value, only
the keys that this folder reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec


@cache
def _table() -> dict[str, dict[str, Any]]:
    data = resources.files(__package__).joinpath("defaults.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, Any]])


def class_defaults(kind: str) -> Mapping[str, Any]:
    """The defaults of `model_type` `kind`; empty where unknown."""
    return _table().get(kind, {})
