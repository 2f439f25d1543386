"""What is loaded beside a model: LoRA adapters and drafters."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from loadpath.forecast.beside_model import with_settings_for
from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.service import plan

LLAMA = Request("meta-llama/Llama-3.1-8B-Instruct", gpus=("H100 80GB",), settings={"max-model-len": "16384"})


def _with(**given: object) -> Request:
    return Request(**{"model": LLAMA.model, "gpus": LLAMA.gpus, "settings": LLAMA.settings, **given})  # type: ignore[arg-type]


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    folder = tmp_path / "sql"
    folder.mkdir()
    said = {"peft_type": "LORA", "r": 24, "target_modules": ["q_proj"], "base_model_name_or_path": "Qwen/Qwen3-8B"}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    header = json.dumps(
        {"layers.0.q_proj.lora_A": {"dtype": "BF16", "shape": [24, 8], "data_offsets": [0, 384]}}
    ).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(384))
    return str(folder)


def test_an_adapter_takes_a_slot_of_the_next_rank_that_the_engine_serves(adapter: str) -> None:
    request = with_settings_for(_with(adapters=(adapter,)))
    assert request.settings["max-lora-rank"] == "32"
    assert request.settings["lora-modules"] == f"sql={adapter}"
    with_it, without = plan(request).plan, plan(LLAMA).plan
    assert with_it is not None and without is not None
    assert with_it.kv_bytes < without.kv_bytes


def test_an_adapter_names_its_model_where_none_is_named(adapter: str) -> None:
    assert with_settings_for(_with(model="", adapters=(adapter,))).model == "Qwen/Qwen3-8B"


def test_an_adapter_of_another_model_is_noted(adapter: str) -> None:
    report = plan(_with(adapters=(adapter,)))
    assert any("was made for Qwen/Qwen3-8B" in note for note in report.notes)


def test_a_rank_below_the_adapters_is_refused(adapter: str) -> None:
    with pytest.raises(PlanRefused, match="rank is 24"):
        with_settings_for(_with(adapters=(adapter,), settings={"max-lora-rank": "16"}))


def test_engines_without_modelled_slots_say_so(adapter: str) -> None:
    with pytest.raises(PlanRefused, match="vllm only"):
        with_settings_for(_with(adapters=(adapter,), engine="sglang"))


@pytest.mark.parametrize("given", [
    {"drafter": "meta-llama/Llama-3.2-1B-Instruct"},
    {"settings": {**LLAMA.settings, "speculative-config":
                  '{"model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 3}'}},
])  # fmt: skip
def test_a_drafter_takes_weights_and_cache_of_its_own(given: dict[str, object]) -> None:
    drafted, alone = plan(_with(**given)).plan, plan(LLAMA).plan
    assert drafted is not None and alone is not None
    assert 2.2e9 < drafted.weights_bytes - alone.weights_bytes < 2.6e9
    assert drafted.kv_bytes_per_token == 160 * 1024  # 128 KiB of the model's 32 layers, 32 KiB of the drafter's 16


def test_a_drafter_that_is_not_known_is_noted() -> None:
    said = {"speculative-config": '{"model": "nobody/knows-it", "num_speculative_tokens": 3}'}
    assert any("nobody/knows-it is not known here" in note for note in plan(_with(settings=said)).notes)


def test_fewer_cards_than_the_settings_need_are_refused() -> None:
    with pytest.raises(PlanRefused, match="needs 4 GPUs, but 2 were given"):
        plan(_with(count=2, settings={"tensor-parallel-size": "4"}))


def test_cards_that_stay_idle_are_noted() -> None:
    report = plan(_with(count=4, settings={"tensor-parallel-size": "2"}))
    assert any("2 of the 4 GPUs" in note for note in report.notes)
