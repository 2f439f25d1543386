"""Mistral's own layout, `params.json` beside `consolidated*.safetensors`, in the words of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads", "head_dim": "head_dim",
    "n_kv_heads": "num_key_value_heads", "hidden_dim": "intermediate_size", "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings", "max_seq_len": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings", "q_lora_rank": "q_lora_rank", "kv_lora_rank": "kv_lora_rank",
    "qk_rope_head_dim": "qk_rope_head_dim", "qk_nope_head_dim": "qk_nope_head_dim", "v_head_dim": "v_head_dim",
}  # fmt: skip
_EXPERTS = {
    "num_experts": "num_local_experts", "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size", "num_shared_experts": "n_shared_experts",
    "first_k_dense_replace": "first_k_dense_replace",
}  # fmt: skip
_VISION = {
    "hidden_size": "hidden_size", "num_hidden_layers": "num_hidden_layers", "intermediate_size": "intermediate_size",
    "num_attention_heads": "num_attention_heads", "image_size": "image_size", "patch_size": "patch_size",
    "spatial_merge_size": "spatial_merge_size",
}  # fmt: skip
LONGEST = 128_000
"""Positions where the file states none: what vLLM assumes for this layout."""


def config_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json that says the same."""
    text: dict[str, Any] = {ours: params[theirs] for theirs, ours in _NAMES.items() if theirs in params}
    text.setdefault("max_position_embeddings", LONGEST)
    text |= {"sliding_window": params.get("sliding_window"), "tie_word_embeddings": bool(params.get("tied_embeddings"))}
    moe = params.get("moe")
    if isinstance(moe, Mapping):
        text |= {ours: moe[theirs] for theirs, ours in _EXPERTS.items() if theirs in moe}
    kind = "mistral4" if "kv_lora_rank" in params else "mixtral" if moe else "mistral"
    text |= {"model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"]}
    if yarn := params.get("yarn"):
        text["rope_scaling"] = {
            "rope_type": "yarn", "factor": yarn.get("factor"),
            "original_max_position_embeddings": yarn.get("original_max_position_embeddings"),
        }  # fmt: skip
    if str((params.get("quantization") or {}).get("qformat_weight", "")).startswith("fp8"):
        text["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "static",
            "ignored_layers": ["lm_head"],
        }
    encoder = params.get("vision_encoder")
    if not isinstance(encoder, Mapping):
        return text
    vision = {ours: encoder[theirs] for theirs, ours in _VISION.items() if theirs in encoder}
    whole = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}
    if "spatial_merge_size" in vision:
        whole["spatial_merge_size"] = vision.pop("spatial_merge_size")
    return whole | {
        "vision_config": vision | {"model_type": "pixtral"},
        "tie_word_embeddings": text["tie_word_embeddings"],
    }
