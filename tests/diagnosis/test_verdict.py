"""Which finding leads, what folds under it, and what the rest of a log makes of an error."""

from __future__ import annotations

from conftest import read_text

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def test_nothing_is_not_health() -> None:
    report = read_text("")
    assert report.verdict.state == "unknown" and report.root_cause is None


def test_unknown_text_is_not_health() -> None:
    assert read_text("hello\nworld 42\n").verdict.state == "unknown"


def test_a_known_error_beats_an_unknown_exception() -> None:
    report = read_text(f"Traceback (most recent call last):\n  File 'a.py', line 1, in f\nFooError: bar\n{MISMATCH}\n")
    assert report.root is not None and report.root.boundary == "kernel-usermode"


def test_an_unknown_exception_is_named_with_its_words() -> None:
    text = 'Traceback (most recent call last):\n  File "/x/vllm/foo.py", line 7, in frob\n    x()\nFrobError: no frobs left\n'
    report = read_text(text)
    assert report.root is not None and report.root.certainty == "possible"
    assert "FrobError" in report.root.title and "no frobs left" in report.root.title


def test_evidence_names_the_line() -> None:
    report = read_text(f"one\ntwo\n{MISMATCH}\n")
    assert report.root is not None
    assert (report.root.evidence[0].line, report.root.evidence[0].text) == (3, MISMATCH)
