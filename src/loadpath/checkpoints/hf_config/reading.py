"""A whole config.json → a shape: which family reads it, where its text model is, and how its weights are stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, cast

import msgspec

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config import stack
from loadpath.checkpoints.hf_config.eagle import eagle, is_draft
from loadpath.checkpoints.hf_config.family import FAMILIES, Family
from loadpath.checkpoints.hf_config.fields import Fields
from loadpath.checkpoints.hf_config.sane import check
from loadpath.checkpoints.hf_config.towers import towers
from loadpath.checkpoints.quantisation import note_of
from loadpath.checkpoints.quantisation import quantisation as read_quantisation
from loadpath.core.shape import ModelShape, Quantisation

Reader = Callable[[Fields], ModelShape]

READERS: dict[str, str] = {
    "bart": "seq2seq:bart", "mbart": "seq2seq:bart", "chatglm": "legacy:chatglm", "dbrx": "legacy:dbrx",
    "deepseek_v4": "sparse:deepseek_v4", "falcon": "legacy:falcon", "RefinedWeb": "legacy:falcon",
    "RefinedWebModel": "legacy:falcon", "gemma3n_text": "gemma:gemma3n", "gemma4_text": "gemma:gemma4",
    "gemma4_unified_text": "gemma:gemma4", "ernie4_5_vl_moe_text": "sparse:ernie4_5_vl",
    "glm5_next_text": "sparse:glm5_next", "lfm2": "convolution:lfm2",
    "lfm2_moe": "convolution:lfm2", "longcat_flash": "sparse:longcat_flash", "mimo_v2_flash": "sparse:mimo_v2_flash",
    "minimax": "convolution:minimax", "minimax_m1": "convolution:minimax", "minimax_text_01": "convolution:minimax",
    "minimax_m3_vl_text": "sparse:minimax_m3", "minimax_m3": "sparse:minimax_m3",
    "mllama_text_model": "seq2seq:mllama", "mt5": "seq2seq:t5",
    "nemotron-nas": "legacy:nemotron_nas", "persimmon": "legacy:persimmon", "qwen": "legacy:qwen1",
    "step3p5": "sparse:step3p5", "step3p7": "sparse:step3p5", "t5": "seq2seq:t5", "umt5": "seq2seq:t5", "whisper": "seq2seq:whisper",
    "zamba2": "legacy:zamba2",
}  # fmt: skip
"""model_type → module:function, for families that a row of `FAMILIES` does not describe."""

ALIASES: dict[str, str] = {
    "aquila": "llama", "yi": "llama", "Yi": "llama", "xverse": "llama", "orion": "llama", "solar": "llama",
    "iquestcoder": "llama", "granite_docling_text": "llama", "voxtral_realtime_text": "llama",
    "qwen2_vl_text": "qwen2", "qwen2_vl": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
    "qwen2_5_omni_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
    "glm4v_moe_text": "glm4_moe", "glm_ocr_text": "glm4", "hunyuan": "hunyuan_v1_moe",
    "kimi_k2": "deepseek_v3", "kimi_k25": "deepseek_v3", "deepseek": "deepseek_v2", "dots1": "dots1",
    "internlm": "internlm2", "baichuan_m1": "baichuan", "mistral_large4_text": "mistral4",
    "NemotronH_Nano_VL_V2": "nemotron_h", "phi4_multimodal": "phi3",
    "phi4mm": "phi3", "phi3_v": "phi3", "phi3small": "phi3", "minicpm": "llama", "deepseek_vl_v2": "deepseek_v2",
}  # fmt: skip
"""model_type → the family that reads it alike."""

ARCHITECTURES: dict[str, str] = {
    "MiniMaxM2ForCausalLM": "minimax_m2", "DeciLMForCausalLM": "nemotron-nas", "ExaoneForCausalLM": "exaone",
    "MiMoForCausalLM": "mimo",
    "QWenLMHeadModel": "qwen", "BaichuanForCausalLM": "baichuan", "BaiChuanForCausalLM": "baichuan",
    "ChatGLMModel": "chatglm", "ChatGLMForConditionalGeneration": "chatglm", "InternLM2ForCausalLM": "internlm2",
    "InternLM3ForCausalLM": "internlm3", "KimiLinearForCausalLM": "kimi_linear", "MiniCPM3ForCausalLM": "minicpm3",
}  # fmt: skip
"""For configurations whose model_type is missing or shared: the class → the family."""

_TIED = "tie_word_embeddings"
_UNGATED = frozenset({"relu", "relu2", "gelu_new", "gelu_fast"})
"""Activations that come with a plain feed-forward block in the architectures known so far."""
_LAYER_NORM = ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon")
ENCODERS = frozenset({
    "albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "eurobert", "gte", "modernbert", "mpnet",
    "nomic_bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "clip", "siglip", "vit", "dinov2", "wav2vec2",
})  # fmt: skip
"""Models that read a whole input at once and keep no cache."""
TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


_WIDTHS = (
    "hidden_size",
    "n_embd",
    "d_model",
    "dim",
    "hidden_dim",
    "model_dim",
    "embed_dim",
    "n_embed",
    "decoder_hidden_size",
)


def _unsized(text: Fields) -> str:
    """A configuration without the model's width describes whatever its class assumes."""
    if text.states(*_WIDTHS):
        return ""
    return f"{text.where} states no width: the sizes are those that the class {text.kind or 'itself'} assumes"


