"""Configurations of Hugging Face models, against what `transformers` counts and what their files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.hf_config import shape_of
from loadpath.core.shape import Attention, Experts, GatedDelta, LatentAttention, ModelShape
from loadpath.knowledge.models import model
from loadpath.planning.parameters import parameters

HERE = Path(__file__).parent
COUNTED: dict[str, Any] = json.loads((HERE / "data" / "transformers.json").read_text("utf-8"))
SMALL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 512}  # fmt: skip


def corrections(shape: ModelShape) -> int:
    """Router biases that checkpoints hold and the model class of a few families does not."""
    return sum(
        feed.count
        for layer in shape.layers
        for feed in layer.feeds
        if isinstance(feed, Experts) and feed.router_bias and not feed.expert_bias
    )


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_equal_those_of_transformers(name: str) -> None:
    row = COUNTED[name]
    shape = shape_of(row["config"], name)
    assert shape.basis == "config"
    assert not any(tower.assumed for tower in shape.towers)
    # Of Gemma 3n the library drops the unused key and value projections that its files hold (15 layers).
    total = parameters(shape).total - (15 * (2 * 512 * 2048 + 256) if name == "gemma3n" else 0)
    assert row["parameters"] in (total, total - corrections(shape))


def test_a_missing_field_is_named_with_its_file() -> None:
    broken = {key: value for key, value in SMALL.items() if key != "hidden_size"} | {"model_type": "unheard-of"}
    with pytest.raises(ModelError, match=r"models/x/config\.json: no `hidden_size`"):
        shape_of(broken, "models/x/config.json")


def test_an_absent_field_takes_the_default_of_its_class_and_null_means_unset() -> None:
    text = {
        "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "intermediate_size": 10240},
    }
    attention = shape_of(text, "config.json").layers[0].mixers[0]
    assert isinstance(attention, Attention)
    assert (attention.heads, attention.kv_heads, attention.head_dim, attention.window) == (8, 4, 256, 4096)
    unset = SMALL | {"model_type": "mistral", "sliding_window": None, "num_key_value_heads": None}
    attention = shape_of(unset, "config.json").layers[0].mixers[0]
    assert isinstance(attention, Attention)
    assert (attention.window, attention.kv_heads) == (0, 4)


def test_what_a_class_derives_is_derived_and_not_taken_from_its_default_size() -> None:
    attention = shape_of(SMALL, "config.json").layers[0].mixers[0]
    assert isinstance(attention, Attention)
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (4, 4, 16)


def test_another_spelling_of_a_key_goes_before_the_default_of_the_first() -> None:
    config = SMALL | {
        "model_type": "qwen3_moe",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }
    assert shape_of(config, "config.json").layers[0].feeds == (Experts(4, 2, 32),)


def test_a_window_as_long_as_the_longest_sequence_is_none() -> None:
    attention = shape_of(SMALL | {"model_type": "phi3", "sliding_window": 512}, "config.json").layers[0].mixers[0]
    assert isinstance(attention, Attention)
    assert attention.window == 0


def test_an_unknown_architecture_is_guessed_and_says_so() -> None:
    shape = shape_of(
        SMALL | {"model_type": "novel", "architectures": ["NovelForCausalLM"], "qkv_bias": True}, "config.json"
    )
    assert shape.basis == "inferred"
    assert "NovelForCausalLM" in shape.note
    assert all(isinstance(mixer, Attention) and mixer.qkv_bias for layer in shape.layers for mixer in layer.mixers)


def test_an_unknown_mixture_with_latent_attention_is_read_by_its_keys() -> None:
    config = SMALL | {
        "model_type": "novel", "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    }  # fmt: skip
    dense, sparse = shape_of(config, "config.json").layers
    assert isinstance(dense.mixers[0], LatentAttention)
    assert not isinstance(dense.feeds[0], Experts)
    assert sparse.feeds == (Experts(8, 2, 32, shared_width=32),)


def test_an_encoder_alone_is_refused() -> None:
    with pytest.raises(ModelError, match="BertModel is an encoder without a KV cache"):
        shape_of({"model_type": "bert", "architectures": ["BertModel"]}, "config.json")


def test_layers_that_are_alike_are_one_object() -> None:
    layers = shape_of(COUNTED["qwen3_next"]["config"], "qwen3_next").layers
    assert len({id(layer) for layer in layers}) == len(set(layers)) == 2
    recurrent = [isinstance(layer.mixers[0], GatedDelta) for layer in layers[:4]]
    assert recurrent == [True, True, True, False]


def test_windows_by_list_by_pattern_and_by_period() -> None:
    def windows(config: dict[str, Any]) -> list[int]:
        layers = shape_of(SMALL | config, "config.json").layers
        return [mixer.window for layer in layers for mixer in layer.mixers if isinstance(mixer, Attention)]

    six = {"num_hidden_layers": 6, "sliding_window": 128}
    assert windows(six | {"model_type": "gemma3_text", "sliding_window_pattern": 3}) == [128, 128, 0, 128, 128, 0]
    assert windows(six | {"model_type": "gemma2"}) == [128, 0] * 3
    assert windows(six | {"model_type": "exaone4", "sliding_window_pattern": "LLG"}) == [128, 128, 0] * 2
    assert (
        windows(six | {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 4})
        == [0] * 4 + [128] * 2
    )
    assert windows(six | {"model_type": "qwen2", "use_sliding_window": False}) == [0] * 6
    kinds = ["full_attention", "sliding_attention"] * 3
    assert windows(six | {"model_type": "gpt_oss", "layer_types": kinds, "num_local_experts": 4}) == [0, 128] * 3


def test_rotary_tables_follow_their_stretching() -> None:
    def rows(**config: Any) -> list[int]:
        return [table.rows for table in shape_of(SMALL | config, "config.json").rope]

    assert rows() == [512]
    assert rows(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}) == [1024]
    assert rows(rope_scaling={"type": "linear", "factor": 2.0}) == [1024]
    assert rows(rope_parameters={"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}) == [512]
    assert rows(rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]}) == [2048]


def test_the_output_layer_is_tied_as_the_whole_model_says() -> None:
    inner = SMALL | {"tie_word_embeddings": True}
    outer = {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "text_config": inner | {"model_type": "qwen3_vl_text"},
    }
    assert not shape_of(outer, "config.json").tied
    assert shape_of({"model_type": "qwen3_vl", "text_config": inner}, "config.json").tied


PUBLISHED: dict[str, Any] = json.loads((HERE / "data" / "published.json").read_text("utf-8"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_agree_with_the_table(name: str) -> None:
    table, read = model(name), shape_of(PUBLISHED[name], "config.json")
    assert table is not None
    assert set(read.layers) == set(table.layers)
    assert read.layers == table.layers
    assert (read.vocab, read.hidden, read.tied, read.dtype) == (table.vocab, table.hidden, table.tied, table.dtype)
    ours, theirs = parameters(read), parameters(table)
    assert (ours.total, ours.active, ours.drafter) == (theirs.total, theirs.active, theirs.drafter)
    assert (read.drafter, read.state_dtype) == (table.drafter, table.state_dtype)


def test_a_draft_model_of_eagle_3_has_its_own_output_layer_and_wider_attention() -> None:
    config = SMALL | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 40,
                      "num_key_value_heads": 2}  # fmt: skip
    shape = shape_of(config, "config.json")
    attention = 64 * 2 * (64 + 2 * 32) + 64 * 64  # its inputs are embedding and hidden state side by side
    layer = attention + 3 * 64 * 128 + 3 * 64
    assert parameters(shape).total == layer + 3 * 64 * 64 + 64 + 40 * 64
    assert "target's embedding" in shape.note


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(COUNTED)),
    key=st.integers(0, 400),
    value=st.one_of(st.none(), st.booleans(), st.integers(-3, 5), st.text(max_size=3), st.lists(st.integers(0, 3), max_size=3),
                    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)),
)  # fmt: skip
def test_damaged_configurations_are_read_or_refused(name: str, key: int, value: object) -> None:
    config = dict(COUNTED[name]["config"])
    section = config.get("text_config") if key % 2 and isinstance(config.get("text_config"), dict) else config
    broken = dict(section or config)
    broken[list(broken)[key % len(broken)]] = value
    whole = broken if section is config else config | {"text_config": broken}
    try:
        shape_of(whole, "config.json")
    except ModelError as error:
        assert "config.json" in str(error)


def test_a_type_of_no_family_is_found_by_its_class() -> None:
    config = COUNTED["deepseek_v4"]["config"] | {"model_type": "deepseek_ref"}
    assert shape_of(config, "config.json").layers == shape_of(COUNTED["deepseek_v4"]["config"], "config.json").layers


def test_layers_that_share_an_indexer_have_none_of_their_own() -> None:
    config = COUNTED["glm_moe_dsa"]["config"]
    count = config["num_hidden_layers"]
    kinds = ["full" if index % 4 == 0 else "shared" for index in range(count)]
    layers = shape_of(config | {"indexer_types": kinds}, "config.json").layers
    shared = [mixer.index_shared for layer in layers for mixer in layer.mixers if isinstance(mixer, LatentAttention)]
    assert shared == [kind == "shared" for kind in kinds]
