"""The model table: every row is a shape, names lead to the right one or to none."""

from __future__ import annotations

import pytest

from loadpath.core.shape import Attention, Dense, LatentAttention, ModelShape
from loadpath.knowledge.models import close, expand, key_of, model, names
from loadpath.knowledge.schemes import LINEAR, split_scheme
from loadpath.planning.parameters import parameters


def test_every_row_is_a_shape_found_by_its_id() -> None:
    assert len(names()) == len(set(names())) >= 300
    for name in names():
        shape = model(name)
        assert shape is not None and shape.id == name and shape.layers, name


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [("3D", "DDD"), ("D 2E", "DEE"), ("3d 2(2L F) L", "dddLLFLLFL"), ("F", "F"), ("2(S F)", "SFSF")],
)
def test_patterns(pattern: str, letters: str) -> None:
    assert expand(pattern) == letters


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B/", "Qwen/Qwen3-8B"),
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("gpt-oss:20b", "openai/gpt-oss-20b"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("qwen3.6-27b-autoround-int4", "Intel/Qwen3.6-27B-int4-AutoRound"),
        ("Qwen3-8B-AWQ", "Qwen/Qwen3-8B-AWQ"),
    ],
)
def test_names_as_people_print_them(said: str, found: str) -> None:
    shape = model(said)
    assert shape is not None and shape.id == found


@pytest.mark.parametrize(
    ("said", "method", "bits", "group"),
    [
        ("Qwen/Qwen3-4B-AWQ", "awq", 4, 128),
        ("someone/Qwen3-4B-GPTQ-Int8", "gptq", 8, 128),
        ("Qwen3-4B-W4A16", "compressed-tensors", 4, 128),
        ("Qwen3-32B-NVFP4", "modelopt", 4, 16),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "bitsandbytes", 4, 64),
        ("Qwen3-4B-autoround-int4", "auto-round", 4, 128),
        ("Qwen3-4B-4bit", "gptq", 4, 128),
        ("unsloth/Qwen3-4B-GGUF:Q4_K_M", "gguf", 4, 0),
        ("qwen3-4b-q8_0.gguf", "gguf", 8, 0),
        ("llama3.1:8b-instruct-q4_K_M", "gguf", 4, 0),
    ],
)
def test_a_scheme_in_the_name_on_a_known_model_is_inferred_and_says_so(
    said: str, method: str, bits: int, group: int
) -> None:
    shape = model(said)
    assert shape is not None and shape.quantisation is not None and shape.id == said
    assert (shape.quantisation.method, shape.quantisation.bits, shape.quantisation.group_size) == (method, bits, group)
    assert shape.basis == "inferred" and "stored as usual for" in shape.note


def test_a_repository_of_the_same_shape_keeps_its_own_name() -> None:
    shape, base = model("DeepSeek-R1-Distill-Llama-8B"), model("meta-llama/Llama-3.1-8B-Instruct")
    assert shape is not None and base is not None
    assert shape.id == "deepseek-ai/DeepSeek-R1-Distill-Llama-8B" and shape.layers == base.layers
    assert shape.source.endswith("same shape as meta-llama/Llama-3.1-8B-Instruct")


def test_fp8_of_a_family_whose_releases_have_block_scales() -> None:
    qwen, llama = model("Qwen3-4B-FP8"), model("Llama-3.2-3B-Instruct-FP8")
    assert qwen is not None and qwen.quantisation is not None and qwen.quantisation.block == (128, 128)
    assert llama is not None and llama.quantisation is not None and llama.quantisation.strategy == "tensor"


@pytest.mark.parametrize(
    "said", ["mistral-7b", "Qwen/Qwen3-8", "gemma-3-27b (suspected)", "foo/bar-7b", "", "AWQ", "gguf"]
)
def test_an_unsure_name_is_no_match(said: str) -> None:
    assert model(said) is None


def test_near_names_are_offered() -> None:
    assert close("Qwen/Qwen3-8")[0] == "Qwen/Qwen3-8B"
    assert "google/gemma-3-27b-it" in close("gemma-3-27b (suspected)")
    assert "mistralai/Mistral-7B-Instruct-v0.3" in close("mistral-7b")
    assert close("zzzzzz") == ()


