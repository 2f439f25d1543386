"""Whole plans: sums, refusals, lines that our own reader reads back to the same figures, real starts."""

from __future__ import annotations

import json
import re
import statistics
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import shared_file
from loadpath.core.case import Case
from loadpath.core.facts.engine import Concurrency, KvPool, KvShortfall, MemoryBreakdown, WeightsLoaded
from loadpath.core.facts.errors import FreeBelowDesired
from loadpath.core.facts.memory import NoRoomForKv
from loadpath.core.plan import Plan
from loadpath.core.units import GIB, MIB
from loadpath.engines.vllm import plan
from loadpath.engines.vllm.planning.options import BadSetting
from loadpath.knowledge.models import model
from loadpath.planning.cards import cards_of
from loadpath.planning.deployment import Deployment
from loadpath.reading.lines import lines_of_bytes
from loadpath.reading.service import captures_of, case_of

VERSIONS = (
    (0, 6, 4), (0, 7, 3), (0, 8, 2), (0, 8, 5), (0, 9, 1), (0, 10, 2), (0, 11, 2), (0, 13, 0), (0, 16, 0), (0, 19, 0),
    (0, 20, 0), (0, 22, 1), (0, 26, 0), (0, 28, 0), (0, 33, 0),
)  # fmt: skip


def deployed(name: str, gpu: str, version: tuple[int, ...] | None = None, **given: str) -> Deployment:
    shape = model(name)
    assert shape is not None, name
    return Deployment(
        shape,
        cards_of(gpu),
        version=version,
        settings={key.replace("_", "-"): value for key, value in given.items()},
    )


def planned(name: str, gpu: str, version: tuple[int, ...] | None = None, **given: str) -> Plan:
    return plan(deployed(name, gpu, version, **given))


def read_back(made: Plan) -> Case:
    lines = lines_of_bytes("start.log", "\n".join(made.lines).encode(), [])
    return case_of(captures_of("start.log", lines), [])


def near(value: int | None, expected: int) -> bool:
    """Equal as far as two digits of a GiB tell."""
    return value is not None and abs(value - expected) <= 0.0051 * GIB


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "google/gemma-3-12b-it"])
def test_our_reader_reads_the_lines_back_to_the_plan(name: str, version: tuple[int, ...]) -> None:
    made = planned(name, "A100 80GB", version, max_model_len="16384")
    case = read_back(made)
    assert made.fits
    weights = case.last(WeightsLoaded)
    assert weights is not None
    assert near(weights.bytes, made.weights_bytes)
    held = case.last(KvPool)
    assert held is not None
    assert (held.tokens or (held.blocks or 0) * 16) == made.kv_tokens
    ratio = case.last(Concurrency)
    assert ratio is not None
    assert ratio.context_tokens == 16384
    assert ratio.ratio == pytest.approx(made.max_concurrency, abs=0.006)
    if version >= (0, 9, 2):
        assert any(near(fact.kv_bytes, made.kv_bytes) for fact in case.all(MemoryBreakdown))
    if version >= (0, 9, 1):
        assert any(near(fact.activation_bytes, made.activation_peak_bytes) for fact in case.all(MemoryBreakdown))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_is_read_back_with_its_figures(version: tuple[int, ...]) -> None:
    given_ = {"max_model_len": "131072", "max_num_batched_tokens": "2048", "max_num_seqs": "64"}
    made = planned("meta-llama/Llama-3.1-8B-Instruct", "L4 24GB", version, **given_)
    assert not made.fits
    short = read_back(made).last(KvShortfall)
    assert short is not None
    assert short.asked_tokens == 131072
    if version >= (0, 8):
        assert near(short.needed_bytes, made.request_bytes or 0)
    if version >= (0, 8, 4):
        assert short.estimated_tokens == made.longest_context


def test_weights_that_leave_nothing_are_refused() -> None:
    made = planned("meta-llama/Llama-3.3-70B-Instruct", "H100 80GB", (0, 19, 0))
    assert not made.fits
    assert made.kv_bytes < 0
    assert read_back(made).has(NoRoomForKv)


