"""Whatever a configuration holds, a plan of it is made or refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.service import plan

SOUND: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 1024, "intermediate_size": 3072,
    "moe_intermediate_size": 256, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 1519,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
}  # fmt: skip
VALUES: Any = st.sampled_from((0, -1, 1, 3, 10**12, "x", None, [], [1, 2], True, {}, 1.5))
ENGINES = ("vllm", "sglang", "llama.cpp", "tgi", "tensorrt-llm", "lmdeploy")


@settings(max_examples=80, deadline=None)
@given(key=st.sampled_from(sorted(SOUND)), value=VALUES, engine=st.sampled_from(ENGINES))
def test_a_damaged_configuration_is_planned_or_refused(key: str, value: object, engine: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**SOUND, key: value}))
        try:
            made = plan(Request(folder, gpus=("L4",), engine=engine)).plan
        except PlanRefused as error:
            assert str(error)
        else:
            assert made is not None
            assert made.weights_bytes >= 0  # 0: layers too large for the card stay on the host (llama.cpp)


@pytest.mark.parametrize(
    ("key", "value"), [("hidden_size", -4), ("num_key_value_heads", 0), ("num_experts_per_tok", 9)]
)
def test_a_size_that_no_model_has_is_named(tmp_path: Path, key: str, value: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SOUND, key: value}))
    with pytest.raises(PlanRefused, match=rf"{key} is {value}|9 of 8 experts"):
        plan(Request(str(tmp_path), gpus=("L4",)))
