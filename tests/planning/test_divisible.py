"""Quantised widths that cannot be cut over the ranks asked for."""

from __future__ import annotations

import pytest

from loadpath.knowledge.models import model, names
from loadpath.planning.divisible import Uncut, uncut
from loadpath.planning.split import Split


def of(name: str, split: Split) -> Uncut | None:
    shape = model(name)
    assert shape is not None
    return uncut(shape, split)


def test_expert_width_of_fp8_blocks() -> None:
    found = of("Qwen/Qwen3-30B-A3B-FP8", Split(tp=4))
    assert found == Uncut("expert width", 192, 128, 2, experts=True)
    assert of("Qwen/Qwen3-30B-A3B-FP8", Split(tp=2)) is None
    assert of("Qwen/Qwen3-235B-A22B-FP8", Split(tp=8)) == Uncut("expert width", 192, 128, 4, experts=True)


def test_expert_parallelism_cuts_no_expert() -> None:
    assert of("Qwen/Qwen3-30B-A3B-FP8", Split(tp=4, ep=4)) is None


def test_shapes_that_are_served_so() -> None:
    assert of("deepseek-ai/DeepSeek-V3", Split(tp=16)) is None
    assert of("Qwen/Qwen3-32B-FP8", Split(tp=8)) is None
    assert of("Qwen/Qwen2.5-72B-Instruct-AWQ", Split(tp=8)) is None, "29696 was padded for this"


def test_groups_of_integer_weights() -> None:
    assert of("Qwen2.5-72B-Instruct-W4A16", Split(tp=8)) == Uncut("feed-forward width", 3696, 128, 1, experts=False)


@pytest.mark.parametrize("name", names()[::4])
def test_one_rank_and_unquantised_models_always_divide(name: str) -> None:
    assert of(name, Split()) is None
