"""The rotary tables that an engine may keep: rows x width, by the kind of stretching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.core.shape import Rope

MROPE_FACTOR = 4
"""vLLM's table of multimodal positions holds four times the longest sequence."""
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length",
    "n_ctx", "max_target_positions",
)  # fmt: skip


def positions(f: Fields) -> int:
    """The longest sequence that the configuration states; 0 where it has no limit (Mamba)."""
    return f.integer(*POSITIONS, default=0)


def tables(f: Fields, head_dim: int, *, multimodal: bool = False) -> tuple[Rope, ...]:
    """One table for each set of rotary parameters (Gemma has one for windows and one for the rest)."""
    limit = positions(f)
    if not limit:
        return ()
    parameters = f.value("rope_parameters") or f.value("rope_scaling") or {}
    if parameters and all(isinstance(value, Mapping) for value in parameters.values()):
        return tuple(dict.fromkeys(_table(f, value, limit, head_dim, multimodal) for value in parameters.values()))
    own = _table(f, parameters, limit, head_dim, multimodal)
    if f.value("rope_local_base_freq"):
        return (own, Rope(limit, own.width))
    return (own,)


def _table(f: Fields, parameters: Mapping[str, Any], limit: int, head_dim: int, multimodal: bool) -> Rope:
    kind = str(parameters.get("rope_type") or parameters.get("type") or "")
    factor = float(parameters.get("factor") or 1)
    original = int(
        parameters.get("original_max_position_embeddings") or f.value("original_max_position_embeddings") or 0
    )
    partial = parameters.get("partial_rotary_factor") or f.value("partial_rotary_factor", "rotary_pct") or 1
    width = f.integer("rotary_dim", default=int(head_dim * float(partial)))
    rows = limit
    if kind == "yarn":
        rows = round((original or limit) * factor)
    elif kind in ("linear", "dynamic"):
        rows = round(limit * factor)
    elif multimodal or parameters.get("mrope_section") or kind == "mrope":
        rows = limit * MROPE_FACTOR
    return Rope(rows, width, "" if kind in ("default", "mrope") else kind)
