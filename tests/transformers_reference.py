"""What `transformers` itself counts: a model of each architecture on the meta device, its configuration and parameters.

    python tests/transformers_reference.py data       # writes data/transformers.json (needs torch and transformers)
    python tests/transformers_reference.py defaults   # writes hf_config/defaults.json

The usual tests compare against the written data; where `transformers` is installed, against the library as it is.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE / "checkpoints" / "data" / "transformers.json"
SOURCE = HERE.parent / "src" / "loadpath" / "checkpoints"
_NOISE = re.compile(
    r"token|dropout|_pdrop|initializer|^use_cache$|^return_dict|^output_|^id2|^label2|_name_or_path|version"
)

# model_type:class, with the configuration class's defaults
DEFAULTS = """
afmoe:AfmoeForCausalLM apertus:ApertusForCausalLM arcee:ArceeForCausalLM bamba:BambaForCausalLM
bart:BartForConditionalGeneration bloom:BloomForCausalLM cohere:CohereForCausalLM cohere2:Cohere2ForCausalLM
cohere2_vision:Cohere2VisionForConditionalGeneration cwm:CwmForCausalLM deepseek_v3:DeepseekV3ForCausalLM
deepseek_v32:DeepseekV32ForCausalLM deepseek_v4:DeepseekV4ForCausalLM ernie4_5:Ernie4_5ForCausalLM
ernie4_5_moe:Ernie4_5_MoeForCausalLM exaone:LlamaForCausalLM exaone4:Exaone4ForCausalLM
exaone_moe:ExaoneMoeForCausalLM falcon:FalconForCausalLM falcon_h1:FalconH1ForCausalLM
falcon_mamba:FalconMambaForCausalLM flex_olmo:FlexOlmoForCausalLM gemma:GemmaForCausalLM gemma2:Gemma2ForCausalLM
gemma3:Gemma3ForConditionalGeneration gemma3_text:Gemma3ForCausalLM gemma3n:Gemma3nForConditionalGeneration
gemma4:Gemma4ForConditionalGeneration glm:GlmForCausalLM glm4:Glm4ForCausalLM glm4_moe:Glm4MoeForCausalLM
glm4_moe_lite:Glm4MoeLiteForCausalLM glm4v:Glm4vForConditionalGeneration glm4v_moe:Glm4vMoeForConditionalGeneration
glm5_next:Glm5NextForConditionalGeneration glm_moe_dsa:GlmMoeDsaForCausalLM gpt2:GPT2LMHeadModel
gpt_bigcode:GPTBigCodeForCausalLM gpt_neox:GPTNeoXForCausalLM gpt_oss:GptOssForCausalLM gptj:GPTJForCausalLM
granite:GraniteForCausalLM granitemoe:GraniteMoeForCausalLM granitemoehybrid:GraniteMoeHybridForCausalLM
granitemoeshared:GraniteMoeSharedForCausalLM helium:HeliumForCausalLM hy_v3:HYV3ForCausalLM
idefics3:Idefics3ForConditionalGeneration internlm3:LlamaForCausalLM internvl:InternVLForConditionalGeneration
jamba:JambaForCausalLM kimi_k25:Kimi_K25ForConditionalGeneration kimi_linear:KimiLinearForCausalLM
lfm2:Lfm2ForCausalLM lfm2_vl:Lfm2VlForConditionalGeneration llama:LlamaForCausalLM
llama4:Llama4ForConditionalGeneration llava:LlavaForConditionalGeneration llava_next:LlavaNextForConditionalGeneration
llava_onevision:LlavaOnevisionForConditionalGeneration mamba:MambaForCausalLM mamba2:Mamba2ForCausalLM
mbart:MBartForConditionalGeneration mimo_v2_flash:MiMoV2FlashForCausalLM minicpm3:MiniCPM3ForCausalLM
minimax:MiniMaxForCausalLM minimax_m2:MiniMaxM2ForCausalLM minimax_m3_vl:MiniMaxM3SparseForConditionalGeneration
ministral3:Ministral3ForCausalLM mistral:MistralForCausalLM mistral3:Mistral3ForConditionalGeneration
mistral4:Mistral4ForCausalLM mixtral:MixtralForCausalLM mllama:MllamaForConditionalGeneration mpt:MptForCausalLM
mt5:MT5ForConditionalGeneration nemotron_h:NemotronHForCausalLM olmo:OlmoForCausalLM olmo2:Olmo2ForCausalLM
olmo3:Olmo3ForCausalLM olmoe:OlmoeForCausalLM opt:OPTForCausalLM paligemma:PaliGemmaForConditionalGeneration
persimmon:PersimmonForCausalLM phi:PhiForCausalLM phi3:Phi3ForCausalLM phimoe:PhimoeForCausalLM qwen2:Qwen2ForCausalLM
qwen2_5_omni_thinker:Qwen2_5OmniThinkerForConditionalGeneration qwen2_5_vl:Qwen2_5_VLForConditionalGeneration
qwen2_audio:Qwen2AudioForConditionalGeneration qwen2_moe:Qwen2MoeForCausalLM qwen2_vl:Qwen2VLForConditionalGeneration
qwen3:Qwen3ForCausalLM qwen3_5:Qwen3_5ForConditionalGeneration qwen3_5_moe:Qwen3_5MoeForConditionalGeneration
qwen3_moe:Qwen3MoeForCausalLM qwen3_next:Qwen3NextForCausalLM
qwen3_omni_moe_thinker:Qwen3OmniMoeThinkerForConditionalGeneration qwen3_vl:Qwen3VLForConditionalGeneration
qwen3_vl_moe:Qwen3VLMoeForConditionalGeneration seed_oss:SeedOssForCausalLM smollm3:SmolLM3ForCausalLM
smolvlm:SmolVLMForConditionalGeneration solar_open:SolarOpenForCausalLM stablelm:StableLmForCausalLM
starcoder2:Starcoder2ForCausalLM step3p7:Step3p7ForConditionalGeneration t5:T5ForConditionalGeneration
umt5:UMT5ForConditionalGeneration vaultgemma:VaultGemmaForCausalLM voxtral:VoxtralForConditionalGeneration
cohere2_moe:Cohere2MoeForCausalLM flint:FlintForCausalLM granite_swa:GraniteSWAForCausalLM
granitemoe_swa:GraniteMoeSWAForCausalLM jais2:Jais2ForCausalLM kolibri1:Kolibri1ForCausalLM lara_mini:LaraMiniForCausalLM
mellum:MellumForCausalLM hyperclovax:HyperCLOVAXForCausalLM whisper:WhisperForConditionalGeneration zamba2:Zamba2ForCausalLM
"""
_HYBRID = (["conv"] * 3 + ["full_attention"]) * 4
# name → model_type, class, settings: the other branches of a family
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bamba+attention": ("bamba", "BambaForCausalLM", {"attn_layer_indices": [9, 18, 27]}),
    "cohere+norm": ("cohere", "CohereForCausalLM", {"use_qk_norm": True, "num_key_value_heads": 8}),
    "deepseek_v2": ("deepseek_v2", "DeepseekV2ForCausalLM", {
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_intermediate_size": 1408}),
    "deepseek_v2+lite": ("deepseek_v2", "DeepseekV2ForCausalLM", {
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "q_lora_rank": None,
        "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 27}),
    "dots1": ("dots1", "Dots1ForCausalLM", {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6}),
    "ernie4_5_moe+shared": ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", {
        "moe_num_shared_experts": 2, "moe_layer_start_index": 3}),
    "falcon+grouped": ("falcon", "FalconForCausalLM", {
        "new_decoder_architecture": True, "num_kv_heads": 8, "hidden_size": 8192, "num_attention_heads": 128,
        "num_hidden_layers": 4, "ffn_hidden_size": None}),
    "falcon+alibi": ("falcon", "FalconForCausalLM", {
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "hidden_size": 2048,
        "num_attention_heads": 32, "num_hidden_layers": 4, "ffn_hidden_size": None}),
    "gemma4+experts": ("gemma4_text", "Gemma4ForCausalLM", {
        "enable_moe_block": True, "num_experts": 16, "top_k_experts": 4, "moe_intermediate_size": 704,
        "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 2}),
    "gemma4+shared": ("gemma4_text", "Gemma4ForCausalLM", {"num_kv_shared_layers": 12, "use_double_wide_mlp": True}),
    "granitemoehybrid+dense": ("granitemoehybrid", "GraniteMoeHybridForCausalLM", {
        "num_local_experts": 0, "layer_types": (["mamba"] * 5 + ["attention"]) * 5 + ["mamba", "mamba"],
        "shared_intermediate_size": 8192}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", {"head_dim": 128}),
    "kimi_vl+text": ("deepseek_v3", "DeepseekV3ForCausalLM", {
        "n_shared_experts": 2, "hidden_size": 2048, "num_hidden_layers": 27, "first_k_dense_replace": 1,
        "n_routed_experts": 64, "q_lora_rank": None, "num_attention_heads": 16, "num_key_value_heads": 16,
        "moe_intermediate_size": 1408}),
    "lfm2+convolutions": ("lfm2", "Lfm2ForCausalLM", {"layer_types": _HYBRID, "num_hidden_layers": 16}),
    "lfm2_moe": ("lfm2_moe", "Lfm2MoeForCausalLM", {"layer_types": _HYBRID, "num_hidden_layers": 16}),
    "llama4+dense": ("llama4_text", "Llama4ForCausalLM", {
        "num_local_experts": 128, "interleave_moe_layer_step": 2, "num_hidden_layers": 8}),
    "minimax_m3+sparse": ("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", {
        "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57}),
    "nemotron_h+latent": ("nemotron_h", "NemotronHForCausalLM", {
        "layers_block_type": ["mamba", "moe", "attention", "moe"] * 4, "moe_latent_size": 1024,
        "n_routed_experts": 16}),
    "stablelm+parallel": ("stablelm", "StableLmForCausalLM", {
        "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True}),
}  # fmt: skip
Case = tuple[str, str, dict[str, Any]]


def cases() -> dict[str, Case]:
    """Name → (model_type, class, settings)."""
    plain = (entry.split(":") for entry in DEFAULTS.split())
    return {kind: (kind, name, {}) for kind, name in plain} | VARIANTS


def build(case: Case) -> tuple[dict[str, Any], int]:
    """(config.json's content, parameters with the routers' correction biases) of a model without storage."""
    torch, transformers = import_module("torch"), import_module("transformers")
    kind, name, settings = case
    configuration = transformers.AutoConfig.for_model(kind, **settings)
    with torch.device("meta"):
        model = getattr(transformers, name)._from_config(configuration)
    parameters = {id(p): p.numel() for p in model.parameters()}
    corrections = sum(
        buffer.numel()
        for key, buffer in model.named_buffers()
        if key.endswith(("e_score_correction_bias", "expert_bias")) and id(buffer) not in parameters
    )
    return reduced({**configuration.to_dict(), "architectures": [name]}), sum(parameters.values()) + corrections


def reduced(config: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing of the shape."""
    plain = json.loads(json.dumps(config, default=str).replace("Infinity", "1e999"))
    return {
        key: reduced(value) if isinstance(value, dict) else value
        for key, value in plain.items()
        if not _NOISE.search(key) and value != 1e999
    }