def test_a_card_in_use_is_refused_before_the_weights() -> None:
    there = deployed("Qwen/Qwen3-8B", "A100 80GB", (0, 19, 0))
    busy = msgspec.structs.replace(there, cards=(msgspec.structs.replace(there.cards[0], free_bytes=40 * GIB),))
    made = plan(busy)
    assert not made.fits
    found = read_back(made).last(FreeBelowDesired)
    assert found is not None
    assert near(found.free_bytes, 40 * GIB)


def test_parts_and_budget_add_up() -> None:
    made = planned("Qwen/Qwen3-14B", "H100 80GB", (0, 21, 0), max_model_len="8192")
    parts = {part.name: part for part in made.gpus_planned[0].parts}
    assert sum(part.bytes for part in parts.values()) == pytest.approx(made.budget_bytes, abs=1)
    assert parts["weights"].basis == "exact"
    assert parts["activation peak"].error is not None
    assert not parts["CUDA graphs"].note
    before = planned("Qwen/Qwen3-14B", "H100 80GB", (0, 19, 0), max_model_len="8192")
    assert before.gpus_planned[0].parts[-2].note == "outside the budget"


def test_given_bytes_and_blocks_stand_in_for_the_profile() -> None:
    assert planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), kv_cache_memory_bytes="8GiB").kv_bytes == 8 * GIB
    assert planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), num_gpu_blocks_override="1000").kv_blocks == 1000
    there = deployed("Qwen/Qwen3-8B", "A100 80GB", (0, 19, 0), max_model_len="8192")
    assert plan(msgspec.structs.replace(there, available_kv_bytes=9 * GIB)).kv_tokens == 9 * GIB // (16 * 147456) * 16


def test_the_pool_follows_the_smallest_card_of_a_mixture() -> None:
    made = planned(
        "Qwen/Qwen3-8B",
        "RTX 5070 Ti 16GB + RTX 5090 32GB",
        (0, 19, 0),
        pipeline_parallel_size="2",
        max_model_len="4096",
    )
    assert [gpu.name for gpu in made.gpus_planned] == ["NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 5090"]
    assert made.total_bytes < 16 * GIB


def test_offload_lora_and_drafters_are_counted() -> None:
    plain = planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0))
    assert planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), cpu_offload_gb="4").weights_bytes == (
        plain.weights_bytes - 4 * GIB
    )
    assert planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), enable_lora="true", max_loras="2").weights_bytes > (
        plain.weights_bytes + 50 * MIB
    )
    drafted = '{"method": "eagle3", "model": "x", "num_speculative_tokens": 3}'
    assert (planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), speculative_config=drafted).kv_bytes_per_token or 0) > (
        plain.kv_bytes_per_token or 0
    )


def test_heads_that_do_not_divide_are_refused_with_the_reason() -> None:
    with pytest.raises(BadSetting, match="32 attention heads do not divide over 3"):
        planned("Qwen/Qwen3-8B", "3x A100 80GB", tensor_parallel_size="3")


@given(
    length=st.integers(256, 32_000),  # above 32,768 tokens V0 prefills in chunks, and takes less
    share=st.floats(0.3, 0.95),
    ranks=st.sampled_from(["1", "2", "4"]),
    version=st.sampled_from(VERSIONS),
)
@settings(deadline=None, max_examples=80)
def test_what_must_hold_for_every_plan(length: int, share: float, ranks: str, version: tuple[int, ...]) -> None:
    common = {"tensor_parallel_size": ranks, "gpu_memory_utilization": str(share)}
    made = planned("Qwen/Qwen3-14B", f"{ranks}x H100 80GB", version, max_model_len=str(length), **common)
    longer = planned("Qwen/Qwen3-14B", f"{ranks}x H100 80GB", version, max_model_len=str(length + 512), **common)
    assert longer.kv_bytes <= made.kv_bytes
    assert not (longer.fits and not made.fits)
    assert made.fits == (made.longest_context is not None and made.longest_context >= length and made.kv_bytes > 0)
    more = planned(
        "Qwen/Qwen3-14B", "8x H100 80GB", version, max_model_len=str(length), **common | {"tensor_parallel_size": "8"}
    )
    assert more.weights_bytes <= made.weights_bytes


