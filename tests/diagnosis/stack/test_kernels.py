"""Fallback kernels, and weights wider than their format."""

from __future__ import annotations

from conftest import read_text

START = "INFO 11-02 10:00:01 [core.py:70] Initializing a V1 LLM engine (v0.17.1) with config: model='{model}', {more}\n"


def test_a_fallback_names_hardware_and_both_paths() -> None:
    report = read_text(
        START.format(model="org/m-27B-FP8", more="quantization=fp8")
        + "WARNING 11-02 10:00:03 [fp8.py:120] Native FP8 kernels unavailable for sm_120; falling back to Marlin\n"
    )
    root = report.root
    assert root is not None and root.id == "kernel-fallback"
    assert report.verdict.state == "degraded"
    assert "sm_120" in root.title and "Marlin" in root.title and "CUTLASS" in root.cause


def test_a_card_without_the_arithmetic_is_on_the_right_path() -> None:
    report = read_text(
        "WARNING 11-02 10:00:03 [marlin_utils_fp8.py:50] Your GPU does not have native support for FP8 computation but FP8 "
        "quantization is being used. Weight-only FP8 compression will be used leveraging the Marlin kernel.\n"
    )
    assert report.root_cause is None
    assert [f.severity for f in report.findings if f.id == "kernel-fallback"] == ["info"]


def test_weights_twice_their_format_are_told() -> None:
    report = read_text(
        START.format(model="org/m-27B-FP8", more="quantization=fp8")
        + "INFO 11-02 10:00:30 [gpu_model_runner.py:1] Model loading took 54.3 GiB memory and 22.56 seconds\n"
    )
    assert report.root_cause == "weights-larger-than-format"


def test_a_quantised_model_of_the_right_size_is_fine() -> None:
    report = read_text(
        START.format(model="org/m-27B-FP8", more="quantization=fp8")
        + "INFO 11-02 10:00:30 [gpu_model_runner.py:1] Model loading took 27.31 GiB memory and 22.56 seconds\n"
    )
    assert report.findings == ()
