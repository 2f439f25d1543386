"""Image encoders in the profiling pass: how many items are run, what they leave for the language model, what they take.

The engine runs as many items of the greatest size as its token budget admits (at least one) and keeps their outputs
while the language model is profiled. Sizes by family, from the published processors and vLLM's own maxima.
"""

from __future__ import annotations

import msgspec

from loadpath.core.shape import ModelShape
from loadpath.engines.vllm.planning.options import Options
from loadpath.planning.per_shape import per_shape


class Encoder(msgspec.Struct, frozen=True):
    """`tokens` of the largest item after merging; `patches` a token before; `width` of the encoder, `inner`: elements
    of its feed-forward block that live at once (two or three times its inner width);
    `outputs`: vectors of the model's width for each token (features of several depths);
    `placeholders` that stand for the largest item in a prompt, time stamps included, where they are many more."""

    tokens: int
    patches: int = 4
    width: int = 0
    inner: int = 0
    outputs: int = 1
    placeholders: int = 0


_QWEN_TOKENS = 16384  # 12,845,056 pixels in merged patches of 28 x 28
_FAMILIES: dict[str, Encoder] = {
    "qwen2_vl": Encoder(_QWEN_TOKENS, 4, 1280, 2 * 5120),
    "qwen2_5_vl": Encoder(_QWEN_TOKENS, 4, 1280, 3 * 3420),
    "qwen3_vl": Encoder(_QWEN_TOKENS, 4, 1152, 2 * 4304, outputs=4, placeholders=153_600),
    "qwen3_vl_moe": Encoder(_QWEN_TOKENS, 4, 1152, 2 * 4304, outputs=4, placeholders=153_600),
    "qwen3_omni_moe": Encoder(_QWEN_TOKENS, 4, 1152, 2 * 4304, outputs=4, placeholders=153_600),
    "qwen3_5": Encoder(_QWEN_TOKENS, 4, 1152, 2 * 4304),
    "qwen3_5_moe": Encoder(_QWEN_TOKENS, 4, 1152, 2 * 4304),
    "mistral3": Encoder(3025, 4, 1024, 3 * 4096),
    "mistral4": Encoder(3025, 4, 1024, 3 * 4096),
    "llama4": Encoder(17 * 144, 4, 1408, 2 * 5632),
    "gemma3": Encoder(256, 16, 1152, 2 * 4304),
    "gemma3n": Encoder(256, 9, 1152, 2 * 4304),
    "gemma4": Encoder(280, 9, 1152, 2 * 4304),
    "internvl_chat": Encoder(13 * 256, 4, 1024, 2 * 4096),
    "kimi_vl": Encoder(4096, 4, 1152, 2 * 4304),
    "kimi_k25": Encoder(4096, 4, 1152, 2 * 4304),
    "llava": Encoder(576, 1, 1024, 2 * 4096),
    "llava_next": Encoder(2928, 1, 1024, 2 * 4096),
}
PLACEHOLDER_ROWS = ((0, 11, 0), (0, 13, 0))
"""Releases that kept a row of output for every placeholder: from the first to before the second."""
LIVE_WIDTHS = 3
"""Tensors of the encoder's width that live beside its feed-forward block: residual, its input, its output."""


def profiled(shape: ModelShape, options: Options) -> bool:
    """Whether the pass runs an encoder at all."""
    return bool(shape.towers) and not options.v0 and not options.skip_multimodal_pass


def output_bytes(shape: ModelShape, options: Options) -> int:
    """Outputs of all items, kept through the pass."""
    found = _encoder(shape)
    rows = _tokens(found, options)
    if PLACEHOLDER_ROWS[0] <= options.version < PLACEHOLDER_ROWS[1]:
        rows = max(rows, found.placeholders)
    return rows * shape.hidden * found.outputs * options.dtype_bytes


def pass_bytes(shape: ModelShape, options: Options) -> int:
    """The encoder's own fullest moment. Weights of the tower, and so its inner width, are divided over the ranks."""
    found = _encoder(shape)
    inner = found.inner // options.tensor_parallel
    return _tokens(found, options) * found.patches * (LIVE_WIDTHS * found.width + inner) * options.dtype_bytes


def _tokens(found: Encoder, options: Options) -> int:
    batch = options.max_num_batched_tokens
    if not found.tokens:
        return batch
    return max(1, batch // found.tokens) * found.tokens


@per_shape
def _encoder(shape: ModelShape) -> Encoder:
    """The largest tower's figures: its own where the configuration tells them, else its family's."""
    known = _FAMILIES.get(shape.family, Encoder(0))
    told = max(shape.towers, key=lambda tower: tower.tokens * tower.hidden)
    if told.tokens:
        return msgspec.structs.replace(
            known, tokens=told.tokens, width=told.hidden or known.width, inner=known.inner or 8 * told.hidden
        )
    return known