def test_a_second_scheme_on_a_quantised_checkpoint_is_not_guessed() -> None:
    assert model("Qwen/Qwen3-8B-AWQ-GPTQ-Int4") is None


def test_bf16_and_fp16_in_a_name_set_the_type_only() -> None:
    shape = model("Qwen3-8B-FP16")
    assert shape is not None and shape.quantisation is None and shape.dtype == "float16"


def test_keys_ignore_case_separators_and_organisation_but_not_dots() -> None:
    assert key_of("Org/Some_Model 7B") == key_of("some-model-7b")
    assert key_of("Llama-3.1") != key_of("Llama-31")


def test_a_padded_variant_has_the_padded_width() -> None:
    shape = model("Qwen/Qwen2.5-72B-Instruct-AWQ")
    assert shape is not None
    assert {feed.width for layer in shape.layers for feed in layer.feeds if isinstance(feed, Dense)} == {29696}


def test_hybrids_and_latent_models_keep_their_order_of_layers() -> None:
    gemma, deepseek = model("google/gemma-3-27b-it"), model("deepseek-ai/DeepSeek-V3")
    assert gemma is not None and deepseek is not None
    windows = [m.window for layer in gemma.layers for m in layer.mixers if isinstance(m, Attention)]
    assert len(windows) == 62 and windows[5] == 0 and windows.count(0) == 10
    assert all(isinstance(layer.mixers[0], LatentAttention) for layer in deepseek.layers)
    assert [isinstance(layer.feeds[0], Dense) for layer in deepseek.layers].count(True) == 3


def test_published_totals_are_met() -> None:
    """Exactly, but for rounded publications and a few checkpoints that count buffers or scales."""
    exact, near = 0, []
    for name in names():
        shape = model(name)
        assert shape is not None
        if shape.parameters is None or shape.id.startswith("Qwen/Qwen3-Omni"):
            continue
        counted = parameters(published(shape))
        total, with_drafter = counted.total, counted.total + counted.drafter
        if shape.parameters in (total, with_drafter):
            exact += 1
        else:
            near.append(min(abs(total / shape.parameters - 1), abs(with_drafter / shape.parameters - 1)))
    assert exact >= 245
    assert max(near) < 0.03 and sorted(near)[len(near) * 9 // 10] < 0.006


def published(shape: ModelShape) -> ModelShape:
    """The shape as published: a padded variant counts more."""
    return (model("Qwen/Qwen2.5-72B-Instruct") or shape) if "Qwen2.5-72B" in shape.id else shape


def test_schemes_split_names() -> None:
    rest, scheme = split_scheme("Qwen/Qwen3-8B-AWQ")
    assert rest == "Qwen/Qwen3-8B" and scheme is not None and scheme.stored is not None
    assert scheme.stored.zero_point and scheme.stored.modules == LINEAR
    assert split_scheme("Qwen/Qwen3-8B") == ("Qwen/Qwen3-8B", None)


def test_a_publisher_is_not_given_another_publishers_variant() -> None:
    own, other = model("nvidia/Qwen3.6-35B-A3B-NVFP4"), model("RedHatAI/Qwen3.6-35B-A3B-NVFP4")
    assert own is not None and own.quantisation is not None
    assert other is not None and other.quantisation is not None
    assert own.basis == "config" and other.basis == "inferred"
    assert "attention" in other.quantisation.modules and "recurrent" not in other.quantisation.modules
    here = model("/models/Qwen3.6-35B-A3B-NVFP4")
    assert here is not None and here.id == own.id


def test_awq_of_a_publisher_that_groups_32_weights() -> None:
    shape = model("cyankiwi/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit")
    assert shape is not None and shape.quantisation is not None
    assert shape.quantisation.group_size == 32
    assert "recurrent" not in shape.quantisation.modules


@pytest.mark.parametrize(
    ("name", "vocab", "rows"),
    [
        ("mistralai/Mixtral-8x22B-v0.1", 32000, 65536),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", 32768, 65536),
        ("internlm/internlm3-8b-instruct", 128512, 196608),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 151936, 131072),
    ],
)
def test_relatives_of_one_shape_keep_their_own_vocabulary_and_positions(name: str, vocab: int, rows: int) -> None:
    shape = model(name)
    assert shape is not None and (shape.vocab, shape.rope[0].rows) == (vocab, rows)
