"""Which encoders a configuration has, and what joins them to the language model."""

from __future__ import annotations

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.towers import audio, vision
from loadpath.checkpoints.hf_config.towers.blocks import linear
from loadpath.checkpoints.hf_config.towers.vision import Encoder
from loadpath.core.shape import Tower

_VISION_KIND = {
    "internvl_chat": "intern_vit_6b",
    "kimi_vl": "moonvit",
    "gemma3n": "gemma3n_vision",
    "gemma4": "gemma4_vision",
}
_AUDIO_KIND = {"gemma3n": "gemma3n_audio", "gemma4": "gemma4_audio"}
_KNOWN = frozenset({
    "gemma3", "shieldgemma2", "gemma4", "paligemma", "mistral3", "llama4", "mllama", "internvl", "internvl_chat",
    "kimi_k25", "kimi_vl", "idefics3", "smolvlm", "lfm2_vl", "cohere2_vision", "minimax_m3_vl", "step3p7",
    "llava_next", "llava_next_video", "llava_onevision", "llava", "deepseek_vl", "glm5_next",
})  # fmt: skip
"""Models whose projector is known; of others two linear layers are assumed."""
MOBILENET = 294_126_912
"""Parameters of Gemma 3n's vision encoder (MobileNet-V5-300M); its configuration states no sizes."""
_FIXED = {"DeepseekOCRForCausalLM": 401_372_160, "Phi3VForCausalLM": 325_541_888}
"""Encoders whose configuration does not state their sizes: SAM-B and CLIP-L of DeepSeek-OCR, CLIP-L of Phi-3-vision, with
their projectors (as the published totals leave them)."""
_SOFT = 128
"""Rows of Gemma 3n's embedding of vision and audio marks."""


def towers(top: Fields, hidden: int) -> tuple[Tower, ...]:
    """The encoders of a model whose language model is `hidden` wide."""
    found: list[Tower] = []
    root = top.section("thinker_config") or top
    section = root.section("vision_config", "vision_encoder_config")
    if section is not None:
        section = Fields(section.data, section.where, section.kind or _VISION_KIND.get(top.kind, f"{top.kind}_vision"))
        found.append(_vision(root, section, hidden))
    if (architecture := str((top.data.get("architectures") or [""])[0])) in _FIXED:
        found = [Tower("vision", _FIXED[architecture])]
    section = root.section("audio_config", "audio_encoder_config")
    if section is not None:
        section = Fields(section.data, section.where, section.kind or _AUDIO_KIND.get(top.kind, ""))
        found.append(_audio(root, section, hidden))
    return tuple(found)


def _vision(top: Fields, f: Fields, hidden: int) -> Tower:
    if f.kind == "gemma3n_vision":
        size = 2048
        extra = _SOFT * size + 2 * size + size * hidden
        return Tower("vision", MOBILENET + extra, hidden=size, tokens=256)
    read = vision.ENCODERS.get(f.kind)
    if read is None:
        return _guessed(f, hidden)
    encoder = read(f)
    joined, tokens = _projector(top, f, encoder, hidden)
    known = encoder.projected or top.kind in _KNOWN
    return Tower(
        "vision", encoder.parameters + joined, assumed=not known, hidden=encoder.hidden, layers=encoder.layers,
        tokens=tokens,
    )  # fmt: skip


def _projector(top: Fields, f: Fields, encoder: Encoder, hidden: int) -> tuple[int, int]:
    """(parameters between encoder and language model, tokens of one image after it)."""
    width, tokens = encoder.hidden, encoder.tokens
    if encoder.projected:
        return 0, tokens
    match top.kind:
        case "gemma3" | "shieldgemma2":
            return width * hidden + width, top.integer("mm_tokens_per_image", default=256)
        case "gemma4":
            return width * hidden, top.integer("vision_soft_tokens_per_image", default=tokens)
        case "paligemma":
            return linear(width, hidden), tokens
        case "mistral3":
            merge = top.integer("spatial_merge_size", default=2)
            bias = top.flag("multimodal_projector_bias")
            joined = width + merge * merge * width * width + linear(width, hidden, bias) + linear(hidden, hidden, bias)
            side = f.integer("image_size", default=1540) // f.integer("patch_size", default=14) // merge
            return joined, side * (side + 1)
        case "llama4":
            return f.integer("vision_output_dim") * hidden, tokens
        case "mllama":
            return linear(f.integer("vision_output_dim"), hidden), tokens
        case "internvl" | "internvl_chat":
            wide = 4 * width
            tiles = top.integer("max_dynamic_patch", default=12) + 1
            return 2 * wide + linear(wide, hidden) + linear(hidden, hidden), tokens * tiles
        case "kimi_k25" | "kimi_vl":
            wide = width * encoder.merged
            return 2 * width + linear(wide, wide) + linear(wide, hidden), tokens
        case "idefics3" | "smolvlm":
            factor = top.integer("scale_factor", default=2) ** 2
            return factor * width * hidden, tokens // factor
        case "lfm2_vl":
            wide = width * top.integer("downsample_factor", default=2) ** 2
            inner = top.integer("projector_hidden_size", default=hidden)
            norm = 2 * wide if top.flag("projector_use_layernorm", default=True) else 0
            return norm + linear(wide, inner) + linear(inner, hidden), tokens // 4
        case "cohere2_vision":
            wide = width * top.integer("downsample_factor", default=2) ** 2
            inner = top.integer("alignment_intermediate_size", default=36864)
            return linear(wide, inner) + linear(inner // 2, hidden), tokens // 4
        case "minimax_m3_vl":
            return linear(width, hidden) + 2 * linear(hidden, hidden) + linear(4 * hidden, hidden), tokens
        case "step3p7":
            return 4 * width * hidden, tokens
        case "llava_next" | "llava_next_video" | "llava_onevision":
            return linear(width, hidden) + linear(hidden, hidden) + hidden, 5 * tokens
        case _:
            bias = top.flag("multimodal_projector_bias", default=True)
            return linear(width, hidden, bias) + linear(hidden, hidden, bias), tokens


def _audio(top: Fields, f: Fields, hidden: int) -> Tower:
    read = audio.ENCODERS.get(f.kind)
    if read is None:
        return _guessed(f, hidden, "audio")
    encoder = read(f)
    width, joined = encoder.hidden, 0
    if f.kind == "voxtral_encoder":
        joined = 4 * width * hidden + hidden * hidden
    elif f.kind == "gemma4_audio":
        joined = f.integer("output_proj_dims") * hidden
    elif f.kind == "gemma3n_audio":
        joined = _SOFT * width + 2 * width + width * hidden
    elif not encoder.projected:
        joined = linear(width, hidden)
    return Tower("audio", encoder.parameters + joined, hidden=width, layers=encoder.layers, tokens=encoder.tokens)


def _guessed(f: Fields, hidden: int, kind: str = "vision") -> Tower:
    """An encoder without a formula: a plain transformer of its stated sizes, and two layers to the language model."""
    try:
        width = f.integer("hidden_size", "embed_dim", "d_model", "width", "vt_hidden_size")
        layers = f.integer("num_hidden_layers", "depth", "encoder_layers", "layers", "n_layers", "vt_num_hidden_layers")
        inner = f.integer("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size", default=4 * width)
    except ModelError:
        return Tower("audio" if kind == "audio" else "vision", 0, assumed=True)
    found = layers * (4 * width * width + 2 * width * inner) + width * hidden + hidden * hidden
    return Tower("audio" if kind == "audio" else "vision", found, assumed=True, hidden=width, layers=layers)
