"""Pasted commands, compose files and manifests as requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadpath.forecast.commands import from_file, from_flags, from_text, lever
from loadpath.forecast.request import PlanRefused

COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v0.19.0
    command: --model Qwen/Qwen3-14B --max-model-len 8192 --tensor-parallel-size 2
    deploy:
      resources:
        reservations:
          devices:
            - {driver: nvidia, count: 2, capabilities: [gpu]}
"""


@pytest.mark.parametrize(
    ("text", "engine", "model", "settings"),
    [
        ("vllm serve Qwen/Qwen3-14B -tp 2 --max-model-len 8192", "vllm", "Qwen/Qwen3-14B",
         {"tensor-parallel-size": "2", "max-model-len": "8192"}),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2", "sglang", "Qwen/Qwen3-8B", {"tp-size": "2"}),
        ("llama-server -m /m/a-Q4_K_M.gguf -ngl 99 -c 8192", "llama.cpp", "/m/a-Q4_K_M.gguf",
         {"n-gpu-layers": "99", "ctx-size": "8192"}),
        ("CUDA_VISIBLE_DEVICES=0 docker run --rm --gpus 2 -e HF_TOKEN=x vllm/vllm-openai:v0.10.2 --model a/b", "vllm", "a/b", {}),
    ],
)  # fmt: skip
def test_a_command_is_a_request(text: str, engine: str, model: str, settings: dict[str, str]) -> None:
    asked = from_text(text, "command line")
    assert (asked.engine, asked.model) == (engine, model)
    assert settings.items() <= asked.settings.items()


def test_a_compose_file_tells_version_and_number_of_cards(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    asked = from_file(str(file))
    assert (asked.version, asked.count, asked.settings["max-model-len"]) == ("0.19.0", 2, "8192")


def test_no_engine_in_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: {web: {image: nginx}}\n")
    with pytest.raises(PlanRefused, match=r"compose\.yaml: no command that starts an engine"):
        from_file(str(file))


def test_the_engines_own_flags_follow_the_model() -> None:
    words = ("Qwen/Qwen3-8B", "--max-num-batched-tokens", "4096", "--enforce-eager", "--kv-cache-dtype=fp8")
    model, settings = from_flags("vllm", words)
    assert model == "Qwen/Qwen3-8B"
    assert settings == {"max-num-batched-tokens": "4096", "enforce-eager": "True", "kv-cache-dtype": "fp8"}


@pytest.mark.parametrize(
    ("engine", "name"), [("vllm", "max-model-len"), ("sglang", "context-length"), ("llama.cpp", "ctx-size")]
)
def test_a_lever_is_spelled_as_each_engine_spells_it(engine: str, name: str) -> None:
    assert lever(engine, "context-length", 4096) == {name: "4096"}


TWO = """\
services:
  a:
    image: vllm/vllm-openai:v0.19.0
    command: ["--model", "Qwen/Qwen3-8B"]
  b:
    image: vllm/vllm-openai:v0.19.0
    command: ["--model", "Qwen/Qwen3-14B"]
"""


def test_the_settings_of_two_servers_are_not_mixed() -> None:
    with pytest.raises(PlanRefused, match="starts 2 servers"):
        from_text(TWO, "compose.yaml")


def test_a_container_with_two_cards_runs_its_command_on_one() -> None:
    found = from_text(
        "docker run --gpus '\"device=2,3\"' vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B", "command line"
    )
    assert (found.count, found.settings["tensor-parallel-size"]) == (2, "1")


def test_a_mounted_model_is_the_folder_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    found = from_text(
        f"docker run -v {tmp_path}:/models:ro vllm/vllm-openai:v0.19.0 --model /models/mine", "command line"
    )
    assert found.model == str(tmp_path / "mine")
