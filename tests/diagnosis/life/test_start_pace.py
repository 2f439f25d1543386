"""Slow steps of a start: what is slow, by which figures, and how long it still takes."""

from __future__ import annotations

from conftest import read_text

START = "INFO 01-02 10:00:20 [gpu_model_runner.py:1] Starting to load model org/m...\n"


def test_few_gib_in_many_minutes_are_slow() -> None:
    report = read_text(
        START + "INFO 01-02 10:07:20 [gpu_model_runner.py:2] Model loading took 14.99 GiB and 412.0 seconds\n"
    )
    assert report.root_cause == "weights-load-slowly"


def test_many_gib_in_the_same_time_are_not() -> None:
    report = read_text(
        START + "INFO 01-02 10:07:20 [gpu_model_runner.py:2] Model loading took 120.5 GiB and 412.0 seconds\n"
    )
    assert report.root_cause is None


def test_a_download_is_told_with_its_rate_and_what_is_left() -> None:
    report = read_text(
        START + "model-00001-of-00002.safetensors:   5%|▌         | 250M/5.00G [01:40<31:40, 2.50MB/s]\n"
        "model-00002-of-00002.safetensors:  10%|█         | 300M/3.00G [01:40<15:00, 3.00MB/s]\n"
    )
    root = report.root
    assert root is not None and root.id == "weights-download-slowly"
    assert "5.5 MB/s" in root.title and "31 min 40 s" in root.title
    assert report.verdict.state == "starting"


def test_a_slow_capture_is_progress() -> None:
    report = read_text(
        "INFO 01-02 10:00:00 [gpu_worker.py:1] Available KV cache memory: 8.5 GiB\n"
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|█         | 5/51 [01:40<15:20, 20.0s/it]\n"
    )
    root = report.root
    assert root is not None and root.id == "warm-up-slow"
    assert "5 of 51" in root.title and root.step == "graph-capture"


def test_a_bar_of_an_unnamed_log_is_read() -> None:
    report = read_text("Loading safetensors checkpoint shards:  26% Completed | 22/85 [09:23<29:54, 28.49s/it]\n" * 2)
    assert report.root is not None and report.root.step == "weight-load"