_DAMAGE = (TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, StopIteration)
"""What values of a wrong type in a damaged configuration make of its reading."""


def shape_of(
    config: Mapping[str, Any], where: str, name: str = "", quantisation: Mapping[str, Any] | None = None
) -> ModelShape:
    """The shape that `config` describes. `where` names the file in messages; `name` becomes the shape's id;
    `quantisation`: the content of hf_quant_config.json, where the model has one. ModelError where it cannot be read."""
    try:
        return _whole(config, where, name, quantisation)
    except ModelError:
        raise
    except (*_DAMAGE, ValueError) as error:
        raise ModelError(f"{where} cannot be read as a model's configuration: {error}") from error


def _whole(
    config: Mapping[str, Any], where: str, name: str = "", quantisation: Mapping[str, Any] | None = None
) -> ModelShape:
    top = Fields(config, where)
    architecture = str((config.get("architectures") or [""])[0])
    if top.kind in ENCODERS:
        raise ModelError(
            f"{where}: {architecture or top.kind} is an encoder without a KV cache: there is nothing to plan"
        )
    text = text_section(top)
    shape = eagle(text, architecture) if is_draft(architecture, text.data) else read_text(text, architecture)
    check(shape, where)
    stored = config.get("quantization_config") or config.get("compression_config")
    stored = stored or text.data.get("quantization_config") or text.data.get("compression_config")
    shape = msgspec.structs.replace(shape, towers=towers(top, shape.hidden))
    return msgspec.structs.replace(
        shape,
        id=name or str(config.get("_name_or_path") or "") or where,
        family=top.kind or shape.family,
        architecture=architecture or shape.architecture,
        source=where,
        quantisation=_quantised(shape, stored, quantisation, top, text),
        basis=shape.basis if text.states(*_WIDTHS) else "defaults",
        note="; ".join(filter(None, (shape.note, note_of(shape, stored, quantisation), _unsized(text)))),
    )


def _quantised(
    shape: ModelShape, stored: Any, modelopt: Mapping[str, Any] | None, top: Fields, text: Fields
) -> Quantisation | None:
    found = read_quantisation(shape, stored, modelopt)
    experts = top.text("expert_dtype") or text.text("expert_dtype")
    if found and found.method == "fp8" and experts == "fp4":  # DeepSeek-V4: FP8 everywhere, experts in MXFP4
        return msgspec.structs.replace(found, expert_format="mxfp4")
    return found


