"""Sweeps: every point is planned or says why not; slips are refused."""

from __future__ import annotations

import pytest

from loadpath.forecast.flags import meant, refuse_misspelt
from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.sweep import parse_field, sweep

REQUEST = Request("Qwen/Qwen3-8B", gpus=("L4",))


@pytest.mark.parametrize(
    "text", ["max-model-len", "max-model-len=", "max-model-len=8192:1024:*2", "max-model-len=1:9:0", "x=,"]
)
def test_a_field_without_points_is_refused(text: str) -> None:
    with pytest.raises(PlanRefused, match="--sweep"):
        parse_field(text)


def test_a_count_that_the_heads_do_not_divide_over_is_a_refused_row() -> None:
    table, _ = sweep(REQUEST, [parse_field("gpus=1,2,3")])
    assert [row[0] for row in table.rows] == [1, 2, 3]
    assert "do not divide" in str(table.rows[2][-1])


def test_a_field_that_changes_nothing_is_refused_with_what_was_perhaps_meant() -> None:
    with pytest.raises(PlanRefused, match="did you mean max-model-len"):
        sweep(REQUEST, [parse_field("max-model-length=4096,8192")])


@pytest.mark.parametrize(
    "flag", ["data-parallel-size-local", "max-cpu-loras", "max-long-partial-prefills", "port", "tokenizer"]
)
def test_other_flags_of_an_engine_are_no_slips(flag: str) -> None:
    assert meant("vllm", flag) == ""


def test_a_slip_is_told() -> None:
    assert meant("vllm", "gpu-memory-utilisation") == "gpu-memory-utilization"


@pytest.mark.parametrize(("engine", "flag", "own"), [
    ("llama.cpp", "max-model-len", "--ctx-size"), ("vllm", "mem-fraction-static", "--gpu-memory-utilization"),
    ("sglang", "max-model-len", "--context-length"),
])  # fmt: skip
def test_a_flag_of_another_engine_is_refused(engine: str, flag: str, own: str) -> None:
    with pytest.raises(PlanRefused, match=own):
        refuse_misspelt(engine, [flag])
