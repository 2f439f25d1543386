"""Bounds of speed in a plan: rows up to what the pool admits, the right rate, and what was assumed."""

from __future__ import annotations

import pytest

from loadpath.core.report import Report
from loadpath.forecast.request import Request
from loadpath.forecast.service import plan

MODEL = "Qwen/Qwen3-8B"


def planned(gpu: str, count: int = 1, **settings: str) -> Report:
    report = plan(Request(MODEL, (gpu,), count=count, settings={"max-model-len": "8192", **settings}))
    assert report.plan is not None
    return report


def note(report: Report) -> str:
    return next(table.note for table in report.tables if table.id == "speed")


def test_rows_end_at_what_the_pool_admits() -> None:
    report = planned("L4")
    assert report.plan is not None
    rows = report.plan.speed["decode"]
    assert rows[-1]["concurrency"] == int(report.plan.max_concurrency)
    assert rows[0]["itl_seconds"] == pytest.approx((15.14e9 + 8192 * 147_456) / 300e9, rel=0.01)
    totals = [row["tokens_per_s"] for row in rows]
    assert totals == sorted(totals)


def test_the_note_says_ceiling_rate_and_where_compute_bounds() -> None:
    said = note(planned("H100 80GB"))
    for part in ("Ceilings, not predictions", "below 296 at any", "bf16 at 989 TFLOP/s", "3,352 GB/s"):
        assert part in said


def test_two_cards_name_their_link() -> None:
    said = note(planned("H100 80GB", 2, **{"tensor-parallel-size": "2"}))
    assert "all-reduces over NVLink" in said


def test_why_a_rate_is_what_it_is() -> None:
    awq = plan(Request("Qwen/Qwen3-32B-AWQ", ("A100 80GB",), settings={"max-model-len": "8192"}))
    assert "unpacked and multiplied in 16 bits" in note(awq)
    assert "power limit at 80%" in note(awq)


def test_a_slice_is_bound_by_its_own_bandwidth_and_rate() -> None:
    report = planned("H100 80GB 3g.40gb")
    assert report.plan is not None
    whole = planned("H100 80GB").plan
    assert whole is not None
    assert report.plan.speed["decode"][0]["itl_seconds"] > 1.9 * whole.speed["decode"][0]["itl_seconds"]
    assert report.plan.speed["prefill"]["compute_seconds"] == pytest.approx(
        2 * whole.speed["prefill"]["compute_seconds"]
    )
