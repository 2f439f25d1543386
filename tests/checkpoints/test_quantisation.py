"""What checkpoints say of how they are stored, in the words of each tool that writes them."""

from __future__ import annotations

from typing import Any

import pytest

from loadpath.checkpoints.hf_config import shape_of
from loadpath.core.shape import Quantisation

MOE = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0], "vocab_size": 128,
    "tie_word_embeddings": False,
}  # fmt: skip
ALL = {"attention", "mlp", "experts"}


def scheme(section: dict[str, Any] | None, beside: dict[str, Any] | None = None, **config: Any) -> Quantisation:
    found = shape_of(MOE | config | {"quantization_config": section}, "config.json", quantisation=beside).quantisation
    assert found is not None
    return found


def test_nothing_said_is_nothing_quantised() -> None:
    assert shape_of(MOE, "config.json").quantisation is None


def test_fp8_by_block_and_by_tensor() -> None:
    block = scheme({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})
    assert (block.bits, block.type, block.strategy, block.block, block.activation_bits) == (
        8,
        "float",
        "block",
        (128, 128),
        8,
    )
    assert block.modules == ALL
    tensor = scheme({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head", "mlp.gate"]})
    assert tensor.strategy == "tensor"
    assert tensor.modules == ALL


def test_layers_left_out_are_kept_in_the_models_type() -> None:
    names = [f"model.layers.0.{part}" for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]  # fmt: skip
    assert scheme({"quant_method": "fp8", "modules_to_not_convert": names}).kept_layers == {0}


@pytest.mark.parametrize(
    "names",
    [
        ["re:.*self_attn.*", "lm_head"],
        ["*self_attn*", "lm_head"],
        ["model.layers.*.self_attn", "model.layers.*.self_attn.*"],
        [f"model.layers.{i}.self_attn.{x}_proj" for i in range(4) for x in "qkvo"],
        ["self_attn"],
    ],
)  # fmt: skip
def test_attention_left_out_in_every_spelling(names: list[str]) -> None:
    assert scheme({"quant_method": "fp8", "modules_to_not_convert": names}).modules == {"mlp", "experts"}


def test_gptq_and_awq() -> None:
    gptq = scheme({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True})
    assert (gptq.bits, gptq.group_size, gptq.desc_act, gptq.zero_point, gptq.strategy) == (4, 128, True, False, "group")
    assert scheme({"quant_method": "gptq", "bits": 8, "group_size": -1}).strategy == "channel"
    part = scheme({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}})
    assert part.modules == {"mlp", "experts"}
    awq = scheme({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"})
    assert (awq.group_size, awq.zero_point) == (64, True)


def test_compressed_tensors_groups() -> None:
    weights = {
        "num_bits": 4,
        "type": "int",
        "strategy": "group",
        "group_size": 32,
        "symmetric": False,
        "actorder": None,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    found = scheme({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                    "config_groups": {"group_0": group}, "kv_cache_scheme": {"num_bits": 8, "type": "float"}})  # fmt: skip
    assert (found.bits, found.group_size, found.zero_point, found.activation_bits, found.kv_bits) == (4, 32, True, 0, 8)
    assert found.modules == ALL
    eight = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    dynamic = {"targets": ["Linear"], "weights": eight, "input_activations": {"num_bits": 8, "strategy": "token"}}
    found = scheme({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": dynamic}})
    assert (found.type, found.strategy, found.activation_bits) == ("float", "channel", 8)
    assert "lm_head" in found.modules  # nothing excludes it


def test_a_mixed_checkpoint_has_fp8_beside_four_bits() -> None:
    four = {"targets": ["re:.*experts.*", "re:.*mlp.(gate|up|down)_proj"], "format": "nvfp4-pack-quantized",
            "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            "input_activations": {"num_bits": 4}}  # fmt: skip
    eight = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    found = scheme(
        {"quant_method": "compressed-tensors", "config_groups": {"a": eight, "b": four}, "ignore": ["lm_head"]}
    )
    assert (found.bits, found.format, found.group_size) == (4, "nvfp4", 16)
    assert found.modules == {"mlp", "experts"}
    assert found.fp8_modules == {"attention"}


def test_modelopt_beside_the_configuration_and_in_it() -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}}  # fmt: skip
    found = scheme(None, beside)
    assert (found.method, found.format, found.group_size, found.kv_bits) == ("modelopt", "nvfp4", 16, 8)
    assert found.modules == {"mlp", "experts"}
    inside = scheme({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]})
    assert (inside.bits, inside.strategy) == (8, "tensor")
    assert inside.modules == ALL


def test_modelopt_mixes_by_layer() -> None:
    layers = {f"model.layers.{i}.mlp.experts.0.{x}": {"quant_algo": "NVFP4", "group_size": 16}
              for i in range(1, 4) for x in ("gate_proj", "up_proj", "down_proj")}  # fmt: skip
    layers |= {f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"} for i in range(4) for x in "qkvo"}
    found = scheme({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert found.format == "nvfp4"
    assert found.modules == {"experts"}
    assert found.fp8_modules == {"attention"}


def test_experts_alone_in_mxfp4() -> None:
    found = scheme({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
    assert (found.format, found.group_size) == ("mxfp4", 32)
    assert found.modules == {"experts"}
    both = scheme({"quant_method": "fp8", "weight_block_size": [128, 128]}, expert_dtype="fp4")
    assert both.expert_format == "mxfp4"


def test_the_other_tools() -> None:
    bnb = scheme({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                  "llm_int8_skip_modules": ["lm_head"]})  # fmt: skip
    assert (bnb.bits, bnb.format, bnb.group_size) == (4, "nf4", 64)
    assert scheme({"quant_method": "bitsandbytes", "load_in_8bit": True}).bits == 8
    rounded = scheme({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int",
                      "extra_config": {"model.layers.0.self_attn.q_proj": {"bits": 16}}})  # fmt: skip
    assert (rounded.bits, rounded.group_size, rounded.type) == (4, 128, "int")
    quark = scheme({"quant_method": "quark", "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, "input_tensors": {"dtype": "fp8_e4m3"}},
        "exclude": ["lm_head"]})  # fmt: skip
    assert (quark.bits, quark.type, quark.activation_bits, quark.strategy) == (8, "float", 8, "tensor")
    ao = scheme(
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}},
        }
    )
    assert (ao.bits, ao.group_size) == (4, 64)
    assert scheme({"quant_method": "hqq", "nbits": 3, "group_size": 64}).bits == 3
    assert scheme({"quant_method": "novel"}).method == "novel"


def test_parts_that_are_quantised_in_part_are_said() -> None:
    names = [f"model.layers.{i}.self_attn.{x}_proj" for i in range(4) for x in "qk"]
    shape = shape_of(MOE | {"quantization_config": {"quant_method": "fp8", "ignored_layers": names}}, "config.json")
    assert "some modules of attention are left unquantised" in shape.note


def test_experts_of_modelopt_in_an_fp8_checkpoint() -> None:
    section = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "moe_quant_algo": "NVFP4",
        "ignore": ["*.attn.*"],
    }
    found = scheme(section, expert_dtype="fp4")
    assert (found.format, found.expert_format) == ("nvfp4", "")
    assert found.modules == {"experts"}
    assert found.fp8_modules == {"attention", "mlp"}


def test_experts_beside_a_dense_block_are_no_part_of_it() -> None:
    gemma = {"model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "enable_moe_block": True, "num_experts": 8,
             "top_k_experts": 2, "moe_intermediate_size": 32, "hidden_size_per_layer_input": 0, "vocab_size": 128}  # fmt: skip
    names = [
        "lm_head",
        *(f"model.language_model.layers.{i}.{part}*" for i in range(6) for part in ("mlp", "self_attn")),
    ]
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": names}
    found = shape_of(gemma | {"quantization_config": section}, "config.json").quantisation
    assert found is not None
    assert found.modules == {"experts"}


def test_nemotrons_mixers_are_told_apart() -> None:
    nemotron = {"model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "M*E-M", "num_hidden_layers": 5,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
                "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "n_routed_experts": 4,
                "num_experts_per_tok": 2, "moe_intermediate_size": 32, "vocab_size": 128}  # fmt: skip
    names = [f"backbone.layers.1.mixer.{x}_proj" for x in "qkvo"]
    names += ["backbone.layers.0.mixer.in_proj", "backbone.layers.0.mixer.out_proj", "backbone.layers.3.mixer.up_proj",
              "backbone.layers.3.mixer.down_proj", "lm_head"]  # fmt: skip
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": names}
    found = shape_of(nemotron | {"quantization_config": section}, "config.json").quantisation
    assert found is not None
    assert found.modules == {"experts", "shared-experts", "recurrent"}
    assert found.kept_layers == {0}
