"""Two results: refused first, then judged by the spread of their repeats."""

from __future__ import annotations

from typing import Any

import msgspec

from bench_results import made_figures, made_result
from loadpath.core.report import Report
from loadpath.core.traffic import BenchResult, Level, ServerIdentity
from loadpath.traffic.compare import compare
from loadpath.traffic.result_file import to_json


def result(output_rate: float = 512.0, ci: float | None = None, **changes: Any) -> BenchResult:
    figures = made_figures(output_rate=output_rate, ci={"output_rate": ci} if ci else {})
    return made_result(levels=(Level(number=0, concurrency=16, figures=figures),), **changes)


def compared(first: BenchResult, second: BenchResult, *factors: str) -> Report:
    return compare(("a.json", to_json(first)), ("b.json", to_json(second)), factors)


def test_alike_but_for_the_figures_is_compared() -> None:
    report = compared(result(512.0, ci=8.0), result(600.0, ci=10.0))
    assert report.verdict.state == "healthy"
    assert (
        "17.2% more output tokens/s" in report.verdict.sentence and "more than their repeats" in report.verdict.sentence
    )


def test_a_difference_within_the_repeats_is_none() -> None:
    assert "no difference is shown" in compared(result(512.0, ci=20.0), result(525.0, ci=20.0)).verdict.sentence


def test_without_repeats_noise_is_not_ruled_out() -> None:
    assert "without repeats" in compared(result(512.0), result(600.0)).verdict.sentence


def test_a_changed_factor_refuses_until_it_is_named() -> None:
    newer = result(600.0, server=ServerIdentity(engine="vllm", version="0.20.0", model="Qwen/Qwen3-14B"))
    refused = compared(result(), newer)
    assert refused.verdict.state == "unknown" and "version (0.19.0 against 0.20.0)" in refused.verdict.sentence
    assert any("--factor version" in note for note in refused.notes) and not refused.tables
    assert compared(result(), newer, "version").tables


def test_two_changed_factors_are_not_ascribed_to_one() -> None:
    server = ServerIdentity(engine="vllm", version="0.20.0", model="Qwen/Qwen3-32B")
    refused = compared(result(), result(server=server), "version")
    assert "model (Qwen/Qwen3-14B against Qwen/Qwen3-32B)" in refused.verdict.sentence


def test_another_load_or_length_is_refused() -> None:
    level = Level(number=0, concurrency=32, figures=made_figures())
    assert (
        "load (concurrency 16 against concurrency 32)"
        in compared(result(), made_result(levels=(level,))).verdict.sentence
    )
    longer = msgspec.structs.replace(level, concurrency=16, figures=made_figures(output_tokens=102_400))
    assert "output-tokens (256 against 512)" in compared(result(), made_result(levels=(longer,))).verdict.sentence


def test_what_is_no_result_is_said() -> None:
    assert "b.txt holds no benchmark" in compare(("a.json", to_json(result())), ("b.txt", b"hello\n")).verdict.sentence
