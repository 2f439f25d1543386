"""Vision encoders by their `model_type`: parameters without the projector, unless the encoder holds it itself.

Counts follow the model classes of `transformers` and are tested against them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.towers.blocks import block, linear, merger, pooling_head

QWEN_IMAGE_TOKENS = 16384
"""Tokens of the largest image that Qwen's processors admit."""


class Encoder(msgspec.Struct, frozen=True):
    """`merged`: patches that one token stands for; `tokens`: of one image at most, 0: not known; `projected`: its
    output already has the language model's width."""

    parameters: int
    hidden: int
    layers: int
    tokens: int = 0
    merged: int = 1
    projected: bool = False


def siglip(f: Fields) -> Encoder:
    """SigLIP, SigLIP 2, and the encoders of Idefics 3 and SmolVLM."""
    width, inner, layers, patch = _sizes(f)
    places = f.integer("num_patches", default=0) or _places(f, patch)
    found = linear(3 * patch * patch, width) + places * width + layers * block(width, inner) + 2 * width
    if f.flag("vision_use_head"):
        found += pooling_head(width, inner)
    return Encoder(found, width, layers, places)


def clip(f: Fields) -> Encoder:
    width, inner, layers, patch = _sizes(f)
    places = _places(f, patch)
    found = linear(3 * patch * patch, width, False) + (places + 2) * width + layers * block(width, inner) + 4 * width
    return Encoder(found, width, layers, places)


def pixtral(f: Fields) -> Encoder:
    width, inner, layers, patch = _sizes(f)
    one = block(width, inner, gated=True, qkv_bias=False, o_bias=False, mlp_bias=False, norm=1)
    side = f.integer("image_size", default=1024) // patch
    return Encoder(linear(3 * patch * patch, width, False) + width + layers * one, width, layers, side * (side + 1))


def qwen2(f: Fields) -> Encoder:
    """Qwen2-VL: its merger ends at the language model's width (`hidden_size`)."""
    width, out = f.integer("embed_dim"), f.integer("hidden_size")
    inner = int(width * f.number("mlp_ratio", default=4))
    return _qwen(f, width, block(width, inner), merger(width, out, _merge(f), norm=2 * width), patch_bias=False)


def qwen2_5(f: Fields) -> Encoder:
    """Qwen2.5-VL and Qwen2.5-Omni: gated, with RMS norms."""
    width, out = f.integer("hidden_size"), f.integer("out_hidden_size")
    one = block(width, f.integer("intermediate_size"), gated=True, norm=1)
    return _qwen(f, width, one, merger(width, out, _merge(f), norm=width), patch_bias=False)


def qwen3(f: Fields) -> Encoder:
    """Qwen3-VL, Qwen3-Omni (a merger for each deep level) and Qwen3.5 (none)."""
    width, out, merge = f.integer("hidden_size"), f.integer("out_hidden_size"), _merge(f)
    wide = width * merge * merge
    after = merger(width, out, merge, norm=2 * width)
    after += len(f.items("deepstack_visual_indexes")) * merger(width, out, merge, norm=2 * wide)
    after += f.integer("num_position_embeddings", default=0) * width
    return _qwen(f, width, block(width, f.integer("intermediate_size")), after, patch_bias=True)


def _qwen(f: Fields, width: int, one: int, after: int, *, patch_bias: bool) -> Encoder:
    layers, patch = f.integer("depth"), f.integer("patch_size")
    entry = linear(3 * f.integer("temporal_patch_size", default=2) * patch * patch, width, patch_bias)
    return Encoder(entry + layers * one + after, width, layers, QWEN_IMAGE_TOKENS, _merge(f) ** 2, projected=True)