def text_section(top: Fields) -> Fields:
    """The section of the language model; keys of the whole model that it leaves out are handed down."""
    section = top.section(*TEXT)
    if section is None:
        return top
    outer, inner = top, section.section("text_config")
    if inner is not None:  # Qwen-Omni: the thinker holds text and encoders
        outer, section = section, inner
    data = dict(section.data)
    for key in ("dtype", "torch_dtype"):
        data.setdefault(key, outer.data.get(key) or top.data.get(key))
    # The output layer belongs to the whole model: what the outer section states counts.
    stated = [holder.data[_TIED] for holder in (outer, top) if holder.data.get(_TIED) is not None]
    if stated:
        data[_TIED] = stated[0]
    return Fields(data, section.where, section.kind or _text_kind(top))


def _text_kind(top: Fields) -> str:
    """The text model's type where its section does not say: `<type>_text` where such a family exists, else Llama."""
    for kind in (f"{top.kind}_text", ALIASES.get(top.kind, ""), top.kind):
        if kind in FAMILIES or kind in READERS or kind in ALIASES:
            return kind
    return "llama"


def read_text(f: Fields, architecture: str = "") -> ModelShape:
    """The language model of one section."""
    kind = f.kind
    kind = ARCHITECTURES.get(architecture, kind)
    kind = _known(kind) or _known(_snake(architecture)) or kind
    if place := READERS.get(kind):
        module, function = place.split(":")
        reader = cast("Reader", getattr(import_module(f"loadpath.checkpoints.hf_config.{module}"), function))
        return reader(f)
    if family := FAMILIES.get(kind):
        return stack.decoder(f, family)
    return guessed(f, architecture)


def _known(kind: str) -> str:
    """The family that reads `kind`; "" where none does."""
    return kind if kind in FAMILIES or kind in READERS else ALIASES.get(kind, "")


def _snake(architecture: str) -> str:
    """`DeepseekV4ForCausalLM` → `deepseek_v4`, as types are named after classes."""
    stem = re.sub(r"(?:For[A-Z]\w*|LMHeadModel|Model)$", "", architecture)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


def guessed(f: Fields, architecture: str) -> ModelShape:
    """An unknown architecture, read as a Llama-like decoder with the biases, norms and experts that its keys name."""
    if not any(f.states(key) for key in stack.LAYERS):
        raise ModelError(
            f"{f.where}: no layers found (`num_hidden_layers`), and the architecture "
            f"{architecture or f.kind or 'of this file'} is not known"
        )
    bias = next((key for key in ("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias") if f.states(key)), False)
    norm = next((key for key in ("use_qk_norm", "qk_norm", "qk_layernorm") if f.states(key)), "")
    family = Family(
        qkv_bias=bias,
        o_bias=bias if bias in ("attention_bias", "use_bias") else False,
        mlp_bias="mlp_bias",
        qk_norm="head" if norm else "none",
        qk_norm_key=norm,
        windows="upper" if f.states("max_window_layers") else "pattern",
        gated=f.text("hidden_act", "activation_function") not in _UNGATED,
        norm_vectors=2 if f.states(*_LAYER_NORM) and not f.states("rms_norm_eps") else 1,
        router_bias=f.text("topk_method") == "noaux_tc",
        linear=_recurrent_kind(f),
    )
    shape = stack.decoder(f, family)
    note = f"unknown architecture {architecture or f.kind}: read by the usual keys of a decoder; biases and norms are guessed"
    return msgspec.structs.replace(shape, basis="inferred", note=note)


def _recurrent_kind(f: Fields) -> Literal["", "gdn", "kda", "mamba1", "mamba2"]:
    """What the recurrent layers of an unknown hybrid are, by the keys that describe them."""
    if f.states("linear_num_value_heads"):
        return "gdn"
    if f.states("linear_attn_config"):
        return "kda"
    if f.states("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"):
        return "mamba2"
    return "mamba1" if f.states("mamba_d_state") else ""
