"""Results of other tools, with their arrays of single requests."""

from __future__ import annotations

import json

from loadpath.traffic.other_results import condensed, judged

FLAT = {"backend": "vllm", "model_id": "Qwen/Qwen3-14B", "request_rate": float("inf"), "max_concurrency": 16, "duration": 100.0,
        "completed": 200, "total_input_tokens": 204_800, "total_output_tokens": 51_200, "request_throughput": 2.0,
        "output_throughput": 512.0, "mean_ttft_ms": 350.0, "mean_tpot_ms": 30.0, "mean_itl_ms": 30.0}  # fmt: skip


def test_a_detailed_result_of_many_megabytes_is_read_by_its_figures() -> None:
    data = json.dumps(
        {**FLAT, "itls": [[0.03] * 255] * 2000, "ttfts": [0.35] * 2000, "generated_texts": ["x"] * 2000}
    ).encode()
    assert len(data) > 2 << 20 and len(condensed(data)) < 2000
    report = judged("result.json", data, gpu="H100 80GB")
    assert report.verdict.state == "healthy" and "2 requests/s" in report.verdict.sentence
    assert any(f.id.endswith("-roof") for f in report.findings)


def test_an_unknown_card_is_said_and_costs_nothing_else() -> None:
    report = judged("result.json", json.dumps(FLAT).encode(), gpu="no such card")
    assert report.verdict.state == "healthy" and any("Not held against the card" in note for note in report.notes)


def test_a_sentence_of_a_person_is_read_as_figures() -> None:
    text = b"I ran it with 24 concurrent: 300 requests, 3.41 req/s, 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms.\n"
    assert "3.41 requests/s" in judged("-", text).verdict.sentence


def test_text_that_is_no_benchmark_is_not_called_healthy() -> None:
    assert judged("-", b"hello\n").verdict.state == "unknown"


def test_a_served_name_makes_no_figure_certainly_impossible() -> None:
    fast = json.dumps({**FLAT, "mean_tpot_ms": 12.0, "mean_itl_ms": 12.0}).encode()

    def certainty(model: str) -> str:
        found = judged("result.json", fast, model=model, gpu="RTX 5090").findings
        return next(f.certainty for f in found if f.id == "bench-impossible-figure")

    assert certainty("") == "likely" and certainty("Qwen/Qwen3-14B") == "established"