def glm4v(f: Fields) -> Encoder:
    """GLM-4.1V, 4.5V, 4.6V: a convolution halves the grid, then a gated merger."""
    width, out, layers, patch = (f.integer(key) for key in ("hidden_size", "out_hidden_size", "depth", "patch_size"))
    bias, merge, inner = f.flag("attention_bias"), _merge(f), f.integer("intermediate_size")
    one = block(width, out, gated=True, qkv_bias=bias, o_bias=bias, mlp_bias=False, norm=1)
    entry = linear(3 * f.integer("temporal_patch_size", default=2) * patch * patch, width) + 2 * width
    places = (f.integer("image_size", default=336) // patch) ** 2 * width
    after = linear(width * merge * merge, out) + linear(out, out, False) + 2 * out + 3 * out * inner
    return Encoder(entry + places + layers * one + after, width, layers, 0, merge * merge, projected=True)


def glm5_next(f: Fields) -> Encoder:
    width, out, layers, patch = (f.integer(key) for key in ("hidden_size", "out_hidden_size", "depth", "patch_size"))
    merge, bias = _merge(f), f.flag("attention_bias", default=True)
    heads = 2 * (width // f.integer("num_heads"))
    one = block(width, f.integer("intermediate_size"), gated=True, qkv_bias=bias, o_bias=bias, norm=1, extra=heads)
    entry = linear(3 * f.integer("temporal_patch_size", default=2) * patch * patch, width) + width
    after = linear(width * merge * merge, out) + linear(out, out, False) + 2 * out
    after += 3 * out * f.integer("projection_intermediate_size")
    return Encoder(entry + layers * one + after, width, layers, 0, merge * merge, projected=True)


def llama4(f: Fields) -> Encoder:
    width, inner, layers, patch = _sizes(f)
    places = _places(f, patch)
    deep = f.integer("projector_input_dim")
    adapter = inner * deep + deep * f.integer("projector_output_dim")
    found = linear(3 * patch * patch, width, False) + (places + 2) * width + 4 * width
    merged = round(1 / f.number("pixel_shuffle_ratio", default=0.5) ** 2)
    return Encoder(found + layers * block(width, inner) + adapter, width, layers, places // merged)


def mllama(f: Fields) -> Encoder:
    """Llama 3.2 Vision: a second stack of gated layers, and an embedding for every shape of tiles."""
    width, inner, layers, patch = _sizes(f)
    deep, tiles = f.integer("num_global_layers", default=8), f.integer("max_num_tiles", default=4)
    places, ratios = _places(f, patch) + 1, len(f.items("supported_aspect_ratios") or range(8)) + 1
    one = block(width, inner, qkv_bias=False, o_bias=False)
    found = linear(3 * patch * patch, width, False) + width + places * width + 1 + ratios * tiles * places * width
    found += 2 * (1 + ratios * tiles * width) + 4 * width + layers * one + deep * (one + 2)
    return Encoder(found, width, layers + deep, tiles * places)


def intern(f: Fields) -> Encoder:
    """InternViT: class token, scales of both branches."""
    width, inner, layers = f.integer("hidden_size"), f.integer("intermediate_size"), f.integer("num_hidden_layers")
    patch, side = _square(f.value("patch_size"), 14), _square(f.value("image_size"), 448)
    norm = 2 if "layer" in f.text("norm_type", default="layer_norm") else 1
    bias = f.flag("attention_bias", "qkv_bias")
    qk = 2 * width if f.flag("use_qk_norm", "qk_normalization") else 0
    one = block(width, inner, qkv_bias=bias, norm=norm, extra=2 * width + qk)
    places = (side // patch) ** 2
    found = linear(3 * patch * patch, width) + (places + 2) * width + layers * one
    if not f.flag("use_mean_pooling", default=True):
        found += norm * width
    return Encoder(found, width, layers, places // 4)


def moon(f: Fields) -> Encoder:
    """MoonViT of Kimi-VL and Kimi K2.5: a grid of learned positions."""
    width = f.integer("hidden_size", "vt_hidden_size")
    inner, layers = (
        f.integer("intermediate_size", "vt_intermediate_size"),
        f.integer("num_hidden_layers", "vt_num_hidden_layers"),
    )
    patch = f.integer("patch_size", default=14)
    height = f.integer("pos_emb_height", "init_pos_emb_height", default=64)
    grid = height * f.integer("pos_emb_width", "init_pos_emb_width", default=64)
    found = linear(3 * patch * patch, width) + grid * width + layers * block(width, inner) + 2 * width
    return Encoder(found, width, layers, grid // 4, 4)


def gemma4(f: Fields) -> Encoder:
    width, inner, layers, patch = _sizes(f)
    places = f.integer("position_embedding_size", default=10240)
    one = block(
        width, inner, gated=True, qkv_bias=False, o_bias=False, mlp_bias=False, norm=2, extra=2 * f.integer("head_dim")
    )
    found = 3 * patch * patch * width + 2 * places * width + layers * one
    return Encoder(found + (2 * width if f.flag("standardize") else 0), width, layers, 280)


def minimax_m3(f: Fields) -> Encoder:
    width, inner, layers, patch = _sizes(f)
    entry = 3 * f.integer("temporal_patch_size", default=2) * patch * patch * width + 2 * width
    return Encoder(entry + layers * block(width, inner), width, layers, 0, _merge(f) ** 2)


def step3(f: Fields) -> Encoder:
    """Step 3.7: two convolutions halve the grid twice."""
    width, layers, patch = f.integer("hidden_size"), f.integer("num_hidden_layers"), f.integer("patch_size")
    inner = f.integer("intermediate_size", default=round(width * f.number("mlp_ratio", default=4)))
    places = f.integer("max_position_embeddings", default=_places(f, patch))
    found = 3 * patch * patch * width + places * width + 2 * width + layers * block(width, inner, extra=2 * width)
    return Encoder(found + linear(9 * width, 2 * width) + linear(18 * width, 4 * width), width, layers, places // 16)


def _sizes(f: Fields) -> tuple[int, int, int, int]:
    """(width, inner width, layers, patch)."""
    return (
        f.integer("hidden_size"),
        f.integer("intermediate_size"),
        f.integer("num_hidden_layers"),
        f.integer("patch_size"),
    )


def _places(f: Fields, patch: int) -> int:
    return (f.integer("image_size") // patch) ** 2


def _square(value: object, default: int) -> int:
    """The side of a square that may be given as a pair."""
    if isinstance(value, list) and value:
        return int(value[0])
    return int(value) if isinstance(value, int) else default


def _merge(f: Fields) -> int:
    return f.integer("spatial_merge_size", default=2)


ENCODERS: dict[str, Callable[[Fields], Encoder]] = {
    "siglip_vision_model": siglip, "siglip2_vision_model": siglip, "idefics3_vision": siglip, "smolvlm_vision": siglip,
    "idefics3": siglip, "smolvlm": siglip, "clip_vision_model": clip, "pixtral": pixtral, "qwen2_vl": qwen2,
    "qwen2_vl_vision": qwen2, "qwen2_5_vl": qwen2_5, "qwen2_5_vl_vision": qwen2_5, "qwen2_5_omni_vision_encoder": qwen2_5,
    "qwen3_vl": qwen3, "qwen3_vl_vision": qwen3, "qwen3_vl_moe": qwen3, "qwen3_vl_moe_vision": qwen3,
    "qwen3_omni_moe_vision_encoder": qwen3, "qwen3_5": qwen3, "qwen3_5_vision": qwen3, "qwen3_5_moe": qwen3,
    "qwen3_5_moe_vision": qwen3, "glm4v": glm4v, "glm4v_vision": glm4v, "glm4v_moe": glm4v, "glm4v_moe_vision": glm4v,
    "glm5_next_vision": glm5_next, "llama4_vision_model": llama4, "mllama_vision_model": mllama,
    "internvl_vision": intern, "intern_vit_6b": intern, "kimi_k25_vision": moon, "kimi_k25": moon, "moonvit": moon,
    "gemma4_vision": gemma4, "minimax_m3_vl_vision": minimax_m3, "step3p5_vision": step3,
}  # fmt: skip
