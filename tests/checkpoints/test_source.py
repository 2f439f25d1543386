"""A model as the user names it: paths before the table, the table before the hub, and errors that help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadpath.checkpoints import hub
from loadpath.checkpoints.adapters import open_adapter
from loadpath.checkpoints.errors import ModelError
from loadpath.checkpoints.source import open_model
from tiny_checkpoints import header_of, write_safetensors, write_tiny_checkpoint
from tiny_gguf import write_tiny_gguf


@pytest.fixture(autouse=True)
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "cache"


def test_a_folder_its_config_and_its_weights_are_one_model(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny-model")
    whole, weights, config = (open_model(str(folder / part)) for part in ("", "model.safetensors", "config.json"))
    assert whole.shape == weights.shape == config.shape
    assert whole.shape.id == "tiny-model"
    assert whole.checkpoint == weights.checkpoint
    assert config.checkpoint is None


def test_a_gguf_file_or_a_folder_with_one(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "mmproj-tiny.gguf").write_bytes(b"")
    assert open_model(str(tmp_path)).shape == open_model(str(tmp_path / "tiny.gguf")).shape


def test_several_gguf_files_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"):
        write_tiny_gguf(tmp_path / name)
    with pytest.raises(ModelError, match="2 GGUF models: name one of them"):
        open_model(str(tmp_path))


def test_names_of_the_table_need_no_network() -> None:
    opened = open_model("meta-llama/Llama-3.1-8B-Instruct")
    assert (opened.source, opened.checkpoint, len(opened.shape.layers)) == ("table", None, 32)


def test_a_cached_snapshot_is_used_before_the_hub(no_hub: Path) -> None:
    repository = no_hub / "models--nobody--secret-model"
    write_tiny_checkpoint(repository / "snapshots" / "abc", "qwen3")
    opened = open_model("nobody/secret-model")
    assert opened.shape.id == "nobody/secret-model"
    assert opened.source.startswith("hub cache")
    assert opened.checkpoint is not None
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("def")
    write_tiny_checkpoint(repository / "snapshots" / "def", "llama")
    assert open_model("nobody/secret-model").shape.family == "llama"


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        open_model(str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match=r"offline.*near names: .*Llama-3\.1-8B"):
        open_model("meta-llama/Llama-3.1-8B-Instuct")
    with pytest.raises(ModelError, match="no model named"):
        open_model("qwne3")
    with pytest.raises(ModelError, match=r"no config\.json and no \.gguf"):
        open_model(str(tmp_path))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelError, match="is no model"):
        open_model(str(tmp_path / "notes.txt"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is no valid JSON"):
        open_model(str(tmp_path))


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'loadpath\[hub\]'"):
        hub.fetch("nobody/unknown")


def test_an_adapter_has_rank_targets_and_tensors(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["v_proj", "q_proj"],
              "rank_pattern": {"q_proj": 32}, "base_model_name_or_path": "tiny/base"}  # fmt: skip
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"no adapter_model\.safetensors"):
        open_adapter(tmp_path)
    write_safetensors(tmp_path / "adapter_model.safetensors", header_of({"q.lora_A.weight": ("BF16", (32, 8), 512)}))
    adapter = open_adapter(tmp_path)
    assert (adapter.rank, adapter.targets, adapter.base) == (32, ("q_proj", "v_proj"), "tiny/base")
    assert adapter.checkpoint.bytes == 512
    with pytest.raises(ModelError, match="holds a LoRA adapter, not a model"):
        open_model(str(tmp_path))


def test_opening_a_model_imports_nothing_heavy() -> None:
    code = (
        "import sys; from loadpath.checkpoints.source import open_model; open_model('Qwen/Qwen3-8B'); "
        "print([m for m in ('huggingface_hub', 'torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_mistrals_own_layout_is_the_same_model(tmp_path: Path) -> None:
    params = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
              "norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1000000.0, "max_position_embeddings": 32768}  # fmt: skip
    (tmp_path / "params.json").write_text(json.dumps(params))
    known = open_model("mistralai/Mistral-7B-Instruct-v0.3").shape
    own = open_model(str(tmp_path)).shape
    assert (own.layers, own.vocab, own.tied, own.rope) == (known.layers, known.vocab, known.tied, known.rope)
    mixture = {"num_experts": 8, "num_experts_per_tok": 2}
    (tmp_path / "params.json").write_text(json.dumps(params | {"moe": mixture, "vocab_size": 32000}))
    assert open_model(str(tmp_path)).shape.layers == open_model("mistralai/Mixtral-8x7B-Instruct-v0.1").shape.layers
    vision = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "num_attention_heads": 16,
              "image_size": 1540, "patch_size": 14, "spatial_merge_size": 2}  # fmt: skip
    (tmp_path / "params.json").write_text(json.dumps(params | {"vision_encoder": vision}))
    (tower,) = open_model(str(tmp_path)).shape.towers
    assert (tower.kind, tower.tokens, tower.assumed) == ("vision", 55 * 56, False)


@pytest.mark.parametrize(
    "text",
    [
        "Qwen/Qwen3-8B@main",
        "https://huggingface.co/Qwen/Qwen3-8B/tree/main",
        "hf.co/Qwen/Qwen3-8B",
        "/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0123abcd",
        "models--Qwen--Qwen3-8B",
    ],
)
def test_addresses_revisions_and_cache_paths_name_a_model_of_the_hub(text: str) -> None:
    assert open_model(text).shape.id == "Qwen/Qwen3-8B"
