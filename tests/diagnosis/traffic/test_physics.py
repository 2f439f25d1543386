"""Figures against what the card can do."""

from __future__ import annotations

import pytest

from bench_results import around, made_result
from loadpath.core.report import Finding
from loadpath.core.traffic import BenchSettings, GpuSample, Interval
from loadpath.traffic.other_results import judged
from loadpath.traffic.report import report_on

FRAGMENT = "300 requests, 3.41 req/s, 1746.2 tok/s, TTFT 387.4 ms, ITL 13.2 ms\n"
SHARES = ("bench-near-roof", "bench-far-from-roof", "bench-share-of-roof")


def findings(text: str, model: str = "", gpu: str = "", gpus: int = 1) -> dict[str, Finding]:
    return {f.id: f for f in judged("paste", text.encode(), model=model, gpu=gpu, gpus=gpus).findings}


def test_a_step_faster_than_its_weights_can_be_read_is_impossible() -> None:
    found = findings(f"{FRAGMENT}27.31 GiB of weights, 1,792 GB/s\n")["bench-impossible-figure"]
    assert found.certainty == "established" and found.severity == "warning"
    assert found.figures["floor_seconds"] == pytest.approx(0.01636, rel=1e-3)
    assert "13.2 ms" in found.title and "16.4 ms" in found.title
    assert "speculative" in found.cause and "quantised" in found.cause and "card" in found.cause


def test_model_and_card_by_name_leave_out_the_embedding_that_no_step_reads() -> None:
    found = findings(FRAGMENT, "Qwen/Qwen3-14B", "RTX 5090")["bench-impossible-figure"]
    assert found.figures["floor_seconds"] == pytest.approx(0.0156, rel=0.01)


@pytest.mark.parametrize(
    ("model", "gpu", "gpus"),
    [("Qwen/Qwen3-14B", "H200", 1), ("Qwen/Qwen3-14B", "RTX 5090", 2), ("Qwen/Qwen3-14B-AWQ", "RTX 5090", 1)],
)
def test_a_faster_card_two_cards_or_quantised_weights_make_it_possible(model: str, gpu: str, gpus: int) -> None:
    found = findings(FRAGMENT, model, gpu, gpus)
    assert "bench-impossible-figure" not in found
    assert any(name in found for name in SHARES)


def test_accepted_drafts_explain_it() -> None:
    assert "bench-impossible-figure" not in findings(
        f"{FRAGMENT}27.31 GiB of weights, 1,792 GB/s, acceptance length 2.1\n"
    )


def test_the_log_of_the_server_beside_it_tells_weights_and_card() -> None:
    log = (
        "INFO 01-01 10:00:00 [gpu_model_runner.py:2392] Model loading took 27.3149 GiB and 9.81 seconds\n"
        "|   0  NVIDIA GeForce RTX 5090        Off |   00000000:01:00.0 Off |                  N/A |\n"
        "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    )
    found = findings(log + FRAGMENT)["bench-impossible-figure"]
    assert found.certainty == "likely"  # a mixture of experts would read less


def test_nothing_is_held_against_a_card_that_the_weights_do_not_fit() -> None:
    report = judged("paste", FRAGMENT.encode(), model="Qwen/Qwen3-32B", gpu="RTX 5090")
    assert not any(f.id in ("bench-impossible-figure", *SHARES) for f in report.findings)
    assert any("do not fit" in note for note in report.notes)


def test_first_tokens_before_the_prompt_can_be_computed_come_from_a_cache() -> None:
    text = "90 requests, 2.0 req/s, 256 tok/s, TTFT p50 20 ms, TPOT 40 ms, 16000 input tokens\n"
    assert "bench-prefix-cache-measured" in findings(text, "Qwen/Qwen3-14B", "L40S")


def test_more_tokens_than_the_card_has_operations_for() -> None:
    text = "900 requests, 60 req/s, 256 tok/s, TTFT 90 ms, TPOT 40 ms, 2048 input tokens\n"
    found = findings(text, "Qwen/Qwen3-14B", "L40S")["bench-impossible-figure"]
    assert "compute peak" in found.title and "prefix cache" in found.cause


def test_every_busy_local_card_counts_before_a_figure_is_called_impossible() -> None:
    fast = {"tpot": around(0.012), "itl": around(0.012), "output_rate": 1200.0}

    def impossible(cards: int) -> list[str]:
        samples = tuple(GpuSample(time=1.0, gpu=n, name="NVIDIA GeForce RTX 5090", busy=0.9) for n in range(cards))
        made = report_on(made_result(fast, gpus=samples))
        return [f.certainty for f in made.findings if f.id == "bench-impossible-figure"]

    assert impossible(1) == ["likely"]  # the served name may stand for other weights
    assert impossible(2) == []


def test_near_the_roof_the_next_change_is_a_larger_batch_with_its_bound() -> None:
    text = "100 requests, 0.3 req/s, 77 tok/s, TTFT 90 ms, TPOT 12 ms, 64 input tokens\n"
    found = findings(text, "Qwen/Qwen3-14B", "H100 80GB")["bench-near-roof"]
    assert "--concurrency 2" in found.cause
    assert found.remedies[0].effect.startswith("twice as many would allow up to 2.00 times")


def test_an_idle_card_points_to_the_host() -> None:
    settings = BenchSettings(requests=200, concurrency=(2,), gpu="H100 80GB")
    slow = {"tpot": around(0.06), "itl": around(0.06), "mean_in_flight": 2.0, "request_rate": 0.13}
    cards = tuple(GpuSample(time=t + 0.5, gpu=0, busy=0.4) for t in range(8))
    stretches = tuple(Interval(begin=float(t), end=t + 1.0, itl_p50=0.06) for t in range(8))
    report = report_on(made_result(slow, settings=settings, gpus=cards, intervals=stretches))
    (found,) = (f for f in report.findings if f.id == "bench-far-from-roof")
    assert "no kernel at all in 60%" in found.cause
    assert any(check.command.startswith("nsys profile") for check in found.next_checks)


def test_llama_bench_against_the_bandwidth() -> None:
    table = (
        "| model | size | params | backend | ngl | test | t/s |\n"
        "| ----- | ---: | -----: | ------- | --: | ---: | --: |\n"
        "| acme 7B Q4_K | 4.00 GiB | 7.00 B | CUDA | 99 | tg128 | {rate} ± 0.5 |\n"
        "\nGPU 0: NVIDIA L4 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    )
    assert "bench-impossible-figure" in findings(table.format(rate="120.00"))
    assert findings(table.format(rate="55.00"))["bench-share-of-roof"].figures["share_of_roof"] == pytest.approx(
        0.79, abs=0.02
    )
