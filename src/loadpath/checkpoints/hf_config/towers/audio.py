"""Audio encoders by their `model_type`."""

from __future__ import annotations

from collections.abc import Callable

from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.towers.blocks import block, linear
from loadpath.checkpoints.hf_config.towers.vision import Encoder


def whisper(f: Fields) -> Encoder:
    """Whisper's encoder: two convolutions, fixed positions, keys without bias (Qwen2-Audio, Voxtral)."""
    found, width, layers = _layers(f)
    mels, places = f.integer("num_mel_bins", default=128), f.integer("max_source_positions", default=1500)
    found += 3 * width * (mels + width) + 2 * width + places * width
    return Encoder(found, width, layers, places // 2)


def qwen2_5_omni(f: Fields) -> Encoder:
    """Positions are computed; the projection to the language model and two marks are part of it."""
    found, width, layers = _layers(f)
    mels, out = f.integer("num_mel_bins", default=128), f.integer("output_dim")
    found += 3 * width * (mels + width) + 2 * width + linear(width, out) + 2 * out
    return Encoder(found, width, layers, 750, projected=True)


def qwen3_omni(f: Fields) -> Encoder:
    """Three two-dimensional convolutions over the spectrum, then Whisper's layers."""
    found, width, layers = _layers(f)
    channels, mels, out = (
        f.integer("downsample_hidden_size"),
        f.integer("num_mel_bins", default=128),
        f.integer("output_dim"),
    )
    height = mels
    for _ in range(3):
        height = (height + 1) // 2
    found += linear(9, channels) + 2 * linear(9 * channels, channels) + channels * height * width
    return Encoder(found + linear(width, width) + linear(width, out), width, layers, 0, projected=True)


def gemma4(f: Fields) -> Encoder:
    """A conformer of 12 layers behind two convolutions."""
    width, layers, out = f.integer("hidden_size"), f.integer("num_hidden_layers"), f.integer("output_proj_dims")
    first, second = f.items("subsampling_conv_channels") or (128, 32)
    one = _conformer(width, f.integer("conv_kernel_size", default=5), width // f.integer("num_attention_heads"))
    entry = 9 * first + first + 9 * first * second + second + second * 32 * width
    return Encoder(entry + layers * one + linear(width, out), width, layers, 0)


def gemma3n(f: Fields) -> Encoder:
    width, layers = f.integer("hidden_size"), f.integer("conf_num_hidden_layers", default=12)
    first, second = f.items("sscp_conv_channel_size") or (128, 32)
    heads = f.integer("conf_num_attention_heads", default=8)
    one = _conformer(width, f.integer("conf_conv_kernel_size", default=5), width // heads)
    entry = 9 * first + first + 9 * first * second + second + second * 32 * width
    return Encoder(entry + layers * one, width, layers, 188)


def _conformer(width: int, kernel: int, head: int) -> int:
    """Two half feed-forwards, attention with relative positions, a convolution, and the norms between them."""
    feed = 2 * (8 * width * width + 2 * width)
    attention = 5 * width * width + head + 2 * width
    convolution = 3 * width * width + kernel * width + 2 * width
    return feed + attention + convolution + width


def _layers(f: Fields) -> tuple[int, int, int]:
    """(parameters of the layers and the last norm, width, layers)."""
    width = f.integer("d_model", "hidden_size")
    layers = f.integer("encoder_layers", "num_hidden_layers")
    inner = f.integer("encoder_ffn_dim", "intermediate_size")
    keyless = f.kind not in ("qwen3_omni_moe_audio_encoder",)
    one = block(width, inner, extra=-width if keyless else 0)
    return layers * one + 2 * width, width, layers


ENCODERS: dict[str, Callable[[Fields], Encoder]] = {
    "whisper": whisper, "qwen2_audio_encoder": whisper, "voxtral_encoder": whisper,
    "qwen2_5_omni_audio_encoder": qwen2_5_omni, "qwen3_omni_moe_audio_encoder": qwen3_omni,
    "gemma4_audio": gemma4, "gemma3n_audio": gemma3n,
}  # fmt: skip
