"""The work of a step and its rates, from a model of the table and a board."""

from __future__ import annotations

import pytest

from loadpath.knowledge.gpus import by_id
from loadpath.knowledge.models import model
from loadpath.planning.speed import decode
from loadpath.planning.step import Step, step_of


def step(name: str, gpu: str, count: int = 1) -> Step:
    shape, board = model(name), by_id(gpu)
    assert shape and board
    made = step_of(shape, board, count)
    assert made
    return made


def test_a_step_reads_the_weights_but_not_the_input_embedding() -> None:
    made = step("Qwen/Qwen3-14B", "h200-sxm")
    assert made.stored_bytes == pytest.approx(29.54e9, rel=0.01)
    assert made.stored_bytes - made.load.weight_bytes == pytest.approx(151_936 * 5_120 * 2, rel=0.01)


def test_more_cards_divide_the_floor_and_add_the_exchange() -> None:
    one, two = step("Qwen/Qwen3-14B", "h200-sxm"), step("Qwen/Qwen3-14B", "h200-sxm", 2)
    alone, shared = decode(one.load, one.cards, 1, 0), decode(two.load, two.cards, 1, 0)
    assert shared.weights_seconds == pytest.approx(alone.weights_seconds / 2)
    assert shared.all_reduce_seconds > 0


def test_llama_cpp_multiplies_quantised_weights_in_its_fastest_format() -> None:
    gguf, plain = step("Qwen3-14B-Q4_K_M.gguf", "h200-sxm"), step("Qwen/Qwen3-14B", "h200-sxm")
    assert gguf.cards.flops_per_s >= plain.cards.flops_per_s
    assert gguf.load.weight_bytes < plain.load.weight_bytes / 3
