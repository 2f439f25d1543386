"""Typed access to a config.json: several spellings of a key, class defaults, and errors that name key and file.

A key that is `null` counts as absent without a default: the configuration says "not set". A key that is missing takes
the default of its configuration class, because configurations are saved without what equals the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config.defaults import class_defaults


class Fields:
    """One section of a configuration. `where` names the file and section in messages."""

    def __init__(self, data: Mapping[str, Any], where: str, kind: str = "") -> None:
        self.data = data
        self.where = where
        self.kind = kind or str(data.get("model_type") or "")
        self._defaults: Mapping[str, Any] | None = None

    def value(self, *keys: str) -> Any:
        """The first of `keys` that is set; else the first with a class default; else None."""
        for key in keys:
            if self.data.get(key) is not None:
                return self.data[key]
        if any(key in self.data for key in keys):
            return None  # null: "not set" stated outright
        if self._defaults is None:
            self._defaults = class_defaults(self.kind)
        return next((self._defaults[key] for key in keys if self._defaults.get(key) is not None), None)

    def states(self, *keys: str) -> bool:
        """Whether the file itself sets one of `keys`."""
        return any(self.data.get(key) is not None for key in keys)

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A whole number; without `default` it is required."""
        value = self.value(*keys)
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            value = max(value)  # one value a layer: callers that mean the layers ask for `per_layer`
        if value is None:
            return self._missing(keys, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            raise ModelError(f"{self.where}: `{keys[0]}` is {value!r}, not a whole number")
        return int(value)

    def number(self, *keys: str, default: float = 0.0) -> float:
        value = self.value(*keys)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default

    def flag(self, *keys: str, default: bool = False) -> bool:
        value = self.value(*keys)
        return default if value is None else bool(value)

    def text(self, *keys: str, default: str = "") -> str:
        value = self.value(*keys)
        return str(value) if isinstance(value, str) else default

    def items(self, *keys: str) -> list[Any]:
        """A list; empty where absent."""
        value = self.value(*keys)
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []

    def per_layer(self, count: int, *keys: str, default: int | None = None) -> list[int]:
        """One whole number a layer, from a list or from one value for all."""
        value = self.value(*keys)
        if isinstance(value, list):
            if len(value) < count:
                raise ModelError(f"{self.where}: `{keys[0]}` has {len(value)} entries for {count} layers")
            return [int(item) for item in value[:count]]
        return [self.integer(*keys, default=default)] * count

    def section(self, *keys: str, kind: str = "") -> Fields | None:
        """A nested section; None where absent."""
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, Mapping):
                return Fields(cast("Mapping[str, Any]", value), f"{self.where}, {key}", kind)
        return None

    def of_layer(self, index: int) -> Fields:
        """This section with what `per_layer_config` overrides for one layer (transformers 5)."""
        table = self.data.get("per_layer_config")
        if not isinstance(table, Mapping):
            return self
        own = next((value for key, value in table.items() if str(key).isdigit() and int(key) == index), None)
        return Fields({**self.data, **own}, self.where, self.kind) if isinstance(own, Mapping) else self

    def _missing(self, keys: tuple[str, ...], default: int | None) -> int:
        if default is not None:
            return default
        others = f" (also tried: {', '.join(f'`{key}`' for key in keys[1:])})" if len(keys) > 1 else ""
        raise ModelError(f"{self.where}: no `{keys[0]}`{others}")