def test_ten_thousand_plans_take_seconds() -> None:
    start = time.perf_counter()
    for number in range(500):
        planned("google/gemma-3-27b-it", "H100 80GB", (0, 19, 0), max_model_len=str(1024 + number))
    assert time.perf_counter() - start < 1.0  # 2 ms a plan on a busy machine; 0.2 ms alone


def test_real_starts_are_met() -> None:
    """Rows whose settings are known: one release on one kind of card, of which the corpus has full records."""
    rows = [json.loads(line) for line in shared_file("corpus", "memory-facts.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["engine"] == "vllm" and row["gpu"] == "H100 80GB" and row["peak_activation_gib"]]
    errors: dict[str, list[float]] = {"kv": [], "tokens": [], "activation": []}
    for row in rows:
        there = _row(row)
        made = plan(there)
        errors["kv"].append(abs(made.kv_bytes / GIB / row["available_kv_gib"] - 1))
        errors["activation"].append(abs(made.activation_peak_bytes / GIB / row["peak_activation_gib"] - 1))
        if row["kv_tokens"]:
            given_ = msgspec.structs.replace(there, available_kv_bytes=round(row["available_kv_gib"] * GIB))
            errors["tokens"].append(abs(plan(given_).kv_tokens / row["kv_tokens"] - 1))
    assert len(rows) >= 15
    assert max(errors["tokens"]) < 0.002
    assert statistics.mean(errors["kv"]) < 0.005
    assert statistics.mean(errors["activation"]) < 0.01


def _row(row: dict[str, object]) -> Deployment:
    names = {
        "tp": "tensor_parallel_size", "dtype": "dtype", "kv_cache_dtype": "kv_cache_dtype", "max_model_len": "max_model_len",
        "gpu_memory_utilization": "gpu_memory_utilization", "max_num_seqs": "max_num_seqs",
        "max_num_batched_tokens": "max_num_batched_tokens",
    }  # fmt: skip
    found = re.search(r"\d+\.\d+(\.\d+)?", str(row["engine_version"]))
    assert found is not None
    version = tuple(int(part) for part in found[0].split("."))
    given_ = {flag: str(row[key]) for key, flag in names.items() if row[key] is not None}
    return deployed(str(row["model"]), f"{row['n_gpu']}x {row['gpu']}", version, **given_)


def test_a_length_above_the_models_own_is_refused_unless_it_is_stretched() -> None:
    made = planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), max_model_len="65536")
    assert not made.fits
    assert "greater than the derived max_model_len (max_position_embeddings=40960" in made.lines[-1]
    stretched = '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'
    assert planned("Qwen/Qwen3-8B", "A100 80GB", (0, 24, 0), max_model_len="65536", hf_overrides=stretched).fits


def test_a_partition_of_layers_that_the_user_set_decides_what_each_stage_holds() -> None:
    cards = "RTX 5070 Ti 16GB + RTX 5090 D 32GB"
    there = deployed(
        "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8",
        cards,
        (0, 15, 0),
        pipeline_parallel_size="2",
        gpu_memory_utilization="0.9",
    )
    assert plan(there).kv_bytes < 0
    split = msgspec.structs.replace(there, settings={**there.settings, "VLLM_PP_LAYER_PARTITION": "16,32"})
    made = plan(split)
    assert made.kv_bytes / GIB == pytest.approx(3.18, rel=0.2)
    # This release checks the memory of one rank against the cache of all stages.
    assert made.request_bytes == 24 * GIB