def words() -> set[str]:
    """Every key that the readers ask for."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    return set(re.findall(r'"([A-Za-z_0-9-]+)"', text)) - {"model_type", "dtype", "torch_dtype", "architectures"}


def class_defaults() -> dict[str, dict[str, Any]]:
    """model_type → what its configuration class itself sets, for the types and keys that the readers know. Values that
    a class derives from others (heads from widths) are no defaults."""
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    known, found = words(), dict[str, dict[str, Any]]()
    for kind in mapping:
        if kind in known:
            fields = getattr(mapping[kind], "__dataclass_fields__", {})
            row = {name: field.default for name, field in fields.items() if name in known and _plain(field.default)}
            if row:
                found[str(kind)] = row
    return found


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, bool))


def _lines(table: dict[str, Any]) -> str:
    rows = (f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(table.items()))
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> None:
    if sys.argv[1:] == ["defaults"]:
        (SOURCE / "hf_config" / "defaults.json").write_text(_lines(class_defaults()), "utf-8")
        return
    table = {}
    for name, case in cases().items():
        config, parameters = build(case)
        table[name] = {"parameters": parameters, "config": config}
        print(name, parameters, file=sys.stderr)
    DATA.write_text(_lines(table), "utf-8")


if __name__ == "__main__":
    main()
