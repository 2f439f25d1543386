"""Buffers that a model allocates when it is built: they are there before the pass and count as its weights.

Source: the constructors of vLLM's model classes (qwen3_vl.py, gemma3n_mm.py, gemma4_mm.py, deepseek_v2.py).
"""

from __future__ import annotations

from loadpath.core.shape import LatentAttention, ModelShape
from loadpath.planning.per_shape import per_shape

DEEPSTACK_LEVELS = {"qwen3_vl": 3, "qwen3_vl_moe": 3, "qwen3_omni_moe": 3}
"""Depths of the vision tower whose features are held for the language model, a vector for each token of a step."""
CHOSEN_TOKENS = 2048
"""Positions that a sparse-attention indexer picks for each token (`index_topk` of the released models)."""
_WHOLE_TOWERS = frozenset({"gemma3n", "gemma4"})
"""Families whose encoders are built by transformers: whole on every rank."""


@per_shape
def buffers(shape: ModelShape, tokens: int, width: int, encoders: bool = True) -> int:
    """Bytes on every rank for steps of `tokens` tokens; `width`: bytes of an element of the model's dtype;
    `encoders`: whether its encoders are loaded."""
    total = DEEPSTACK_LEVELS.get(shape.family, 0) * tokens * shape.hidden * width if encoders else 0
    if shape.per_layer_embedding:
        total += tokens * len(shape.layers) * shape.per_layer_embedding * width
    if any(isinstance(m, LatentAttention) and m.index_heads for layer in shape.layers[:1] for m in layer.mixers):
        total += 4 * tokens * CHOSEN_TOKENS
    return total


def whole_towers(shape: ModelShape, encoder_mode: str) -> bool:
    """Whether encoders are repeated on every rank; `encoder_mode`: `--mm-encoder-tp-mode`."""
    return shape.family in _WHOLE_TOWERS or encoder_mode == "data"
