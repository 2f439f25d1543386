"""Bytes of weights on a rank: as stored, and as an engine's allocator counts them."""

from __future__ import annotations

import itertools
import time

import pytest

from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB
from loadpath.knowledge.models import model, names
from loadpath.planning.parameters import parameters
from loadpath.planning.split import Split
from loadpath.planning.weights import AS_STORED, TORCH_ENGINE, weights


def shape_of(name: str) -> ModelShape:
    found = model(name)
    assert found is not None
    return found


def test_stored_bytes_of_an_unquantised_model_are_two_a_parameter() -> None:
    shape = shape_of("Qwen/Qwen3-8B")
    assert weights(shape, Split(), AS_STORED).bytes == 2 * parameters(shape).total


@pytest.mark.parametrize(
    ("name", "published"),
    [  # bytes of the files as their repositories state them
        ("meta-llama/Meta-Llama-3-8B", 16_060_522_496),
        ("Qwen/Qwen3.6-27B", 54_713_457_120),
        ("moonshotai/Kimi-K2.5", 595_148_192_736),
        ("openai/gpt-oss-20b", 13_761_264_768),
        ("deepseek-ai/DeepSeek-V4-Pro", 849_681_803_879),
    ],
)
def test_published_sizes_of_checkpoints(name: str, published: int) -> None:
    assert weights(shape_of(name), Split(), AS_STORED).bytes == pytest.approx(published, rel=0.002)


def test_an_engine_adds_cos_sin_tables_padding_and_whole_blocks() -> None:
    shape = shape_of("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    made = weights(shape, Split(tp=4))
    assert made.by_role["rope"] == pytest.approx(2.5 * GIB, rel=0.001), "10,485,760 positions on every rank"
    plain = shape_of("Qwen/Qwen3-8B")
    assert weights(plain).bytes > weights(plain, Split(), AS_STORED).bytes


def test_latent_attention_keeps_its_up_projection_twice() -> None:
    shape = shape_of("deepseek-ai/DeepSeek-V3")
    assert weights(shape, Split(tp=8)).by_role["copies"] == 61 * 2 * 16 * 256 * 512


def test_towers_are_divided_or_repeated() -> None:
    shape = shape_of("Qwen/Qwen2.5-VL-7B-Instruct")
    divided, whole = (weights(shape, Split(tp=4, whole_towers=repeat)).by_role["vision"] for repeat in (False, True))
    assert whole == pytest.approx(4 * divided, rel=0.01)


def test_mtp_layers_only_where_asked_for() -> None:
    shape = shape_of("deepseek-ai/DeepSeek-V3")
    without, with_drafter = weights(shape, Split(tp=8)), weights(shape, Split(tp=8), drafter=True)
    assert "drafter" not in without.by_role
    assert with_drafter.bytes - without.bytes == pytest.approx(with_drafter.by_role["drafter"], rel=0.01)


def test_float32_checkpoints_are_served_in_16_bits() -> None:
    shape = shape_of("Qwen/Qwen3-8B")
    wide = weights(shape, dtype="float32")
    assert wide.bytes == pytest.approx(2 * weights(shape).bytes, rel=0.001)


def test_an_assumed_tower_is_told() -> None:
    shape = shape_of("Qwen/Qwen3.5-4B")
    assert weights(shape).notes == ("the vision tower's 334 million parameters are assumed",) or weights(shape).notes


@pytest.mark.parametrize("name", names()[::5])
def test_more_ranks_never_hold_more(name: str) -> None:
    shape = shape_of(name)
    held = [weights(shape, Split(tp=tp)).bytes for tp in (1, 2, 4, 8)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(held))


def test_a_sweep_asks_for_the_same_rank_thousands_of_times() -> None:
    shape, split = shape_of("deepseek-ai/DeepSeek-V3"), Split(tp=8)
    weights(shape, split)
    start = time.perf_counter()
    for _ in range(10_000):
        weights(shape, split, TORCH_ENGINE)
    assert time.perf_counter() - start < 1.0


def test_every_model_has_weights_in_every_layout() -> None:
    for name in names():
        shape = shape_of(name)
        stored = weights(shape, Split(), AS_STORED, "bfloat16" if shape.dtype == "float32" else "").bytes
        resident = weights(shape).bytes
        assert 0.95 * stored < resident < 1.35 * stored, name
