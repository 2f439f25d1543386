"""How vLLM keeps weights by card and version, and what that comes to against starts that were logged."""

from __future__ import annotations

import json
import statistics

import pytest

from conftest import shared_file
from loadpath.core.shape import ModelShape
from loadpath.core.units import GIB
from loadpath.engines.vllm.planning.keeping import keeping
from loadpath.knowledge.models import model
from loadpath.planning.parameters import parameters
from loadpath.planning.split import Split
from loadpath.planning.weights import Keeping, weights


def shape_of(name: str) -> ModelShape:
    found = model(name)
    assert found is not None
    return found


def test_hopper_keeps_symmetric_zero_points_of_gptq_files() -> None:
    shape = shape_of("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16")
    hopper, ampere = (weights(shape, Split(), keeping(shape, card, (0, 19, 0))) for card in ((9, 0), (8, 0)))
    linear = parameters(shape).by_role["attention"] + parameters(shape).by_role["mlp"]
    assert hopper.bytes - ampere.bytes == pytest.approx(linear / 128 / 2, rel=0.2)


DRAFTED = ("k036", "k051")
"""Their figures include a drafter of unknown size."""


def test_weights_that_real_engines_logged() -> None:
    """Starts that name their model and ranks; the largest error is a first release with other KV heads."""
    errors = []
    for line in shared_file("corpus", "memory-facts.jsonl").read_text().splitlines():
        row = json.loads(line)
        shape = model(row["model"]) if row["model"] else None
        if not row["weights_gib"] or row["engine"] != "vllm" or shape is None or row["id"] in DRAFTED:
            continue
        version = tuple(
            int(part) for part in (row["engine_version"] or "0.12").split(" ")[0].split(".") if part.isdigit()
        )
        card = (8, 6) if "A6000" in (row["gpu"] or "") else (8, 9) if "L4" in (row["gpu"] or "") else (9, 0)
        kept = keeping(shape, card, version or (0, 12))
        made = weights(shape, Split(tp=row["tp"] or 1), kept, row["dtype"] or "")
        errors.append(abs(made.bytes / GIB / row["weights_gib"] - 1))
    assert len(errors) > 20
    assert statistics.mean(errors) < 0.004 and max(errors) < 0.02


def test_keeping_is_stated_per_card_and_version() -> None:
    gpt_oss, gemma = shape_of("openai/gpt-oss-20b"), shape_of("google/gemma-2-9b-it")
    found = {card: keeping(gpt_oss, card, (0, 19, 0)).mxfp4 for card in ((8, 0), (9, 0), (10, 0), (12, 0))}
    assert found == {(8, 0): "marlin", (9, 0): "triton", (10, 0): "flashinfer", (12, 0): "marlin"}
    assert keeping(gpt_oss, (9, 0), (0, 11, 2)).mxfp4 == "triton-early"
    assert keeping(gemma, (8, 9), (0, 5, 4)).rope_per_layer and not keeping(gemma, (8, 9), (0, 19, 0)).rope_per_layer
    assert keeping(gemma, None, (0, 19, 0)) == Keeping(zero_points=True)


def test_experts_without_a_gate_are_padded_to_fp4_tiles_on_blackwell() -> None:
    shape = shape_of("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")  # experts 1,856 wide: 928 on each of two ranks
    padded, plain = (
        weights(shape, Split(tp=2), keeping(shape, card, (0, 19, 0))).by_role["experts"] for card in ((12, 0), (9, 0))
    )
    assert padded / plain == pytest.approx(1024 / 928, rel=0.001)


def test_keys_that_stand_for_values_are_loaded_twice() -> None:
    shape = shape_of("google/gemma-4-31B-it")
    held = weights(shape, Split(), keeping(shape, (12, 0), (0, 23, 0)))
    assert held.by_role["copies"] == pytest.approx(10 * 4 * 512 * 5376 * 2, rel=0.1)
    assert held.bytes == pytest.approx(58.99 * GIB, rel=0.002)
