"""The rotary tables that an engine may keep: rows x width, by the kind of stretching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Rope

MROPE_FACTOR = 4
"""vLLM's table of multimodal positions holds four times the longest sequence."""
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx", "max_target_positions",
)  # fmt: skip

_MULTIMODAL = frozenset({
    "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_vl_text", "qwen3_vl_moe_text",
    "qwen3_omni_moe_text", "glm4v_text", "glm4v_moe_text",
})  # fmt: skip
"""Language models whose positions have three parts even where the configuration does not repeat it."""


def positions(f: Fields) -> int:
    """The longest sequence that the configuration states; 0 where it has no limit (Mamba). Cohere states the longest
    that its rotary positions reach as `model_max_length`."""
    return f.integer("model_max_length", default=0) or f.integer(*POSITIONS, default=0)


def longest(f: Fields) -> int:
    """The longest sequence with stretched positions, as vLLM derives it: yarn from its original length, linear and
    dynamic stretching from the stated one. Gemma 3 states the stretched length."""
    limit = positions(f)
    parameters = _parameters(f)
    kind = _kind(parameters)
    if kind == "yarn" and _original(f, parameters):
        return round(_original(f, parameters) * _factor(parameters))
    if kind in ("linear", "dynamic") and not f.kind.startswith("gemma3"):
        return round(limit * _factor(parameters))
    return limit


def tables(f: Fields, head_dim: int, *, local: bool = False) -> tuple[Rope, ...]:
    """One table for each set of rotary parameters. `local`: window layers have one of their own (Gemma 3)."""
    limit = positions(f)
    if not limit:
        return ()
    parameters = _parameters(f)
    if parameters and all(isinstance(value, Mapping) for value in parameters.values()):
        return tuple(dict.fromkeys(_table(f, value, limit, head_dim) for value in parameters.values()))
    own = _table(f, parameters, limit, head_dim)
    return (own, Rope(limit, own.width)) if local else (own,)


def _table(f: Fields, parameters: Mapping[str, Any], limit: int, head_dim: int) -> Rope:
    kind = _kind(parameters)
    partial = parameters.get("partial_rotary_factor") or f.value("partial_rotary_factor", "rotary_pct") or 1
    width = f.integer("rotary_dim", default=int(head_dim * float(partial)))
    if kind == "yarn":
        return Rope(round((_original(f, parameters) or limit) * _factor(parameters)), width, kind)
    if kind in ("linear", "dynamic"):
        return Rope(round(limit * _factor(parameters)), width, kind)
    if parameters.get("mrope_section") or kind == "mrope" or f.kind in _MULTIMODAL:
        return Rope(limit * MROPE_FACTOR, width, "mrope")
    return Rope(limit, width, "" if kind == "default" else kind)


def _parameters(f: Fields) -> Mapping[str, Any]:
    found = f.value("rope_parameters") or f.value("rope_scaling") or {}
    return found if isinstance(found, Mapping) else {}


def _kind(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("rope_type") or parameters.get("type") or "")


def _factor(parameters: Mapping[str, Any]) -> float:
    return float(parameters.get("factor") or 1)


def _original(f: Fields, parameters: Mapping[str, Any]) -> int:
    return int(parameters.get("original_max_position_embeddings") or f.value("original_max_position_embeddings") or 0)
