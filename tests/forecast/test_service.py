"""A plan as its user asks for it: the verdict by the rules of a log, and the tables beside it."""

from __future__ import annotations

import pytest

from loadpath.core.report import Report
from loadpath.forecast.request import PlanRefused, Request
from loadpath.forecast.service import Wants, answer, plan
from loadpath.forecast.sweep import parse_field
from loadpath.planning.training import Training

SMALL = Request("Qwen/Qwen3-8B", ("L4",), settings={"max-model-len": "8192"})
TOO_LONG = Request("meta-llama/Llama-3.1-8B-Instruct", ("RTX 4090",), settings={"max-model-len": "131072"})


def column(report: Report, name: str) -> list[object]:
    table = report.tables[-1]
    at = [c.name for c in table.columns].index(name)
    return [row[at] for row in table.rows]


def test_a_model_that_fits_is_healthy_and_its_parts_fill_the_budget() -> None:
    report = plan(SMALL)
    assert report.verdict.state in ("healthy", "degraded") and report.verdict.sentence.startswith("Fits: room for")
    assert report.plan is not None and report.plan.fits
    ledger = report.memory[0]
    assert sum(part.bytes for part in ledger.parts) <= (ledger.total_bytes or 0)
    assert {part.name for part in ledger.parts} >= {"weights", "activation peak", "KV cache"}


def test_one_that_does_not_fit_leads_with_the_finding_of_a_real_refusal() -> None:
    report = plan(TOO_LONG)
    assert report.verdict.state == "failed" and report.verdict.sentence.startswith("Does not fit:")
    root = report.root
    assert root is not None and root.boundary == "memory-fit"
    assert any(r.command.startswith("--max-model-len") for r in root.remedies)


def test_the_predicted_length_fits_when_it_is_asked_for() -> None:
    longest = plan(TOO_LONG).plan
    assert longest is not None and longest.longest_context
    fitting = Request(TOO_LONG.model, TOO_LONG.gpus, settings={"max-model-len": str(longest.longest_context)})
    assert plan(fitting).verdict.state != "failed"


def test_solve_names_changes_that_do_it() -> None:
    report = answer(TOO_LONG, Wants(solve=True, concurrency=1))
    assert report.tables[-1].rows, "an 8B model at 131,072 tokens fits a 24 GB card in 4 bits"
    assert all(ratio >= 1 for ratio in column(report, "requests at once"))  # type: ignore[operator]


def test_which_gpu_lists_the_smallest_that_fits_first() -> None:
    report = answer(Request("Qwen/Qwen3-8B", settings={"max-model-len": "8192"}), Wants(which_gpu=True))
    cards, memory = column(report, "cards"), column(report, "memory in all")
    assert cards == sorted(cards)  # type: ignore[type-var]
    ones = [m for c, m in zip(cards, memory, strict=True) if c == 1]
    assert ones == sorted(ones)  # type: ignore[type-var]
    assert any("L4" in str(name) for name in column(report, "GPU"))


def test_a_sweep_has_a_row_for_every_combination() -> None:
    fields = (parse_field("max-model-len=4096:32768:*2"), parse_field("--max-num-seqs=64,256"))
    report = answer(SMALL, Wants(sweeps=fields))
    assert len(report.tables[-1].rows) == 4 * 2
    assert column(report, "max-model-len")[:2] == [4096, 4096]


@pytest.mark.parametrize("text", ["max-model-len", "=3", "a=1:2:0", "a=0:8:*2", "a=1:8:*1"])
def test_a_field_that_cannot_be_swept_says_what_was_expected(text: str) -> None:
    with pytest.raises(PlanRefused, match="--sweep"):
        parse_field(text)


def test_sharing_shows_what_dividing_costs() -> None:
    report = answer(Request("Qwen/Qwen3-8B", ("H100 80GB",), settings={"max-model-len": "8192"}), Wants(share=2))
    ways, held = column(report, "way"), column(report, "KV of all")
    assert ways[0] == "one process, batching" and any(str(way).startswith("MIG 3g.40gb") for way in ways)
    assert all(held[0] > other for other in held[1:] if other is not None)  # type: ignore[operator]


def test_training_that_does_not_fit_names_what_does() -> None:
    how = Training("full", "bf16")
    report = answer(Request("Qwen/Qwen3.6-27B", ("RTX PRO 6000",)), Wants(training=how))
    assert report.root is not None and report.root.id == "training-does-not-fit"
    assert report.root.certainty == "established"  # weights, gradients and states alone exceed the card
    first = report.root.remedies[0]
    assert first.suffices and "LoRA" in first.action


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Request("Qwen/Qwen3-8B"), "which GPU"),
        (Request("Qwen/Qwen3-8B", ("H900",)), "H900"),
        (Request("Qwen/Qwen9-8B", ("L4",)), "Qwen9-8B"),
        (Request("Qwen/Qwen3-8B", ("L4",), engine="vlm"), "unknown engine"),
        (Request("Qwen/Qwen3-8B", ("L4",), version="newest"), "0.19.0"),
        (Request("Qwen/Qwen3-8B", ("L4",), settings={"tensor-parallel-size": "two"}), "tensor-parallel-size"),
    ],
)
def test_what_cannot_be_planned_says_why(asked: Request, said: str) -> None:
    with pytest.raises(PlanRefused, match=said):
        plan(asked)


def test_a_pool_cut_by_hand_is_the_first_thing_to_take_back() -> None:
    cut = Request("Qwen/Qwen3-8B", ("H100 80GB",), settings={"max-model-len": "8192", "num-gpu-blocks-override": "100"})
    root = plan(cut).root
    assert root is not None and root.remedies[0].action.startswith("Remove the pool size set by hand")
    assert root.remedies[0].suffices and root.remedies[0].figures["tokens"] > 8192
